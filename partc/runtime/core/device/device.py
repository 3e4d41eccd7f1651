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

from collections.abc import Iterable, Iterator, Sequence
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
    Frame,
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
from partc.runtime.core.device.early import Early
from partc.runtime.core.device.journal import NOTED, Journal
from partc.runtime.core.device.preparation import Preparation
from partc.runtime.core.device.reports import crossed, timings
from partc.runtime.core.device.request import Script
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.transfer import Transfer
from partc.runtime.core.device.vitals import Monitor
from partc.runtime.core.links import membership
from partc.runtime.core.links.links import Links
from partc.runtime.core.links.membership import Membership
from partc.runtime.core.links.outages import Wait
from partc.runtime.core.liveness import soonest
from partc.runtime.core.source.source import Source
from partc.runtime.core.start import Start


class Device:
    """One device of a ring."""

    def __init__(self, role: Role, start: Start, now: float) -> None:
        """Nothing is loaded or connected yet; `now` is in seconds on the clock of all later events."""
        self.role = role
        self.links = Links(role, start.incarnation, start.info)
        self.membership = Membership(role, start.incarnation)
        self.requests = Requests(Script.of(role), opens=False)
        self.monitor = Monitor(self.links, self.requests)
        self.journal = Journal()
        self.transfer = Transfer(role, self.requests, self.links, start.patience_s)
        link_wait = Wait(max(start.patience_s, start.rejoin_s))
        self.preparation = Preparation(
            role, start.incarnation, self.links, self.requests, self.transfer, link_wait
        )
        self._early = Early()
        self.source: Source | None = None
        if role.is_source:
            self.source = Source.of(role, start, self.links, self.membership, now)

    @property
    def deadline(self) -> float | None:
        """When a `Tick` is due; None: never."""
        source = None if self.source is None else self.source.due
        return soonest(self.links.due, self.transfer.due, self.preparation.due, source)

    @property
    def has_requests(self) -> bool:
        """Whether a request is open here."""
        return self.requests.any_open

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
                    self.transfer.reset(action.slot)
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
                return self._heard(action, now)
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
                return self._tell(device, message, frames, now)
            case Stalled() | Hold() | Broken() | Mended() | Replaced() | Adopt():
                assert source is not None, "only the source decides"
                return source.decided(action, now)
            case _:
                assert_never(action)

    def _react(self, event: events.Event, now: float) -> Iterable[Action]:
        match event:
            case events.Received():
                if self.source is not None and (greeting := self.links.greeting(event)) is not None:
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
                return self.transfer.read(rows)
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
            if self.source.schedule.looks(now):
                self.source.schedule.patience.answered(self.role.device, self._pong(0), now)
            yield from self.source.catch_up(now)
        due = self.links.due
        if due is not None and now >= due:
            yield from self.links.acknowledgements(now)
        if self.transfer.has_waiting:
            yield from self.transfer.stepped()
        if self.transfer.mirrors:
            yield from self.transfer.mirror()
        if self.preparation.is_fetching:
            self.transfer.look(now)
            yield from self.preparation.look(now)

    # -- actions that concern several parts

    def _forward(self, action: Forward) -> Iterator[Action]:
        try:
            send = self.links.send(action.peer, action.step, action.names, action.arrays)
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
            yield from self._look(now)
        yield from self.preparation.look(now)

    def _linked(self, peer: str, first_request: int, now: float) -> Iterator[Action]:
        self.requests.close_below(first_request)
        self.requests.opens |= peer == self.role.source
        yield from self._look(now)
        yield from self.transfer.linked(peer)
        yield from self.preparation.linked(peer)
        yield from self.preparation.look(now)

    def _lost(self, lost: Lost, now: float) -> Iterator[Action]:
        if self.source is not None:
            if lost.peer == messages.CLIENT:
                self.source.monitor.watchers.left(lost.origin)
                yield from self.source.schedule.away(lost.origin, now)
            else:
                yield from self.source.lost(lost.peer, lost.origin, now)
        elif isinstance(lost.origin, str):
            self.membership.left(lost.peer, lost.origin)
            if lost.peer != self.role.source and lost.peer in self.role.send:
                yield Send(self.role.source, messages.Unready(lost=lost.peer))

    def _look(self, now: float) -> Iterator[Action]:
        """Find out whether the ring stands, as far as this device sees it."""
        if self.source is not None:
            yield from self.source.look(now)
        else:
            yield from self.membership.look(self.links.missing, self.requests.next_request)

    # -- changes of placement

    def _tell(
        self, device: str, message: messages.Message, frames: Sequence[Frame], now: float
    ) -> Iterable[Action]:
        if device != self.role.device:
            # A device and its source talk over the connection that the device opened.
            way = device if device == self.role.source else self.links.devices.get(device)
            return () if way is None else [Send(way, message, frames)]
        here = Heard(device, device, message, [memoryview(frame) for frame in frames])  # type: ignore[arg-type]
        return self._heard(here, now)

    def _from_source(
        self, message: messages.Prepare | messages.Commit | messages.Abort, heard: Heard, now: float
    ) -> Iterator[Action]:
        match message:
            case messages.Prepare():
                yield from self.preparation.prepare(message, b"".join(heard.frames), now)
                for early in self._early.taken():
                    yield from self._heard(early, now)
            case messages.Commit():
                role = self.preparation.commit(message)
                if role is not None:
                    yield from self._adopt(role, message, now)
            case messages.Abort():
                yield from self.preparation.abort(message)
            case _:
                assert_never(message)

    def _adopt(self, role: Role, commit: messages.Commit, now: float) -> Iterator[Action]:
        """A placement is in force."""
        self.role = role
        yield self.journal.in_force(role)
        self._early.taken()
        self.requests.resume(Script.of(role), commit.requests, now)
        self.monitor.adopt()
        self.transfer.adopt(role)
        yield from self.preparation.adopt(role)
        yield from self.links.adopt(role)
        if self.source is None:
            self.membership.role = role
            yield from self._look(now)

    # -- messages that are neither values nor about links

    def _heard(self, heard: Heard, now: float) -> Iterable[Action]:
        """Take a message that its sender may send (`rights`)."""
        source = self.source
        match heard.message:
            case messages.Ping(token=token):
                return [Send(heard.origin, self._pong(token))]
            case messages.Close() as close:
                return self._closed(close)
            case messages.Shutdown():
                told = [Broadcast(messages.Shutdown())] if heard.peer == messages.CLIENT else []
                return [*told, Leave()]
            case messages.Addresses(addresses=addresses):
                return self.links.moved(addresses)
            case messages.Prepare() | messages.Commit() | messages.Abort() as order:
                return self._from_source(order, heard, now)
            case messages.Sense() as sense:
                return self.monitor.sense(sense)
            case (
                messages.Submit() | messages.Cancel() | messages.Place() | messages.Resume() | messages.Watch()
            ) as asked:  # fmt: skip
                return () if source is None else source.asked(heard, asked, now)
            case (
                messages.Ready() | messages.Unready() | messages.Fail() | messages.Timings() | messages.Crossed()
                | messages.Pong() | messages.Prepared() | messages.Sensed()
            ) as report:  # fmt: skip
                return () if source is None else source.told(heard, report, now)
            case messages.Want() as want:
                return self._wanted(heard, want)
            case messages.Rows() as rows:
                return self._rows(heard, rows, now)
            case messages.Hello() | messages.Welcome() | messages.Refuse() | messages.Data() | messages.Ack():
                return ()  # the links have them
            case (
                messages.Token() | messages.Stats() | messages.Trace() | messages.Result() | messages.Error()
                | messages.Placed() | messages.Status()
            ):  # fmt: skip
                return ()  # for clients
            case messages.Measure() | messages.Measured() | messages.Join() | messages.Joined():
                return ()  # for devices that measure
            case unknown:
                assert_never(unknown)

    def _wanted(self, heard: Heard, want: messages.Want) -> Iterable[Action]:
        """Answer a question for rows, if the change that is prepared gives its sender that sub-module."""
        if self.preparation.gives(heard.peer, want):
            return self.transfer.wanted(heard.peer, heard.origin, want)
        is_here = self.requests.request(want.request) is not None and want.submodule in self.role.running
        if is_here and self.preparation.may_follow(want.epoch):
            self._early.keep(heard, want)
        return ()

    def _pong(self, token: int) -> messages.Pong:
        """The state of this device, as the answer to `ping`."""
        busy = self.requests.computing is not None
        return messages.Pong(token=token, computing=busy, doing=self.requests.doing())

    def _rows(self, heard: Heard, rows: messages.Rows, now: float) -> Iterator[Action]:
        try:
            yield from self.transfer.came(heard.peer, rows, heard.frames, now)
        except RunError:
            return  # nobody answers then, and the rows are computed again

    def _closed(self, close: messages.Close) -> Iterator[Action]:
        steps = self.requests.close(close.request)
        self.transfer.close(close.request)
        if close.report:
            yield Send(self.role.source, *timings(self.role, close.request, steps))
