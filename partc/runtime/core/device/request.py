"""One request on one device, from its first step to its end.

| state | meaning | left by |
| --- | --- | --- |
| opening | known here; its first step has not begun | `begin`, `deliver` → ready or waiting |
| ready | its program can go on | `advance` → computing, waiting or idle |
| computing | a sub-module or the sampling is under way | `computed` → ready |
| waiting | its program waits for a message | `deliver` of that message → ready |
| idle | all steps so far are over | `begin`, `deliver` → ready or waiting |
| closed | over; whatever still comes is ignored | |

`close` leads from every state to closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_timing
from enum import Enum
from typing import assert_never

import numpy as np
from msgspec.structs import replace

from partc.errors import InternalError, RunError
from partc.format.dtypes import DTYPES, Array, as_float32
from partc.format.message_parts import Resumption, Reuse, Sampling
from partc.format.program import (
    CHUNK,
    REPLAY,
    Add,
    Cut,
    Emit,
    Instruction,
    Join,
    Keep,
    Message,
    Program,
    Recv,
    Run,
    Sample,
    Send,
)
from partc.format.program_rules import dims_of_call
from partc.format.role import Role
from partc.format.status import SAMPLE
from partc.runtime.core.actions import Action, Emitted, Forward, Seen
from partc.runtime.core.commands import Compute, Draw
from partc.runtime.core.device.timings import Timing
from partc.runtime.core.device.values import cut, last_uses, likely, total_of
from partc.runtime.core.step import MOST_FORCED, Step, apart

Key = tuple[str, tuple[str, ...]]
"""Sender and names of a message: the names tell the messages of one sender in a step apart."""


class State(Enum):
    """State of a request on a device."""

    OPENING = "opening"
    READY = "ready"
    COMPUTING = "computing"
    WAITING = "waiting"
    IDLE = "idle"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Script:
    """The programs of a device, and what can be known of them before any request."""

    role: Role
    dead: Mapping[str, Sequence[frozenset[str]]]
    """Phase → per instruction, the values that nothing after it uses, so that their memory can go."""
    awaits: Mapping[str, Sequence[tuple[Message, ...]]]
    """Phase → per instruction, the messages that it waits for."""
    most_steps: int
    """Steps that may be known before the one under way is over."""
    most_early: int
    """Messages that those bring at most."""

    @classmethod
    def of(cls, role: Role) -> Script:
        """Look at the programs of a device."""
        awaits = {phase: [item.awaits for item in program] for phase, program in role.programs.items()}
        most = max(sum(map(len, messages)) for messages in awaits.values())
        steps = MOST_FORCED + role.model.most_chunks
        dead = {phase: last_uses(program) for phase, program in role.programs.items()}
        return cls(role, dead, awaits, steps, steps * most)


@dataclass(slots=True)
class Request:
    """A request as one device knows it."""

    script: Script
    number: int
    slot: int
    sampling: Sampling
    trace: bool
    idle_since: float
    state: State = State.OPENING
    timings: list[Timing] = field(default_factory=list)
    """The steps that are over."""
    steps: int = 0
    """Steps that are over: the rows of all of them are in the states."""
    _ends: list[tuple[int, ...]] = field(default_factory=list)
    """(batch,) valid tokens after each step of the prompt."""
    _phase: str = ""
    """Phase of the last step."""
    _queued: deque[tuple[Step, Mapping[str, Array]]] = field(default_factory=deque)
    """Steps that begin here when the one before is over."""
    _early: list[tuple[str, Step, Mapping[str, Array]]] = field(default_factory=list)
    """Messages of later steps."""
    # -- the step under way
    _step: Step | None = None
    _program: Program = ()
    _dead: Sequence[frozenset[str]] = ()
    _awaits: Sequence[tuple[Message, ...]] = ()
    _at: int = 0
    _values: dict[str, Array] = field(default_factory=dict)
    _inbox: dict[Key, tuple[Mapping[str, Array], float]] = field(default_factory=dict)
    """Messages that have come, and when."""
    _came: set[Key] = field(default_factory=set)
    """All messages that have been in the inbox."""
    _emitted: Mapping[str, Array] = field(default_factory=dict)
    _timing: Timing = field(default_factory=lambda: Timing(0, 0))
    _ready_since: float = 0.0
    _waiting_since: float | None = None
    _mates: Sequence[Request] = ()
    """The other requests of a shared step, in the order of their rows."""
    _reuse: Reuse | None = None
    """Rows of an earlier request that step 0 goes on behind."""
    _kept: dict[str, Array] = field(default_factory=dict)
    """Values of the first step that later ones read."""
    _resets: bool = True
    """Whether the next sub-module that runs finds the states of an earlier request."""

    @classmethod
    def resumed(cls, script: Script, resumption: Resumption, before: Request | None, now: float) -> Request:
        """A request that goes on from some step; `before` is what this device knew of it."""
        request = cls(script, resumption.request, resumption.slot, resumption.sampling, resumption.trace, now)
        request.steps, request._phase = resumption.step, resumption.phase
        request._ends = list(resumption.ends)
        request._resets = resumption.step == 0
        if before is not None:
            request.timings = before.timings[: resumption.step]
            request._kept = before._kept if resumption.step else {}
        return request

    def position(self, step: int) -> tuple[int, ...]:
        """(batch,) valid tokens in the cache before a step that is over, or the next one; () before the first."""
        if step <= len(self._ends):
            return self._ends[step - 1] if step else ()
        return tuple(end + step - len(self._ends) for end in self._ends[-1])

    def begin_behind(self, reuse: Reuse | None) -> None:
        """Go on behind rows that the slot has, before the first step."""
        self._reuse, self._resets = reuse, reuse is None

    def share(self, step: Step, mates: Sequence[Request]) -> None:
        """Take the other requests of a step that is about to begin here; all of them rest meanwhile.

        Raises:
            RunError: one of them is not at that step.
        """
        for request, own in zip((self, *mates), apart(step), strict=True):
            if request._step is not None:
                message = f"request {request.number} has a step under way, and cannot share one"
                raise RunError(message, cause="refused")
            request._check_follows(own)
        self._mates = mates

    def shares_with(self, number: int) -> bool:
        """Whether it computes a step under way that another request shares."""
        return any(mate.number == number for mate in self._mates)

    @property
    def shares(self) -> bool:
        """Whether the step under way is that of several requests."""
        return bool(self._mates)

    def begin(self, step: Step, inputs: Mapping[str, Array], now: float) -> None:
        """Start a step whose inputs are here (on the source), once the last one is over.

        Raises:
            RunError: it does not follow the last step.
        """
        if self._step is not None:
            self._queued.append((step, inputs))
        else:
            self._start(step, inputs, now)

    def deliver(self, peer: str, step: Step, values: Mapping[str, Array], now: float) -> list[Action]:
        """Take a message; on other devices than the source, the first message of a step starts it.

        Raises:
            RunError: the step does not fit the request, or the message came already.
        """
        under_way = self._step or self._joined(step, now)
        if step.step != under_way.step and self._is_early(step, under_way):
            self._early.append((peer, step, values))
            return []
        if step is not under_way and not under_way.same_as(step):
            message = f"{peer} is at step {step.step} of request {self.number} with other sizes than here"
            raise RunError(message, cause="refused")
        key = (peer, tuple(values))
        if key in self._came:
            message = f"{peer} sent {', '.join(values)} twice in step {step.step}"
            raise RunError(message, cause="refused")
        self._came.add(key)
        if step.likely:
            self._step = replace(under_way, likely=step.likely)
        self._inbox[key] = (values, now)
        self._timing.received_bytes += sum([array.nbytes for array in values.values()])
        if self.state is State.WAITING and self._awaited() is None:
            self._wake(now)
        return [Seen(peer, step, values)] if self.trace and step.phase != REPLAY else []

    def advance(self, now: float) -> list[Action]:
        """Go on until something must be computed, a message is missing, or the step is over."""
        self._timing.queue_s += now - self._ready_since
        actions: list[Action] = []
        program, dead, awaits = self._program, self._dead, self._awaits
        while self._at < len(program):
            if awaits[self._at] and self._awaited() is not None:
                self.state, self._waiting_since = State.WAITING, now
                return actions
            self._execute(program[self._at], actions)
            if self.state is State.COMPUTING:
                return actions
            self._pass(dead)
        return actions + self._finish(now)

    def computed(self, values: Sequence[Array], seconds: float, now: float) -> None:
        """Take the result that `advance` asked for."""
        instruction = self._program[self._at]
        if not isinstance(instruction, Run | Sample):
            raise InternalError(f"{instruction} computes nothing")
        if isinstance(instruction, Sample) and len(values) > 1:
            wanted = [request.sampling.likely for request in (self, *self._mates)]
            self._step = replace(self._under_way, likely=likely(values[1:], wanted))
            values = values[:1]
        self._values.update(zip(instruction.writes, values, strict=True))
        self._timing.compute_s += seconds
        self._pass(self._dead)
        self.state, self._ready_since = State.READY, now

    def close(self) -> None:
        """End, wherever it is."""
        self.state = State.CLOSED
        self._values.clear()
        self._mates = ()
        self._inbox.clear()
        self._queued.clear()
        self._early.clear()

    def waits_for(self) -> tuple[int, Message] | None:
        """(step, message) that it waits for."""
        awaited = self._awaited() if self.state is State.WAITING else None
        return None if awaited is None else (self._under_way.step, awaited)

    @property
    def works_at(self) -> tuple[str, str]:
        """(sub-module or `sample`, phase) of what is computed."""
        item = self._program[self._at]
        return (item.submodule if isinstance(item, Run) else SAMPLE), self._phase

    def has_begun(self, submodule: str) -> bool:
        """Whether the step under way has run a sub-module, or runs it."""
        begun = self._program[: self._at + (self.state is State.COMPUTING)] if self._step else ()
        return any(isinstance(item, Run) and item.submodule == submodule for item in begun)

    @property
    def began_s(self) -> float:
        """When the step under way began."""
        return self._timing.started_s

    @property
    def _under_way(self) -> Step:
        if self._step is None:
            raise InternalError(f"request {self.number} has no step under way")
        return self._step

    def _joined(self, step: Step, now: float) -> Step:
        """The step that a message is the first to tell of."""
        if step.step < self.steps:
            raise RunError(f"step {step.step} of request {self.number} is over", cause="refused")
        if self.script.role.is_source:
            raise RunError(f"step {step.step} of request {self.number} has not begun", cause="refused")
        self._start(step, {}, now)
        return step

    def _start(self, step: Step, inputs: Mapping[str, Array], now: float) -> None:
        self._check_follows(apart(step)[0])
        self._step, self._phase, self._at = step, step.phase, 0
        script, phase = self.script, step.phase
        self._program, self._dead = script.role.programs[phase], script.dead[phase]
        self._awaits = script.awaits[phase]
        self._values = {**self._step_inputs(step), **self._kept, **inputs}
        self._inbox, self._came, self._emitted, self._waiting_since = {}, set(), {}, None
        number = max(0, step.step + 1 - len(self._ends)) if step.phase in ("decode", REPLAY) else 0
        self._timing = Timing(self.number, number, started_s=now, epoch=script.role.epoch)
        if self._awaited() is None:
            self._wake(now)
        else:
            # What came before the first message of a step was waiting for it, but for a request's very first.
            self.state, self._waiting_since = State.WAITING, self.idle_since if step.step else now

    def _check_follows(self, step: Step) -> None:
        """Hold a step of this request alone against those before; raises RunError."""
        fits = step.step == self.steps and step.position == self._position_of(step)
        in_turn = (step.phase in ("decode", REPLAY)) == (self._phase not in ("", CHUNK))
        if not (fits and step.slot == self.slot and in_turn):
            message = f"step {step.step} of request {self.number} does not follow its step {self.steps - 1}"
            raise RunError(message, cause="refused")

    def _position_of(self, step: Step) -> tuple[int, ...]:
        """Where the next step of this request must begin; the first may begin anywhere, unless rows are kept."""
        if step.step:
            return self.position(step.step)
        return step.position if self._reuse is None else (self._reuse.rows,)

    def _step_inputs(self, step: Step) -> dict[str, Array]:
        if not self.script.role.has_step_inputs:
            return {}
        return {
            "position": np.array(step.position, np.int64),
            "length": np.array(step.length, np.int64),
            "index": np.arange(step.dims.get("sequence", 1), dtype=np.int64),
        }

    def _wake(self, now: float) -> None:
        self.state, self._ready_since = State.READY, now

    def _awaited(self) -> Message | None:
        """The first message that the instruction waits for and that has not come."""
        if self._at == len(self._program):
            return None
        return next((message for message in self._awaits[self._at] if message not in self._inbox), None)

    def _execute(self, instruction: Instruction, actions: list[Action]) -> None:
        values, step = self._values, self._under_way
        match instruction:
            case Recv():
                self._receive(instruction)
            case Run():
                self._run(instruction, actions)
            case Send(values=names, device=peer):
                arrays = [values[name] for name in names]
                self._timing.sent_bytes += sum([array.nbytes for array in arrays])
                actions.append(Forward(peer, step, names, arrays))
            case Sample(logits=name):
                if self.trace:
                    actions.append(Seen(self.script.role.device, step, {name: values[name]}))
                self.state = State.COMPUTING
                actions.append(self._draw(name, step))
            case Add(terms=names, total=total):
                values[total] = total_of([values[name] for name in names])
            case Cut(whole=name, parts=names, axis=axis):
                values.update(zip(names, cut(values[name], len(names), axis), strict=True))
            case Join(parts=names, whole=name, axis=axis):
                values[name] = np.concatenate([values[part] for part in names], axis)
            case Emit(values=names):
                self._emitted = {name: values[name] for name in names}
            case Keep(values=names):
                self._kept = {name: values[name] for name in names}
            case _:
                assert_never(instruction)

    def _run(self, run: Run, actions: list[Action]) -> None:
        """Ask for a sub-module, with the sizes that it is called with; without any elements to compute, go on."""
        role, dims = self.script.role, self._under_way.dims
        module, arrays = role.submodules[run.submodule], [self._values[name] for name in run.inputs]
        if run.inputs != module.inputs:
            dims = dims_of_call(
                [role.types[name] for name in module.inputs], [array.shape for array in arrays], dims
            )
            if not module.states and self._makes_nothing(run, dims):
                return
        self.state = State.COMPUTING
        slots = tuple([mate.slot for mate in self._mates])
        actions.append(Compute(run.submodule, self.slot, arrays, dims, self._resets, slots))
        self._resets = False

    def _makes_nothing(self, run: Run, dims: Mapping[str, int]) -> bool:
        """Whether all outputs of a call are empty; then they are there."""
        role = self.script.role
        kinds = [role.types[name] for name in role.submodules[run.submodule].outputs]
        if any(kind.bytes(dims) for kind in kinds):
            return False
        made = [np.empty(kind.sizes(dims), DTYPES[kind.dtype]) for kind in kinds]
        self._values.update(zip(run.outputs, made, strict=True))
        return True

    def _receive(self, instruction: Recv) -> None:
        peer = instruction.device
        came, at = self._inbox.pop((peer, instruction.values))
        self._values.update(came)
        if self._waiting_since is not None:
            waited = max(0.0, at - self._waiting_since)
            self._timing.wait_s[peer] = self._timing.wait_s.get(peer, 0.0) + waited
            self._waiting_since = None

    def _draw(self, name: str, step: Step) -> Draw:
        logits = as_float32(self._values[name], self.script.role.types[name].dtype)
        if logits.ndim != 3 or logits.shape[1] != 1:
            raise InternalError(f"logits have the shape {logits.shape}, not (batch, 1, vocabulary)")
        return Draw(logits[:, 0, :], self.sampling, step.end, tuple([mate.sampling for mate in self._mates]))

    def _pass(self, dead: Sequence[frozenset[str]]) -> None:
        """Go to the next instruction; values that nothing uses any more are let go."""
        for name in dead[self._at]:
            self._values.pop(name, None)
        self._at += 1

    def _finish(self, now: float) -> list[Action]:
        """The step is over; what it emits goes out last, since the request's next step begins with it."""
        step, emitted = self._under_way, self._emitted
        self.timings.append(self._timing)
        self._step, self.state, self.idle_since = None, State.IDLE, now
        self.steps = step.step + 1
        for mate, own in zip(self._mates, step.others, strict=True):
            mate._shared(own.step, self._timing, now)
        self._mates = ()
        if step.phase in ("prefill", CHUNK):
            self._ends.append(step.end)
        if self._queued:
            self._start(*self._queued.popleft(), now)
        actions: list[Action] = []
        early, self._early = self._early, []
        for peer, following, values in early:
            actions += self.deliver(peer, following, values, now)
        if emitted:
            actions.append(Emitted(step, emitted))
        return actions

    def _shared(self, step: int, timing: Timing, now: float) -> None:
        """A step is over that another request has computed for this one, too; each counts all of its time."""
        self.timings.append(
            replace_timing(timing, request=self.number, step=max(0, step + 1 - len(self._ends)))
        )
        self.steps, self._phase, self.idle_since = step + 1, "decode", now

    def _is_early(self, step: Step, under_way: Step) -> bool:
        """Whether a message belongs to a later step that may be known already."""
        ahead = step.step - under_way.step
        return 0 < ahead <= self.script.most_steps and len(self._early) < self.script.most_early
