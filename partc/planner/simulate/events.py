"""The event simulator: programs in execution on devices, and messages on links.

It interprets the programs as `partc.runtime.core` does. A program runs once per (request, step); `send`
queues a message and never waits; only `recv` blocks. A device runs one instruction at a time: an execution,
once it is its turn, goes on until it waits for a message or has finished, and of those that can go on the one
that began first on this device is next. One that gets its message while the device computes for another goes on
at once, up to where it computes as well. Messages of a later step wait until the device has finished the
request's step before.

A link carries the messages of different requests one at a time in the order in which they were sent, each
for latency + bytes / bandwidth: the latency occupies the link too, since the formula for the throughput
counts it (`evaluate`). Messages of one request go side by side, since the formula for the latency says that they do
not slow each other; that makes a difference only where a device returns, and requests that follow
wait until the link has made up for it.

Where every device has one interval, no-bubbles (EdgeShard, Fig. 5b) is never slower than bubbles (Fig. 5a):
requests keep their order on every device and link in both, so that bubbles only add constraints. Where devices
return, whoever is ready first may be the wrong one, as in any greedy schedule, and no-bubbles can be the slower
one. The runner chooses like that, and so does this.

A prompt is one step, as in the plan's times. Where the runner sends a long one through the ring in parts
(docs/bundle.md), its first token comes earlier than here.

`sample`, `emit` and a `run` of no seconds take no time. O((instructions + messages) log n).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from partc.errors import InternalError
from partc.format.program import Add, Cut, Emit, Join, Keep, Recv, Run, Sample, Send
from partc.planner.simulate.demand import Load, Noise
from partc.planner.simulate.result import Simulation, Span, Transfer
from partc.planner.simulate.script import Script, Workflow

Mail = tuple[str, tuple[str, ...]]
"""Sender and values, which tell the messages of one step apart on the device that receives them."""


@dataclass(slots=True)
class _Link:
    free_s: float = 0.0
    """The time at which it has carried everything so far."""
    free_of_others_s: float = 0.0
    """The time at which it has carried everything before the messages of `owner`."""
    owner: int = -1

    def queue(self, ready_s: float, seconds: float) -> float:
        """Book a message that waits for all before it; when it starts."""
        start = max(ready_s, self.free_s)
        self.free_s = start + seconds
        return start

    def take(self, request: int, ready_s: float, seconds: float) -> float:
        """Book a message of a request; when it starts."""
        if request != self.owner:
            self.owner, self.free_of_others_s = request, self.free_s
        start = max(ready_s, self.free_of_others_s)
        self.free_s = max(self.free_s, start) + seconds
        return start


@dataclass(frozen=True, slots=True)
class _Await:
    mail: Mail


@dataclass(frozen=True, slots=True)
class _Compute:
    stage: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Give:
    link: _Link
    receiver: _Device
    mail: Mail
    bytes: float
    seconds: float
    occupied_s: float
    """Seconds for which it occupies the link."""
    queues: bool
    """Whether it waits for messages of its own request, too."""


_Act = _Await | _Compute | _Give


@dataclass(slots=True)
class _Execution:
    order: int
    request: int
    step: int
    phase: str
    acts: tuple[_Act, ...]
    at: int = 0
    awaited: Mail | None = None

    def __lt__(self, other: _Execution) -> bool:
        return self.order < other.order


@dataclass(slots=True, eq=False)
class _Device:
    name: str
    ready: list[_Execution] = field(default_factory=list)
    executions: dict[int, _Execution] = field(default_factory=dict)
    """Request -> its step in execution."""
    next_step: dict[int, int] = field(default_factory=dict)
    inbox: dict[tuple[int, int], set[Mail]] = field(default_factory=dict)
    """(request, step) -> what has come; there as soon as the device knows of the step."""
    computes: bool = False
    is_due: bool = False
    """Whether it gets a turn at this moment."""
    started: int = 0


class Simulator:
    """One run of a workflow under a load."""

    def __init__(self, workflow: Workflow, load: Load) -> None:
        """Nothing has begun."""
        self._load = load
        self._workflow = workflow
        self._devices = {name: _Device(name) for name in workflow.scripts[0].programs}
        self._links: dict[tuple[str, str], _Link] = {}
        self._acts = [self._prepare(script) for script in workflow.scripts]
        self._starters = [
            [self._devices[name] for name, acts in table.items() if not _waits(acts)] for table in self._acts
        ]
        self._noise = Noise(load.jitter, load.seed)
        self._events: list[
            tuple[float, bool, int, _Device, _Execution | None, tuple[int, int, Mail] | None]
        ] = []
        self._made = 0
        arrivals = load.arrivals_s or (0.0,) * load.requests
        self._coming = deque(enumerate(arrivals))
        """Requests that are still to come, with their times."""
        self._waiting: deque[int] = deque()
        """Requests that have come and were not admitted yet."""
        self._free = 1 if load.mode == "sequential" else load.in_flight
        """Requests that may be admitted now."""
        self._open: list[int] = []
        """The requests that were admitted together last."""
        self._unfinished = 0
        """Steps that have begun and not ended."""
        self._missing = load.requests * load.tokens
        self._token_s: list[list[float]] = [[] for _ in range(load.requests)]
        self._spans: list[Span] = []
        self._transfers: list[Transfer] = []

    def run(self) -> Simulation:
        """Follow everything until the last token is out.

        Raises:
            InternalError: the programs wait for each other.
        """
        load = self._load
        while self._missing:
            if self._coming and (not self._events or self._coming[0][1] <= self._events[0][0]):
                self._come()
                continue
            if not self._events:
                raise InternalError("the programs wait for each other", hint="no message is on its way")
            now, is_turn, _, device, execution, mail = heapq.heappop(self._events)
            if is_turn:
                device.is_due = False
                self._turn(device, now)
                continue
            if mail is not None:
                self._arrive(device, *mail, now)
            if execution is not None:
                device.computes = False
                self._advance(device, execution, now)
            self._call(device, now)
        return Simulation(
            mode=load.mode,
            spans=tuple(self._spans),
            transfers=tuple(self._transfers),
            token_s=tuple(map(tuple, self._token_s)),
            limit=self._workflow.limit(load.tokens),
            batch=self._workflow.batch,
            arrivals_s=load.arrivals_s,
        )

    # -- requests

    def _come(self) -> None:
        """All requests of the next arrival, together."""
        now = self._coming[0][1]
        while self._coming and self._coming[0][1] == now:
            self._waiting.append(self._coming.popleft()[0])
        self._begin_all(self._admitted(), now)

    def _admitted(self) -> list[tuple[int, int]]:
        """The first steps of the requests that may be admitted now, as far as there are any."""
        self._open = [self._waiting.popleft() for _ in range(min(self._free, len(self._waiting)))]
        self._free -= len(self._open)
        return [(request, 0) for request in self._open]

    def _begin_all(self, steps: Iterable[tuple[int, int]], now: float) -> None:
        """Begin a step of each of these requests on the devices that need no message for it."""
        for request, step in steps:
            self._unfinished += 1
            for device in self._starters[min(step, len(self._starters) - 1)]:
                device.inbox.setdefault((request, step), set())
                _queue(device, self._start(device, request))
                self._call(device, now)

    def _emitted(self, request: int, step: int, now: float) -> None:
        """A token is out: what may begin now?"""
        self._token_s[request].append(now)
        self._missing -= 1
        self._unfinished -= 1
        done = step + 1 == self._load.tokens
        self._free += done
        if self._load.mode != "bubbles":
            self._begin_all(self._admitted() if done else [(request, step + 1)], now)
        elif not self._unfinished:  # all that are open have made a token (EdgeShard, Fig. 5a)
            going = [(other, step + 1) for other in self._open]
            self._begin_all(self._admitted() if done else going, now)

    # -- devices

    def _start(self, device: _Device, request: int) -> _Execution | None:
        """Start the request's next step on a device that knows of it and has finished the one before.

        Returns:
            The step, if it can go on.
        """
        step = device.next_step.get(request, 0)
        if request in device.executions or (request, step) not in device.inbox:
            return None
        kind = min(step, len(self._acts) - 1)
        phase, acts = self._workflow.scripts[kind].phase, self._acts[kind][device.name]
        device.started += 1
        execution = _Execution(device.started, request, step, phase, acts)
        device.executions[request] = execution
        first = acts[0] if acts else None
        if isinstance(first, _Await) and first.mail not in device.inbox[request, step]:
            execution.awaited = first.mail
            return None
        return execution

    def _turn(self, device: _Device, now: float) -> None:
        """An idle device lets its oldest execution go on, again and again."""
        while not device.computes and device.ready:
            self._advance(device, heapq.heappop(device.ready), now)

    def _arrive(self, device: _Device, request: int, step: int, mail: Mail, now: float) -> None:
        device.inbox.setdefault((request, step), set()).add(mail)
        execution = device.executions.get(request)
        if execution is None:
            execution = self._start(device, request)
        elif execution.step == step and execution.awaited == mail:
            execution.awaited = None
        else:
            return
        if execution is not None and device.computes:
            self._advance(device, execution, now)
        else:
            _queue(device, execution)

    def _advance(self, device: _Device, execution: _Execution, now: float) -> None:
        """Let an execution go on until it computes, waits or ends; until it would compute, where the device does."""
        request, step, phase = execution.request, execution.step, execution.phase
        inbox = device.inbox[request, step]
        while execution.at < len(execution.acts):
            act = execution.acts[execution.at]
            if isinstance(act, _Await) and act.mail not in inbox:
                execution.awaited = act.mail
                return
            if isinstance(act, _Compute) and device.computes:
                heapq.heappush(device.ready, execution)
                return
            execution.at += 1
            if isinstance(act, _Compute):
                end = now + act.seconds * self._noise.factor(device.name, request)
                self._spans.append(Span(device.name, request, phase, step, act.stage, now, end))
                device.computes = True
                self._push(end, device, execution)
                return
            if isinstance(act, _Give):
                self._send(device, execution, act, now)
        self._finish(device, execution, now)

    def _send(self, device: _Device, execution: _Execution, act: _Give, now: float) -> None:
        request, step, receiver = execution.request, execution.step, act.receiver
        factor = self._noise.factor(f"{device.name}->{receiver.name}", request)
        seconds, occupied = act.seconds * factor, act.occupied_s * factor
        start = act.link.queue(now, occupied) if act.queues else act.link.take(request, now, occupied)
        end, free = start + seconds, start + occupied
        self._transfers.append(
            Transfer(device.name, receiver.name, request, execution.phase, step, act.bytes, start, end, free)
        )
        self._push(end, receiver, mail=(request, step, act.mail))

    def _finish(self, device: _Device, execution: _Execution, now: float) -> None:
        request, step = execution.request, execution.step
        del device.executions[request], device.inbox[request, step]
        device.next_step[request] = step + 1
        _queue(device, self._start(device, request))
        if device.name == self._workflow.source:
            self._emitted(request, step, now)

    def _push(
        self,
        time_s: float,
        device: _Device,
        execution: _Execution | None = None,
        mail: tuple[int, int, Mail] | None = None,
    ) -> None:
        """Events of one moment happen in the order in which they were made."""
        self._made += 1
        heapq.heappush(self._events, (time_s, False, self._made, device, execution, mail))

    def _call(self, device: _Device, now: float) -> None:
        """Give a device a turn once everything has happened that ends or arrives at this moment."""
        if not device.is_due:
            device.is_due = True
            self._made += 1
            heapq.heappush(self._events, (now, True, self._made, device, None, None))

    # -- preparation

    def _prepare(self, script: Script) -> dict[str, tuple[_Act, ...]]:
        """Every device's program with its costs."""
        return {name: tuple(self._device_acts(script, name)) for name in script.programs}

    def _device_acts(self, script: Script, name: str) -> list[_Act]:
        runs = iter(script.runs[name])
        acts: list[_Act] = []
        for item in script.programs[name]:
            match item:
                case Recv(values=values, device=peer):
                    acts.append(_Await((peer, values)))
                case Run():
                    acts.append(_Compute(*next(runs)))
                case Send(values=values, device=peer):
                    acts.append(self._give(script, name, peer, values))
                case Sample() | Add() | Cut() | Join() | Keep() | Emit():
                    pass  # they take no time worth counting
                case _:
                    assert_never(item)
        return acts

    def _give(self, script: Script, name: str, peer: str, values: tuple[str, ...]) -> _Give:
        count, link = script.size(values), self._workflow.link_of[name, peer]
        lane, occupied = self._links.setdefault((name, peer), _Link()), script.occupied_s(link, count)
        seconds = occupied + link.latency_s if script.lanes else occupied
        return _Give(lane, self._devices[peer], (name, values), count, seconds, occupied, script.lanes)


def _queue(device: _Device, execution: _Execution | None) -> None:
    """Let a step that can go on have its turn later; None: there is none."""
    if execution is not None:
        heapq.heappush(device.ready, execution)


def _waits(acts: tuple[_Act, ...]) -> bool:
    """Whether a program begins with a message; the others begin when the request's step begins."""
    return bool(acts) and isinstance(acts[0], _Await)
