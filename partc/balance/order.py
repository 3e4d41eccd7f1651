"""Orders: placements that the source of a ring is to be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from partc.format.placement import Placement
from partc.format.status import RingStatus


@dataclass(frozen=True)
class Order:
    """A placement that the source is to be asked for."""

    placement: Placement
    text: str
    """Its reason and gain, in one line."""


class Decider(Protocol):
    """Decides on the placements of one ring; whoever has the build folder asks for them.

    One order is out at a time: after an order `placed` or `refused` is told before the next one comes.
    """

    def on_status(self, ring: RingStatus, now: float) -> Order | None:
        """Take a state of the ring; `now` is in seconds on one clock."""

    def placed(self, seconds: float, now: float) -> None:
        """The last order is in force, after so many seconds."""

    def refused(self, reason: str, now: float) -> None:
        """The last order will not be in force."""
