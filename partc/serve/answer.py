"""The text of one answer, token by token, until a stop text, an end token or the last token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from partc.runtime.client.text import TextStream

Finish = Literal["stop", "length"]


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


@dataclass(slots=True)
class Answer:
    """One choice of a request."""

    stream: TextStream
    search: StopSearch
    ends: frozenset[int]
    """Tokens that end it and are no text."""
    tokens: int = 0
    """Tokens so far, an end token included."""
    text: list[str] = field(default_factory=list)
    """Pieces so far."""
    finish: Finish | None = None

    def push(self, token: int) -> str:
        """Take a token; the text that is certain now. Tokens after the end are none of it."""
        if self.finish is not None:
            return ""
        self.tokens += 1
        return self._add("" if token in self.ends else self.stream.push(token))

    def end(self, finish: Finish) -> str:
        """The ring has ended; the text that was held back."""
        if self.finish is not None:
            return ""
        piece = self._add(self.stream.finish())
        if self.finish is None:
            self.finish = finish
            rest = self.search.finish()
            self.text.append(rest)
            piece += rest
        return piece

    def _add(self, piece: str) -> str:
        piece = self.search.push(piece)
        self.text.append(piece)
        if self.search.is_found:
            self.finish = "stop"
        return piece


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` with which `stop` begins, at most all but one of it."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
