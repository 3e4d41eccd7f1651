"""The text of one answer, token by token, until a stop text, an end token or the last token."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from partc.format.message_parts import Likely
from partc.runtime.client.stop_search import StopSearch
from partc.runtime.client.text import TextStream

Finish = Literal["stop", "length"]


@dataclass(slots=True)
class Told:
    """A token of an answer with its probability, and the tokens that were most likely in its place."""

    text: str
    """The text that it adds; the texts of all tokens are the answer's."""
    logprob: float
    alternatives: list[tuple[str, float]]
    is_whole: bool = True
    """Whether its text is its own: a character may lie in several tokens, of which the last one has the text."""
    begin: int = 0
    """Characters of the answer before it."""
    end: int = 0
    """Characters of the answer up to its end; one more than there are where its text is not known yet."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is certain now, and the tokens that have become certain with it."""

    text: str
    told: Sequence[Told]


@dataclass(slots=True)
class Answer:
    """One choice of a request."""

    stream: TextStream
    search: StopSearch
    ends: frozenset[int]
    """Tokens that end it and are no text."""
    alternatives: int | None = None
    """Likely tokens beside each, with the probabilities of all; None: none."""
    tokens: int = 0
    """Tokens so far, an end token included."""
    text: list[str] = field(default_factory=list)
    """Pieces so far."""
    reused: int = 0
    """Tokens of its prompt whose rows were there already."""
    guessed: tuple[int, int] | None = None
    """Guessed tokens that were right, and wrong; None: nobody predicted the answer. How many depends on the moment."""
    finish: Finish | None = None
    probabilities: list[Told] = field(default_factory=list)
    """Those that were told."""
    _waiting: deque[Told] = field(default_factory=deque)
    """Tokens whose text is not certain."""
    _pushed: int = 0
    """Characters of all tokens so far."""

    def push(self, token: int, likely: Sequence[Likely] = ()) -> str:
        """Take a token; the text that is certain now. Tokens after the end are none of it."""
        if self.finish is not None:
            return ""
        self.tokens += 1
        if token in self.ends:
            return self._add("")
        told, before = self._read(likely), self.stream.is_partial
        piece = self.stream.push(token)
        if told is not None:
            told.begin = self._pushed
        self._pushed += len(piece)
        if told is not None:
            told.is_whole = not (before or self.stream.is_partial)
            self._wait(told, piece)
        return self._add(piece)

    def told(self) -> list[Told]:
        """The tokens whose text has become certain since the last call; those of a stop text are never told."""
        certain = sum(map(len, self.text))
        found = []
        while self._waiting and self._waiting[0].end <= certain:
            found.append(self._waiting.popleft())
        self.probabilities += found
        return found

    def end(self, finish: Finish) -> str:
        """The ring has ended; the text that was held back."""
        if self.finish is not None:
            return ""
        rest = self.stream.finish()
        self._pushed += len(rest)
        if self._waiting and not self._waiting[-1].text:
            self._wait(self._waiting.pop(), rest)
        for told in self._waiting:
            told.end = min(told.end, self._pushed)
        piece = self._add(rest)
        if self.finish is None:
            self.finish = finish
            rest = self.search.finish()
            self.text.append(rest)
            piece += rest
        return piece

    def _read(self, likely: Sequence[Likely]) -> Told | None:
        """The probabilities that came with a token, before its text is known."""
        if self.alternatives is None or not likely:
            return None
        others = [(self.stream.text_of(each.token), _finite(each.logprob)) for each in likely[1:]]
        return Told("", _finite(likely[0].logprob), others)

    def _wait(self, told: Told, piece: str) -> None:
        """Keep a token until its text is certain; one without text until the text of the next one is."""
        told.text = piece
        told.end = self._pushed if piece else self._pushed + 1
        self._waiting.append(told)

    def _add(self, piece: str) -> str:
        piece = self.search.push(piece)
        self.text.append(piece)
        if self.search.is_found:
            self.finish = "stop"
        return piece


def _finite(logprob: float) -> float:
    """JSON has no infinity: what cannot be is as unlikely as OpenAI's API says it."""
    return max(logprob, -9999.0)
