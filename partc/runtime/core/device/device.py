"""A device of a ring: `on(event, now)` returns the commands that follow.

| event | any device | the source besides |
| --- | --- | --- |
| loaded | `ready` once all links stand; a change goes on | waiting requests open once all devices are ready |
| load failed | `prepared` with the reason; the change is dropped | the change is given up |
| rows read | `rows` | |
| connected | the link greets | |
| disconnected | the link is down: values wait for it (1) | a change begins, or requests wait, or end: `lost-peer` (2) |
| rejected, `refuse` | before the ring ever stood the device leaves; later requests end | |
| unreadable | requests in flight end; strangers and clients are refused | |
| `hello` | `welcome` or `refuse`; an older connection of the same device is lost | clients are welcomed, too |
| `welcome` | older requests end (3); what is missing goes again; `ready` once all links stand | waiting requests open |
| `data` | its request goes on; step 0 opens it | its request goes on |
| `ack` | the link drops what arrived | |
| `close` | the request ends; its timings are reported | ignored |
| `ping` | `pong` | |
| `addresses` | links to devices that are elsewhere now are connected there | ignored |
| `ready`, `unready`, `pong` | ignored | membership, liveness |
| `prepare`, `commit`, `abort` | the change is prepared, in force, or dropped | so are its own; others are ignored |
| `prepared` | ignored | the last one leads to COMMIT, or to a stop at step boundaries |
| `want`, `rows` | rows go out within a change, or come in | |
| `place`, `resume` | ignored | a change is begun; a client gets what it missed |
| `fail`, `timings`, `crossed`, `submit`, `cancel` | ignored | schedule |
| `watch`, `sensed` | ignored | ring monitor: the last `sensed` brings `status` |
| `sense` | the sensors are to be read, or times are not kept any more | |
| `shutdown` | the device leaves | every device is told before |
| computed | the step goes on: sends, next sub-module, end | progress; a token begins the next step |
| sensors read | the source hears `sensed` | |
| compute failed | the request ends; the source hears `fail` | the client hears `error` |
| tick | due acknowledgements leave | requests without progress end: `stalled` |

1. Where a consumer is at the other end, the source hears `unready`.
2. Where a client was at the other end, its requests wait for it for `linger_s`.
3. The source tells in `welcome` from which number on requests are still to come.

While the engine works (`Requests.computing`) every event but a second `computed` is handled as ever; its commands
hold no second `Compute`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from partc.errors import RunError
from partc.format import messages
from partc.format.message_parts import Problem
from partc.format.role import Role
from partc.runtime.core import events
from partc.runtime.core.actions import (
    Action,
    Adopt,
    Begin,
    Broadcast,
    Broken,
    Delivered,
    Emitted,
    End,
    Failed,
    Forward,
    Greeted,
    Heard,
    Hold,
    Inner,
    Linked,
    Lost,
    Mended,
    Misfit,
    Replaced,
    Seen,
    Stalled,
    Tell,
)  # fmt: skip
from partc.runtime.core.commands import COMMANDS, Command, Compute, Leave, Send
from partc.runtime.core.device.inbox import Inbox
from partc.runtime.core.device.journal import NOTED
from partc.runtime.core.device.parts import Parts
from partc.runtime.core.device.reports import crossed, timings
from partc.runtime.core.links import membership
from partc.runtime.core.liveness import soonest
from partc.runtime.core.start import Start


class Device(Parts):
    """One device of a ring."""

    def __init__(self, role: Role, start: Start, now: float) -> None:
        """Nothing is loaded or connected yet; `now` is in seconds on the clock of all later events."""
        super().__init__(role, start, now)
        self.inbox = Inbox(self)

    @property
    def deadline(self) -> float | None:
        """When a `Tick` is due; None: never."""
        source = None if self.source is None else self.source.due
        return soonest(self.links.incoming.due, self.transfer.fetches.due, self.preparation.due, source)

    @property
    def has_requests(self) -> bool:
        """Whether a request is open here."""
        return self.requests.in_flight > 0

    def on(self, event: events.Event, now: float) -> list[Command]:
        """Take an event; what is to be done now, in order."""
        return self.react(event, now) + self.catch_up(now)

    def react(self, event: events.Event, now: float) -> list[Command]:
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
            if type(action) in NOTED:
                commands.extend(self.journal.of(action, now))
            if isinstance(action, COMMANDS):
                if isinstance(action, Compute) and action.resets:
                    self.transfer.fetches.reset(action.slot)
                commands.append(action)
            else:
                self._carry_out(self._act(action, now), now, commands)

    def _act(self, action: Inner, now: float) -> Iterable[Action]:
        source = self.source
        match action:
            case Delivered(peer, step, values):
                if source is not None:
                    source.schedule.moved(step.request, now)
                return self.requests.deliver(peer, step, values, now)
            case Forward():
                return self._forward(action)
            case Emitted(step, values):
                assert source is not None, "only the source emits"
                return source.schedule.emitted(step, values, now)
            case Begin(step, inputs):
                return self.requests.begin(step, inputs, now)
            case End():
                return self._end(action, now)
            case Seen():
                return self._seen(action)
            case Failed():
                return self._failed(action, now)
            case Heard():
                return self.inbox.take(action, now)
            case Linked(peer, first):
                return self._linked(peer, first, now)
            case Greeted(hello):
                return () if source is None else source.greeted(hello, now)
            case Lost():
                return self._lost(action, now)
            case Misfit(error):
                return (
                    self._failed(Failed(None, error), now) if self.membership.was_complete else [Leave(error)]
                )
            case Broadcast(message):
                return [Send(origin, message) for origin in self.links.devices.values()]
            case Tell(device, message, frames):
                return self.inbox.tell(device, message, frames, now)
            case Stalled() | Hold() | Broken() | Mended() | Replaced() | Adopt():
                assert source is not None, "only the source decides"
                return source.decided(action, now)
            case _:
                assert_never(action)

    def _react(self, event: events.Event, now: float) -> Iterable[Action]:
        match event:
            case events.Received():
                if self.source is not None and (greeting := self.links.callers.greeting(event)) is not None:
                    self.links.first_request = self.source.first_request(greeting[1])
                return self.links.received(event, now)
            case events.Computed(values, seconds):
                if self.source is not None and self.requests.computing is not None:
                    self.source.schedule.moved(self.requests.computing, now)
                self.monitor.computed(seconds)
                return self.requests.computed(values, seconds, now)
            case events.ComputeFailed(error):
                return self.requests.failed(error)
            case events.SensorsRead(readings):
                return self.monitor.read(readings)
            case events.Tick():
                return ()
            case events.RowsRead(rows):
                return self.transfer.offers.read(rows)
            case events.Loaded():
                return self._loaded(now)
            case events.LoadFailed(error=error):
                return self.preparation.failed(error)
            case events.Connected(peer, address):
                return self.links.connected(peer, address)
            case events.Disconnected(origin):
                return self.links.disconnected(origin)
            case events.Rejected(peer):
                return self.links.rejected(peer)
            case events.Unreadable():
                return self.links.unreadable(event)
            case _:
                assert_never(event)

    def _catch_up(self, now: float) -> Iterator[Action]:
        if self.source is not None:
            if self.source.schedule.deadlines.are_due(now):
                self.source.schedule.deadlines.patience.answered(self.role.device, self.pong(0), now)
            yield from self.source.catch_up(now)
        due = self.links.incoming.due
        if due is not None and now >= due:
            yield from self.links.incoming.acknowledgements(now)
        if self.transfer.offers.has_waiting:
            yield from self.transfer.offers.stepped()
        if self.transfer.offers.mirrors:
            yield from self.transfer.offers.mirror()
        if self.preparation.is_fetching:
            self.transfer.fetches.look(now)
            yield from self.preparation.look(now)

    # -- actions that concern several parts

    def _forward(self, action: Forward) -> Iterator[Action]:
        try:
            send = self.links.outgoing.send(action.peer, action.step, action.names, action.arrays)
        except RunError as error:
            yield Failed(action.step.request, error)
        else:
            if send is not None:
                yield send

    def _end(self, action: End, now: float) -> Iterator[Action]:
        assert self.source is not None
        steps = self.requests.close(action.request)
        self.transfer.close(action.request)
        if action.report:
            message, frames = timings(self.role, action.request, steps)
            yield from self.source.schedule.reported(message, frames, now)
        yield Broadcast(messages.Close(request=action.request, report=action.report))

    def _seen(self, action: Seen) -> Iterator[Action]:
        message, frames = crossed(self.role, action)
        if self.source is not None:
            yield from self.source.schedule.crossed(message, frames)
        else:
            yield Send(self.role.source, message, frames)

    def _failed(self, failed: Failed, now: float) -> Iterator[Action]:
        failed.error.where = failed.error.where or self.role.device
        if self.source is not None:
            yield from self.source.schedule.fail(failed, now)
            return
        self.requests.close_failed(failed)
        problem = Problem.of(failed.error)
        yield Send(
            self.role.source, messages.Fail(request=failed.request, earlier=failed.earlier, problem=problem)
        )

    def _loaded(self, now: float) -> Iterator[Action]:
        yield from self.preparation.loaded()
        if self.membership.state is membership.State.LOADING:
            self.membership.loaded()
            if self.source is not None:
                self.source.loaded(self.membership.incarnation)
            yield from self.look(now)
        yield from self.preparation.look(now)

    def _linked(self, peer: str, first_request: int, now: float) -> Iterator[Action]:
        self.requests.close_below(first_request)
        self.requests.opens |= peer == self.role.source
        yield from self.look(now)
        yield from self.transfer.fetches.linked(peer)
        yield from self.preparation.linked(peer)
        yield from self.preparation.look(now)

    def _lost(self, lost: Lost, now: float) -> Iterator[Action]:
        if self.source is not None:
            if lost.peer == messages.CLIENT:
                self.source.monitor.watchers.left(lost.origin)
                yield from self.source.schedule.client_disconnected(lost.origin, now)
            else:
                yield from self.source.lost(lost.peer, lost.origin, now)
        elif isinstance(lost.origin, str):
            self.membership.left(lost.peer, lost.origin)
            if lost.peer != self.role.source and lost.peer in self.role.send:
                yield Send(self.role.source, messages.Unready(lost=lost.peer))
