"""Stop texts: an answer ends before the first of them, wherever its tokens cut it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class StopSearch:
    """Text up to the first of some stop texts.

    What may be the beginning of one is held back. Time is linear in the text times the number of stop texts.
    """

    stops: Sequence[str]
    is_found: bool = False
    _held: str = ""

    def push(self, piece: str) -> str:
        """Take more text; what is certain now."""
        text = self._held + piece
        places = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if places:
            self.is_found, self._held = True, ""
            return text[: min(places)]
        kept = max((_overlap(text, stop) for stop in self.stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def finish(self) -> str:
        """The text that was held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` with which `stop` begins, at most all but one of it."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
