"""Drafts of a request's next tokens: what stood behind the same tokens before (n-grams, prompt lookup decoding).

They are taken from its prompt, from what the client expects of the answer, and from the answer so far. The source alone
drafts. A draft is the token behind the latest occurrence of the longest ending of the text that has
occurred before; lengths are tried from `LENGTHS`. Nothing is known of a token of which no ending has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

LENGTHS = (17, 9, 5, 3, 2, 1)
"""Tokens of an ending that must be equal, the best first; the index of one says how much a draft can be trusted."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A token that may come next."""

    token: int
    length: int
    """Index into `LENGTHS`."""


@dataclass(slots=True)
class Drafts:
    """The drafts of one request."""

    _text: list[int] = field(default_factory=list)
    """All tokens that a draft may be taken from."""
    _tail: list[int] = field(default_factory=list)
    """The last tokens of prompt and answer."""
    _behind: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Some tokens → where the one stands that came behind their latest occurrence."""

    @classmethod
    def of(cls, prompt: Sequence[int], expected: Sequence[int]) -> Drafts:
        """Those of a request that has not begun to answer; O(tokens).

        Args:
            prompt: its tokens.
            expected: tokens that the answer may look like.
        """
        drafts = cls()
        for token in (*prompt, *expected):
            drafts.add(token)
        drafts._tail = list(prompt[-LENGTHS[0] :])
        return drafts

    def add(self, token: int) -> None:
        """A token is known; O(1)."""
        tail = self._tail
        for length in LENGTHS:
            if length <= len(tail):
                self._behind[tuple(tail[-length:])] = len(self._text)
        self._text.append(token)
        tail.append(token)
        if len(tail) > LENGTHS[0]:
            del tail[0]

    def next(self, guesses: Sequence[int]) -> Draft | None:
        """The draft of the token behind these guesses; None: there is none. O(1)."""
        tail = [*self._tail, *guesses]
        for index, length in enumerate(LENGTHS):
            found = self._behind.get(tuple(tail[-length:])) if length <= len(tail) else None
            if found is not None:
                return Draft(self._text[found], index)
        return None
