"""The source's part of a device: clients' requests, membership of the ring, and changes of placement, together.

What a device tells is heard here (`told`), as are losses; what follows for the requests, and for the placement, are
actions for the device. `docs/wire.md` tells the whole of a change from the view of the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

from partc.errors import PartcError
from partc.format.message_parts import Problem
from partc.format.messages import (
    Cancel,
    Commit,
    Crossed,
    Error,
    Fail,
    Hello,
    Place,
    Pong,
    Prepared,
    Ready,
    Resume,
    Sensed,
    Submit,
    Timings,
    Unready,
    Watch,
)
from partc.format.placement import read_placement
from partc.format.role import Role
from partc.runtime.core.actions import (
    Action,
    Adopt,
    Broken,
    Failed,
    Heard,
    Hold,
    Mended,
    Replaced,
    Stalled,
    Tell,
)
from partc.runtime.core.commands import Send
from partc.runtime.core.links.links import Links
from partc.runtime.core.links.membership import Membership
from partc.runtime.core.liveness import soonest
from partc.runtime.core.source.change import placed
from partc.runtime.core.source.changes import Changes
from partc.runtime.core.source.members import Member
from partc.runtime.core.source.ring_monitor import RingMonitor
from partc.runtime.core.source.schedule import Schedule
from partc.runtime.core.start import Start

Report = Ready | Unready | Fail | Timings | Crossed | Pong | Prepared | Sensed
"""Messages of devices to the source."""
Asked = Submit | Cancel | Place | Resume | Watch
"""Messages of clients to the source."""


@dataclass(slots=True)
class Source:
    """The parts of a source that other devices do not have."""

    schedule: Schedule
    changes: Changes
    links: Links
    membership: Membership
    monitor: RingMonitor
    _unready: dict[str, str] = field(default_factory=dict)
    """Device → the one to which its link is down."""

    @classmethod
    def of(cls, role: Role, start: Start, links: Links, membership: Membership, now: float) -> Source:
        """The parts of a source that starts `now`; every other device is still to come."""
        schedule = Schedule.of(role, start, now)
        changes = Changes(role, (role.placement, *start.contingencies), links.addresses, start.patience_s)
        schedule.absent = membership.absent(links.missing)
        return cls(schedule, changes, links, membership, RingMonitor(links, schedule))

    def decided(
        self, action: Stalled | Hold | Broken | Mended | Replaced | Adopt, now: float
    ) -> Iterable[Action]:
        """Carry out a decision about the placement, or about a request that stands still."""
        match action:
            case Stalled():
                return self.stalled(action, now)
            case Hold(at_once):
                self.schedule.hold(at_once=at_once)
                return ()
            case Broken(devices):
                self.monitor.broken(devices)
                return self.schedule.devices_lost(devices, now)
            case Mended():
                self.monitor.mended()
                return self.schedule.go_on(now)
            case Replaced():
                return self.replaced(action, now)
            case Adopt():
                return self.adopt(action, now)
            case _:
                assert_never(action)

    # -- clients

    def asked(self, heard: Heard, message: Asked, now: float) -> Iterator[Action]:
        """A client asks for something."""
        match message:
            case Submit():
                yield from self.schedule.submit(heard.origin, message, heard.frames, now)
            case Cancel():
                yield from self.schedule.cancel(heard.origin, message, now)
            case Resume():
                yield from self.schedule.resume(heard.origin, message)
            case Watch():
                yield from self.monitor.watch(heard.origin, message, now)
            case Place():
                yield from self._place(heard, message, now)
            case _:
                assert_never(message)

    # -- devices

    def told(self, heard: Heard, report: Report, now: float) -> Iterator[Action]:
        """A device tells something."""
        if self.changes.answered(heard.peer, now):
            yield from self.look(now)
        schedule = self.schedule
        match report:
            case Ready(next_request=number):
                self._unready.pop(heard.peer, None)
                self.membership.ready(heard.peer, heard.origin)
                self.changes.ready()
                schedule.queue.raise_next_number(number)
                yield from self.look(now)
            case Unready(lost=peer):
                self._unready[heard.peer] = peer
                self.membership.left(heard.peer, heard.origin)
                yield from self.look(now)
            case Fail(request=number, earlier=earlier, problem=problem):
                yield from schedule.fail(Failed(number, problem.error(), earlier), now)
            case Timings(device=device):
                if device == heard.peer:
                    yield from schedule.reported(report, heard.frames, now)
            case Crossed(device=device):
                if device == heard.peer:
                    yield from schedule.crossed(report, heard.frames)
            case Pong():
                schedule.deadlines.patience.answered(heard.peer, report, now)
            case Sensed():
                self.monitor.sensed(heard.peer, report, now)
            case Prepared(problem=problem):
                yield from self.changes.prepared(heard.peer, report, schedule.is_at_rest, now)
                if problem is not None:
                    yield from self.look(now)
            case _:
                assert_never(report)

    def loaded(self, incarnation: int) -> None:
        """The source itself has loaded."""
        role = self.changes.role
        own = Member(incarnation, role.epoch, role.placement_digest)
        self.changes.greeted(role.device, own)

    def first_request(self, hello: Hello) -> int:
        """Requests below this number are over for whoever greets: for a new life all that have begun."""
        remembers = self.changes.members.remembers(hello.name, hello.incarnation)
        return self.schedule.first_number if remembers else self.schedule.queue.next_number

    def greeted(self, hello: Hello, now: float) -> Iterator[Action]:
        """A device is connected."""
        self.schedule.sharing.greeted(hello.name, hello.shares)
        self.monitor.greeted(hello.name)
        if not self.changes.members.remembers(hello.name, hello.incarnation):
            self._unready.pop(hello.name, None)  # its former life lacked that link
            self.schedule.queue.forget_rows()
        self.changes.greeted(hello.name, Member(hello.incarnation, hello.epoch, hello.placement))
        yield from self.look(now)

    def lost(self, device: str, origin: str | bytes, now: float) -> Iterator[Action]:
        """A connection from or to a device is closed."""
        self.membership.left(device, origin)
        if isinstance(origin, bytes):
            self.changes.members.gone(device)
            self.monitor.gone(device, now)
        self.schedule.deadlines.incomplete_since = now
        yield from self.look(now)

    def stalled(self, stalled: Stalled, now: float) -> Iterator[Action]:
        """A request stands still: whoever does not answer counts as lost; else all go on from what they have."""
        self.changes.members.suspect(stalled.silent)
        if stalled.silent:
            self.schedule.deadlines.incomplete_since = now
            yield from self.look(now)
        else:
            yield from self.changes.begin_anew(stalled.error, self.schedule.queue.reached, now)

    # -- the ring

    def look(self, now: float) -> Iterator[Action]:
        """Find out whether the ring stands, and what must change; what has waited for it opens."""
        schedule, missing = self.schedule, self.links.missing
        schedule.absent = self.membership.absent(missing)
        schedule.deadlines.links_down(self._cut_links(missing), now)
        if not schedule.absent:
            yield from self.membership.look(missing, schedule.queue.next_number)
        yield from self.changes.review(schedule.absent, schedule.queue.reached, now)
        if not schedule.held:
            yield from schedule.open_waiting(now)

    def replaced(self, replaced: Replaced, now: float) -> Iterator[Action]:
        """A placement follows that does without devices that were lost, or does not need what they forgot."""
        self.schedule.outage_over(now)
        self.monitor.replaced(replaced)
        yield from self.schedule.count_losses(replaced.devices, now)

    def adopt(self, adopt: Adopt, now: float) -> Iterator[Action]:
        """A prepared placement is in force."""
        schedule, role = self.schedule, adopt.role
        resumptions, repeated = schedule.rewind(partial(_watermark, adopt))
        self.membership.adopt(role, self.links.devices)
        schedule.adopt(role)
        self.monitor.adopt(adopt, now)
        for device, incarnation in adopt.participants.items():
            message = Commit(
                epoch=role.epoch,
                placement=role.placement_digest,
                incarnation=incarnation,
                requests=resumptions,
            )
            yield Tell(device, message)
        schedule.absent = ()
        yield from schedule.go_on(now)
        yield from placed(adopt, repeated, now)

    def catch_up(self, now: float) -> Iterator[Action]:
        """Do what can wait until the next step is on its way, and what is due."""
        yield from self.schedule.clients.flush_tokens()
        yield from self.schedule.guess(now)
        yield from self.schedule.check_deadlines(now)
        yield from self.monitor.look(now)
        if self.changes.is_stopping and self.schedule.is_at_rest:
            yield from self.changes.at_rest(self.schedule.queue.reached)
        due = self.changes.due
        if due is not None and now >= due:
            yield from self.changes.ask_again(self.schedule.queue.reached, now)
            if self.changes.lose_silent(now):
                yield from self.look(now)

    @property
    def due(self) -> float | None:
        """When `catch_up` must be called."""
        schedule = self.schedule
        return soonest(schedule.deadlines.due, schedule.guessed.due, self.changes.due, self.monitor.due)

    # -- inner workings

    def _cut_links(self, missing: Sequence[str]) -> list[tuple[str, str]]:
        """The links that are down, of those between devices that are both connected to the source."""
        own = [(self.membership.role.device, name) for name in missing]
        connected = self.changes.members.connected
        return [link for link in (*own, *self._unready.items()) if connected >= set(link)]

    def _place(self, heard: Heard, message: Place, now: float) -> Iterator[Action]:
        try:
            placement = read_placement(b"".join(heard.frames), "place")
        except PartcError as error:
            yield Send(heard.origin, Error(ticket=message.ticket, problem=Problem.of(error)))
            return
        yield from self.changes.place(heard.origin, message, placement, now)
        yield from self.look(now)


def _watermark(adopt: Adopt, request: int, reached: int) -> int:
    """The step from which the owners of all sub-modules can go on, none behind `reached`; O(sub-modules)."""
    owners = adopt.role.placement.running.items()
    have = [adopt.have.get((device, request, name)) for device, names in owners for name in names]
    least = min(reached, *(0 if held is None else held.steps for held in have))
    return 0 if any(held is not None and held.exact and held.steps > least for held in have) else least
