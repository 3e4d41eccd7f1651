"""Messages between clients and a device that measures."""

from __future__ import annotations

from partc.format.fields import Count, Ticket
from partc.format.messages.base import Message


class Measure(Message, frozen=True, kw_only=True):
    """A sub-module shall be timed, alone."""

    ticket: Ticket
    submodule: str
    """Its name."""
    dims: dict[str, Count]
    """Size of every symbol."""
    position: tuple[Count, ...]
    """Valid tokens in the cache of each sequence."""
    length: tuple[Count, ...]
    """Valid new tokens of each sequence."""
    sample: str
    """Name of the logits if sampling is part of the time; else empty."""
    repeats: Count
    """Times to compute it."""
    touch_bytes: Count
    """Other memory to read before each repeat."""


class Measured(Message, frozen=True, kw_only=True):
    """Seconds of `measure`."""

    ticket: Ticket
    load_s: float
    """Seconds to load the sub-module."""
    reset_s: float
    """Seconds to reset its states."""
    seconds: tuple[float, ...]
    """Seconds of each repeat."""
    delays: tuple[float, ...]
    """Seconds of each repeat in which threads of the process waited for a core."""


class Join(Message, frozen=True, kw_only=True):
    """The device shall be one of a ring of one or two."""

    ticket: Ticket
    ring: tuple[str, ...]
    """Its devices, the source first."""
    peers: dict[str, str]
    """Addresses of the ring's devices."""


class Joined(Message, frozen=True, kw_only=True):
    """The device joins."""

    ticket: Ticket
