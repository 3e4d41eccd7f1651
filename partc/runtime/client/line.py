"""The line that a request has to the source of a ring: what it needs of its client, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from partc.format.messages import Message


class Ending(Protocol):
    """Something that ends: a request, or a change of placement."""

    @property
    def done(self) -> bool:
        """Whether it has ended, well or badly."""


class Line(Protocol):
    """A connection to the source."""

    def tell(self, message: Message, frames: Sequence[memoryview] = ()) -> None:
        """Send a message to the source."""

    def wait(self, requests: Sequence[Ending], timeout_s: float | None = None) -> None:
        """Handle messages until these have ended, or the time is over."""
