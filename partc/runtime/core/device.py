"""A device of a ring: `on(event, now)` returns the commands that follow.

| event | any device | the source besides |
| --- | --- | --- |
| loaded | `ready` once all links stand | waiting requests open once all devices are ready |
| connected | the link greets | |
| disconnected | the link is down (1) | requests in flight end: `lost-peer` (2) |
| rejected, `refuse` | before the ring ever stood the device leaves; later requests end | |
| unreadable | requests in flight end; strangers and clients are refused | |
| `hello` | `welcome` or `refuse`; an older connection of the same device is lost | clients are welcomed, too |
| `welcome` | older requests end (3); what is missing goes again; `ready` once all links stand | waiting requests open |
| `data` | its request goes on; step 0 opens it | its request goes on |
| `ack` | the link drops what arrived | |
| `close` | the request ends; its timings are reported | ignored |
| `ping` | `pong` | |
| `ready`, `unready`, `pong` | ignored | membership, liveness |
| `fail`, `timings`, `crossed` | ignored | schedule |
| `submit`, `cancel` | ignored | schedule |
| `shutdown` | the device leaves | every device is told before |
| computed | the step goes on: sends, next sub-module, end | progress; a token begins the next step |
| compute failed | the request ends; the source hears `fail` | the client hears `error` |
| tick | due acknowledgements leave | requests without progress end: `stalled` |

1. Where the source or a consumer is at the other end, requests end here, and the source hears `unready`.
2. Where a client was at the other end, its requests are cancelled.
3. The source tells in `welcome` from which number on requests are still to come.

While the engine works (`Requests.computing`) every event but a second `computed` is handled as ever; its commands
hold no second `Compute`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import assert_never, get_args

from partc.errors import RunError
from partc.format.frames import to_frames
from partc.format.message_parts import Problem, TensorSpec
from partc.format.messages import (
    CLIENT,
    Ack,
    Cancel,
    Close,
    Crossed,
    Data,
    Error,
    Fail,
    Hello,
    Join,
    Joined,
    Measure,
    Measured,
    Ping,
    Pong,
    Ready,
    Refuse,
    Result,
    Shutdown,
    Stats,
    Submit,
    Timings,
    Token,
    Trace,
    Unready,
    Welcome,
)
from partc.format.role import Role
from partc.runtime.core.actions import (
    Action,
    Begin,
    Broadcast,
    Delivered,
    Emitted,
    End,
    Failed,
    Forward,
    Heard,
    Inner,
    Linked,
    Lost,
    Misfit,
    Seen,
)
from partc.runtime.core.commands import Command, Leave, Send
from partc.runtime.core.events import (
    Computed,
    ComputeFailed,
    Connected,
    Disconnected,
    Event,
    Loaded,
    Origin,
    Received,
    Rejected,
    Tick,
    Unreadable,
)
from partc.runtime.core.links import Info, Links
from partc.runtime.core.liveness import LEAST_PATIENCE_S
from partc.runtime.core.membership import Membership
from partc.runtime.core.request import Script
from partc.runtime.core.requests import Requests
from partc.runtime.core.schedule import Schedule
from partc.runtime.core.step import announced
from partc.runtime.core.timings import Timing, timing_table


@dataclass(frozen=True, slots=True)
class Start:
    """Facts about a device's process that the build does not know."""

    incarnation: int
    """64 random bits."""
    first_request: int = 0
    """Lowest number of a request at the source; its clock in milliseconds, so that numbers grow over restarts."""
    patience_s: float = LEAST_PATIENCE_S
    """The shortest time without progress after which a peer counts as gone, seconds."""
    info: Info = field(default_factory=dict)
    """Facts for everyone who connects."""


_COMMANDS = get_args(Command)  # a union that is made anew costs a step of a ring 1 µs
Report = Ready | Unready | Fail | Timings | Crossed | Pong
"""Messages of devices to the source."""


