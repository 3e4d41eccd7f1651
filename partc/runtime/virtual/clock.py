"""Virtual time: what happens next, and when."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    """Things to do, by time; those of one time in the order in which they were asked for."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        """Seconds."""
        self.turns = 0
        """Things that have been done."""
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0

    @property
    def next_s(self) -> float | None:
        """The time of the next thing to do; None: there is none."""
        return self._todo[0][0] if self._todo else None

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Do something at a time, or now if that has passed."""
        self._made += 1
        heapq.heappush(self._todo, (max(time_s, self.now), self._made, act))

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something after a while."""
        self.at(self.now + seconds, act)

    def turn(self) -> None:
        """Go on to the next thing, and do it."""
        self.now, _, act = heapq.heappop(self._todo)
        self.turns += 1
        act()
