"""Pauses between moves: none follows the last one too soon, and nothing returns soon to where it was."""

from __future__ import annotations

from partc.format.placement import Stages
from partc.planner.model.stages import devices_of

COOL_DOWN_S = 30.0
COOL_DOWN_COSTS = 20
"""Costs of a move that a cool-down lasts, where that is longer."""
RETURN_COOL_DOWNS = 10
"""Cool-downs before a sub-module returns to a device that it left; twice as many with every such move."""
CALM = 4
"""After so many times that pause without a move it is as short as at first."""


class Pauses:
    """The pauses of one ring; a load that comes and goes makes them longer."""

    def __init__(self, cost_s: float) -> None:
        """`cost_s`: the cost of a move in seconds."""
        self.cost_s = cost_s
        self._return_cool_downs = RETURN_COOL_DOWNS
        self._left: dict[tuple[int, str], float] = {}
        """Sub-module, device → when it left that device."""
        self._moved_at = self._refused_at = float("-inf")

    @property
    def cool_down_s(self) -> float:
        """Seconds between two moves."""
        return max(COOL_DOWN_S, COOL_DOWN_COSTS * self.cost_s)

    @property
    def return_s(self) -> float:
        """Seconds before a sub-module returns to a device that it left."""
        return self._return_cool_downs * self.cool_down_s

    def moved(self, before: Stages, after: Stages, now: float) -> None:
        """A move is done."""
        if now - self._moved_at > CALM * self.return_s:
            self._return_cool_downs = RETURN_COOL_DOWNS
        if any(key in self._left for key in _arrivals(before, after)):
            self._return_cool_downs *= 2
        self._left |= dict.fromkeys(_arrivals(after, before), now)
        self._moved_at = now

    def refused(self, now: float) -> None:
        """A move was refused."""
        self._refused_at = now

    def after_refusal_s(self, now: float) -> float:
        """Seconds until any move may be asked for; not above 0: now."""
        return self._refused_at + self.cool_down_s - now

    def wait_s(self, stages: Stages, after: Stages, now: float) -> float:
        """Seconds until a move for a gain may be asked for; not above 0: now."""
        left = max(
            (self._left.get(key, float("-inf")) for key in _arrivals(stages, after)), default=float("-inf")
        )
        due = max(self._moved_at + self.cool_down_s, left + self.return_s)
        return max(due - now, self.after_refusal_s(now))


def _arrivals(before: Stages, after: Stages) -> list[tuple[int, str]]:
    """Sub-module and its new device, for those that have another one."""
    pairs = zip(devices_of(before), devices_of(after), strict=True)
    return [(place, there) for place, (here, there) in enumerate(pairs) if here != there]
