"""Times of what is done again and again, while somebody watches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from partc.format.status import WINDOW_STEPS, Steps, Work

Key = tuple[str, str]
"""A name and a phase."""


@dataclass(slots=True)
class Meter:
    """Medians of the last times of things that are done again and again."""

    _counts: dict[Key, int] = field(default_factory=dict)
    _last: dict[Key, deque[float]] = field(default_factory=dict)

    def took(self, name: str, phase: str, seconds: float) -> None:
        """Something took so long."""
        key = name, phase
        self._counts[key] = self._counts.get(key, 0) + 1
        self._last.setdefault(key, deque(maxlen=WINDOW_STEPS)).append(seconds)

    def work(self) -> tuple[Work, ...]:
        """All things, as sub-modules."""
        return tuple(
            Work(name, phase, self._counts[name, phase], median(last))
            for (name, phase), last in self._last.items()
        )

    def steps(self) -> tuple[Steps, ...]:
        """All things, as steps, which need no name."""
        return tuple(Steps(work.phase, work.runs, work.seconds) for work in self.work())
