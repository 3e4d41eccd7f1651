"""Rows of states on their way from one device to another, while the ring runs.

The device that will run a sub-module asks the one that runs it now (`want`), part after part, and gets `rows`. So there
is never more than one part of a sub-module on its way, a part that is lost is one that nobody answers, and the owner
keeps nothing in mind but the questions for steps that are not over yet. Rows count from step to step without a gap; the
watermark (`have`) rises when the last part of some steps is here. It is forgotten when the slot begins anew.

DéjàVu and Llumnix stream rows in the same way, from a sender that decides; here the receiver does, which may be the one
that has restarted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partc.format.messages import Prepare, Rows
from partc.format.role import Role
from partc.runtime.core.actions import Action
from partc.runtime.core.device.copies import Copies
from partc.runtime.core.device.fetches import Fetches
from partc.runtime.core.device.offers import Offers
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.rows import checked
from partc.runtime.core.links.links import Links


class Transfer:
    """The rows that this device fetches, those that others fetch from it, and the copies that it keeps."""

    def __init__(self, role: Role, requests: Requests, links: Links, patience_s: float) -> None:
        """Nothing is on its way.

        Args:
            role: of this device.
            requests: the requests that are open here.
            links: the ways to other devices.
            patience_s: the time without an answer after which rows count as lost, seconds.
        """
        self.role = role
        self.copies = Copies(role)
        self.fetches = Fetches(role, requests, links, self.copies, patience_s)
        self.offers = Offers(role, requests, links)

    def adopt(self, role: Role) -> None:
        """Another placement is in force."""
        self.role = self.fetches.role = role
        self.copies.adopt(role)
        self.offers.adopt(role)
        self.end()

    def close(self, request: int) -> None:
        """A request is over."""
        self.copies.close(request)
        self.fetches.close(request)
        self.offers.close(request)

    def begin(self, role: Role, message: Prepare, now: float) -> Iterator[Action]:
        """Fetch what a device needs for its next role, or the steps that have come since."""
        self.offers.begin(message.epoch)
        return self.fetches.begin(role, message, now)

    def end(self) -> None:
        """The change has come into force, or will not be."""
        self.fetches.forget()
        self.offers.end()

    def came(self, peer: str, rows: Rows, frames: Sequence[memoryview], now: float) -> Iterator[Action]:
        """Take a part, of a copy or of what was asked for; others are ignored.

        Raises:
            RunError: it does not fit the state.
        """
        if rows.epoch == self.role.epoch and rows.parts:
            self.copies.take(peer, rows, checked(rows, frames, self.role))
        else:
            yield from self.fetches.came(peer, rows, frames, now)