class Device:
    """One device of a ring."""

    def __init__(self, role: Role, start: Start, now: float) -> None:
        """Nothing is loaded or connected yet; `now` is in seconds on the clock of all later events."""
        self.role = role
        self.links = Links(role, start.incarnation, start.info)
        self.membership = Membership(role, start.incarnation)
        self.requests = Requests(Script.of(role))
        self.schedule: Schedule | None = None
        if role.is_source:
            self.schedule = Schedule(role, start.patience_s, start.first_request, incomplete_since=now)
            self.schedule.absent = self.membership.absent(self.links.missing)

    @property
    def deadline(self) -> float | None:
        """When a `Tick` is due; None: never."""
        dues = (self.links.due, None if self.schedule is None else self.schedule.due)
        return min((due for due in dues if due is not None), default=None)

    @property
    def has_requests(self) -> bool:
        """Whether a request is open here."""
        return self.requests.any_open

    def on(self, event: Event, now: float) -> list[Command]:
        """Take an event; what is to be done now, in order."""
        return self.react(event, now) + self.catch_up(now)

    def react(self, event: Event, now: float) -> list[Command]:
        """The part of `on` that other devices wait for."""
        commands: list[Command] = []
        self._carry_out(self._react(event, now), now, commands)
        self._advance(now, commands)
        return commands

    def catch_up(self, now: float) -> list[Command]:
        """The rest of `on`: what can wait until the next step is on its way, and what its time has come for."""
        commands: list[Command] = []
        self._carry_out(self._catch_up(now), now, commands)
        self._advance(now, commands)
        return commands

    def _advance(self, now: float, commands: list[Command]) -> None:
        """Let steps go on; where one ends at the source, the next one of its request begins and goes on as well."""
        while actions := self.requests.advance(now):
            self._carry_out(actions, now, commands)

    # -- how actions reach the part that they are for

    def _carry_out(self, actions: Iterable[Action], now: float, commands: list[Command]) -> None:
        """Take each action to its part; what follows from it comes before the next one."""
        # The list is complete before any of it is acted on, so no part is called while it is at work.
        for action in list(actions):
            if isinstance(action, _COMMANDS):
                commands.append(action)
            else:
                self._carry_out(self._act(action, now), now, commands)

    def _act(self, action: Inner, now: float) -> Iterable[Action]:
        schedule = self.schedule
        match action:
            case Delivered(peer, step, values):
                if schedule is not None:
                    schedule.moved(step.request, now)
                return self.requests.deliver(peer, step, values, now)
            case Forward():
                return self._forward(action)
            case Emitted(step, values):
                assert schedule is not None, "only the source emits"
                return schedule.emitted(step, values, now)
            case Begin(step, inputs):
                return self.requests.begin(step, inputs, now)
            case End():
                return self._end(action, now)
            case Seen():
                return self._seen(action)
            case Failed():
                return self._failed(action, now)
            case Heard():
                return self._heard(action, now)
            case Linked(first_request=first):
                self.requests.close_below(first)
                return self._look(now)
            case Lost():
                return self._lost(action, now)
            case Misfit(error):
                return (
                    self._failed(Failed(None, error), now) if self.membership.was_complete else [Leave(error)]
                )
            case Broadcast(message):
                return [Send(origin, message) for origin in self.links.devices.values()]
            case _:
                assert_never(action)

    def _react(self, event: Event, now: float) -> Iterable[Action]:
        match event:
            case Received():
                if self.schedule is not None and isinstance(event.message, Hello):
                    self.links.first_request = self.schedule.next_number
                return self.links.received(event, now)
            case Computed(values, seconds):
                if self.schedule is not None and self.requests.computing is not None:
                    self.schedule.moved(self.requests.computing, now)
                return self.requests.computed(values, seconds, now)
            case ComputeFailed(error):
                return self.requests.failed(error)
            case Tick():
                return ()
            case Loaded():
                self.membership.loaded()
                return self._look(now)
            case Connected(peer):
                return self.links.connected(peer)
            case Disconnected(origin):
                return self.links.disconnected(origin)
            case Rejected(peer):
                return self.links.rejected(peer)
            case Unreadable():
                return self.links.unreadable(event)
            case _:
                assert_never(event)

    def _catch_up(self, now: float) -> Iterator[Action]:
        if self.schedule is not None:
            yield from self.schedule.tell()
            yield from self.schedule.look(now)
        for step in self.requests.look_ahead():
            self.links.headers.expect(step)
        due = self.links.due
        if due is not None and now >= due:
            yield from self.links.acknowledgements(now)

    # -- actions that concern several parts

    def _forward(self, action: Forward) -> Iterator[Action]:
        try:
            yield self.links.send(action.peer, action.step, action.names, action.arrays)
        except RunError as error:
            yield Failed(action.step.request, error)

    def _end(self, action: End, now: float) -> Iterator[Action]:
        assert self.schedule is not None
        steps = self.requests.close(action.request)
        if action.report:
            message, frames = self._timings(action.request, steps)
            yield from self.schedule.reported(message, frames, now)
        yield Broadcast(Close(request=action.request, report=action.report))

    def _seen(self, action: Seen) -> Iterator[Action]:
        message = Crossed(
            request=action.step.request,
            device=self.role.device,
            peer=action.peer,
            step=action.step.step,
            values=announced(action.values.items(), self.role.types),
        )
        frames = [part for array in action.values.values() for part in to_frames(array)]
        if self.schedule is not None:
            yield from self.schedule.crossed(message, frames)
        else:
            yield Send(self.role.source, message, frames)

    def _failed(self, failed: Failed, now: float) -> Iterator[Action]:
        failed.error.where = failed.error.where or self.role.device
        if self.schedule is not None:
            yield from self.schedule.fail(failed, now)
            return
        self.requests.close_failed(failed)
        problem = Problem.of(failed.error)
        yield Send(self.role.source, Fail(request=failed.request, earlier=failed.earlier, problem=problem))

    def _lost(self, lost: Lost, now: float) -> Iterator[Action]:
        if self.schedule is not None and lost.peer == CLIENT:
            yield from self.schedule.cancel(lost.origin, None, now)
        elif self.schedule is not None:
            yield from self._without(lost.peer, lost.peer, lost.origin, now)
        elif isinstance(lost.origin, str):
            self.requests.close_all()
            self.membership.left(lost.peer, lost.origin)
            if lost.peer != self.role.source:
                yield Send(self.role.source, Unready(lost=lost.peer))
        elif lost.peer == self.role.source:
            self.requests.close_all()

    def _without(self, device: str, gone: str, origin: Origin, now: float) -> Iterator[Action]:
        """A connection to or from a device is closed, or the device tells of one of its own; `gone` is to blame."""
        assert self.schedule is not None
        self.membership.left(device, origin)
        self.schedule.absent = self.membership.absent(self.links.missing)
        yield from self.schedule.lost(gone, now)

    def _look(self, now: float) -> Iterator[Action]:
        """Find out whether the ring stands; the source opens what has waited for it."""
        yield from self.membership.look(self.links.missing, self.requests.next_request)
        if self.schedule is not None:
            self.schedule.absent = self.membership.absent(self.links.missing)
            yield from self.schedule.pump(now)

    # -- messages that are neither values nor about links

    def _heard(self, heard: Heard, now: float) -> Iterable[Action]:
        from_client, from_source = heard.peer == CLIENT, heard.peer == self.role.source
        schedule = self.schedule
        match heard.message:
            case Ping(token=token):
                busy, doing = self.requests.computing is not None, self.requests.doing()
                return [Send(heard.origin, Pong(token=token, computing=busy, doing=doing))]
            case Close() as close:
                return self._closed(close) if from_source else ()
            case Shutdown():
                if from_client:
                    return [Broadcast(Shutdown()), Leave()]
                return [Leave()] if from_source else ()
            case Submit() as submit:
                if schedule is None or not from_client:
                    return ()
                return schedule.submit(heard.origin, submit, heard.frames, now)
            case Cancel() as cancel:
                if schedule is None or not from_client:
                    return ()
                return schedule.cancel(heard.origin, cancel, now)
            case Ready() | Unready() | Fail() | Timings() | Crossed() | Pong() as report:
                if schedule is None or from_client:
                    return ()
                return self._told(heard, report, schedule, now)
            case Hello() | Welcome() | Refuse() | Data() | Ack():
                return ()  # the links have them
            case (
                Token() | Stats() | Trace() | Result() | Error() | Measure() | Measured() | Join() | Joined()
            ):
                return ()  # for clients, and for devices that measure
            case unknown:
                assert_never(unknown)

    def _closed(self, close: Close) -> Iterator[Action]:
        steps = self.requests.close(close.request)
        if close.report:
            yield Send(self.role.source, *self._timings(close.request, steps))

    def _told(self, heard: Heard, report: Report, schedule: Schedule, now: float) -> Iterator[Action]:
        """A device told the source."""
        match report:
            case Ready(next_request=number):
                self.membership.ready(heard.peer, heard.origin)
                schedule.seen(number)
                yield from self._look(now)
            case Unready(lost=gone):
                yield from self._without(heard.peer, gone, heard.origin, now)
            case Fail(request=number, earlier=earlier, problem=problem):
                yield from schedule.fail(Failed(number, problem.error(), earlier), now)
            case Timings(device=device):
                if device == heard.peer:
                    yield from schedule.reported(report, heard.frames, now)
            case Crossed(device=device):
                if device == heard.peer:
                    yield from schedule.crossed(report, heard.frames)
            case Pong():
                schedule.answered(heard.peer, report, now)
            case _:
                assert_never(report)

    def _timings(self, number: int, steps: Sequence[Timing]) -> tuple[Timings, list[memoryview]]:
        columns, table = timing_table(steps)
        specs = (TensorSpec("timing", "float64", table.shape),)
        message = Timings(request=number, device=self.role.device, columns=tuple(columns), values=specs)
        return message, to_frames(table)
