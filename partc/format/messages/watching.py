"""Messages of those who watch a ring."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from partc.format.fields import Ticket
from partc.format.messages.base import Message
from partc.format.status import RingStatus, Vitals

LONGEST_PERIOD_S = 86400
"""The longest time between two statuses, a day."""


class Watch(Message, frozen=True, kw_only=True):
    """The client wants to be told how the ring is, by `status`."""

    ticket: Ticket
    period_s: Annotated[float, Meta(ge=0, le=LONGEST_PERIOD_S)]
    """Seconds from one status to the next, 0.1 at least; 0: no more."""


class Sense(Message, frozen=True, kw_only=True):
    """Asks for a `sensed` report; the device keeps the times of its sub-modules from now on."""

    ends: bool = False
    """Nobody watches any more: neither is wanted."""


class Sensed(Message, frozen=True, kw_only=True):
    """Report of a device."""

    vitals: Vitals
    """Its sensors, the times of its sub-modules, its requests and links."""


class Status(Message, frozen=True, kw_only=True):
    """State of the ring."""

    ticket: Ticket
    ring: RingStatus
    """All devices, requests, and the last changes."""
