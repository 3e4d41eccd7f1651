"""The parts of a device, and what concerns all of them: whether the ring stands, and another placement."""

from __future__ import annotations

from collections.abc import Iterator

from partc.format.messages import Commit, Pong
from partc.format.role import Role
from partc.runtime.core.actions import Action
from partc.runtime.core.device.early import Early
from partc.runtime.core.device.journal import Journal
from partc.runtime.core.device.preparation import Preparation
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.script import Script
from partc.runtime.core.device.transfer import Transfer
from partc.runtime.core.device.vitals import Monitor
from partc.runtime.core.links.links import Links
from partc.runtime.core.links.membership import Membership
from partc.runtime.core.links.outages import Wait
from partc.runtime.core.source.source import Source
from partc.runtime.core.start import Start


class Parts:
    """The parts of one device."""

    def __init__(self, role: Role, start: Start, now: float) -> None:
        """Nothing is loaded or connected yet."""
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
        self.early = Early()
        self.source: Source | None = None
        if role.is_source:
            self.source = Source.of(role, start, self.links, self.membership, now)

    def look(self, now: float) -> Iterator[Action]:
        """Find out whether the ring stands, as far as this device sees it."""
        if self.source is not None:
            yield from self.source.look(now)
        else:
            yield from self.membership.look(self.links.missing, self.requests.next_request)

    def pong(self, token: int) -> Pong:
        """The state of this device, as the answer to `ping`."""
        busy = self.requests.computing is not None
        return Pong(token=token, computing=busy, doing=self.requests.doing())

    def adopt(self, role: Role, commit: Commit, now: float) -> Iterator[Action]:
        """A placement is in force."""
        self.role = role
        yield self.journal.in_force(role)
        self.early.taken()
        self.requests.resume(Script.of(role), commit.requests, now)
        self.monitor.adopt()
        self.transfer.adopt(role)
        yield from self.preparation.adopt(role)
        yield from self.links.adopt(role)
        if self.source is None:
            self.membership.role = role
            yield from self.look(now)
