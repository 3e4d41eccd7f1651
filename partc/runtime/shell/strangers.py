"""Connections of strangers, as the log tells of them: the first at once, then all of a minute in one line."""

from __future__ import annotations

import math
from dataclasses import dataclass

from partc.format.logs import STRANGERS_EVERY_S


@dataclass(slots=True)
class Strangers:
    """Count of the connections that the log has told of."""

    _told: int = 0
    _told_at: float = -math.inf

    def due_s(self, count: int, now: float) -> float | None:
        """Seconds until more of them are to be told of; None: none are left to tell of."""
        return None if count == self._told else max(0.0, self._told_at + STRANGERS_EVERY_S - now)

    def to_tell(self, count: int, now: float) -> int:
        """How many are to be told now, of so many in all; 0: none, or not yet."""
        new = count - self._told
        if not new or now - self._told_at < STRANGERS_EVERY_S:
            return 0
        self._told, self._told_at = count, now
        return new
