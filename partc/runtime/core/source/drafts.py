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

_MOST = 8192
"""Tokens of a prompt, and of what an answer may look like, that are read: 25 ms in all."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A token that may come next."""

    token: int
    length: int
    """Index into `LENGTHS`."""


@dataclass(slots=True)
class Drafts:
    """The drafts of one request.

    Of a long text only `_MOST` tokens count, and nothing is read before it is needed: requests may wait for long.
    """

    _prompt: Sequence[int]
    _expected: Sequence[int]
    """Tokens that the answer may look like."""
    _unread: list[int] = field(default_factory=list)
    """Tokens of the answer that came before the first draft was asked for."""
    _text: list[int] = field(default_factory=list)
    """All tokens that a draft may be taken from."""
    _tail: list[int] = field(default_factory=list)
    """The last tokens of prompt and answer."""
    _behind: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Some tokens → where the one stands that came behind their latest occurrence."""
    _is_read: bool = False

    def add(self, token: int) -> None:
        """A token of the answer is known; O(1)."""
        if self._is_read:
            self._learn(token)
        else:
            self._unread.append(token)

    def next(self, guesses: Sequence[int]) -> Draft | None:
        """The draft of the token behind these guesses; None: there is none. O(1), the first time O(tokens)."""
        if not self._is_read:
            self._read()
        tail = [*self._tail, *guesses]
        for index, length in enumerate(LENGTHS):
            found = self._behind.get(tuple(tail[-length:])) if length <= len(tail) else None
            if found is not None:
                return Draft(self._text[found], index)
        return None

    # -- inner workings

    def _read(self) -> None:
        prompt, expected = self._prompt[-_MOST:], self._expected[:_MOST]
        for token in (*prompt, *expected):
            self._learn(token)
        self._tail = list(prompt[-LENGTHS[0] :])
        for token in self._unread:
            self._learn(token)
        self._is_read = True
        self._prompt, self._expected, self._unread = (), (), []

    def _learn(self, token: int) -> None:
        tail = self._tail
        for length in LENGTHS:
            if length <= len(tail):
                self._behind[tuple(tail[-length:])] = len(self._text)
        self._text.append(token)
        tail.append(token)
        if len(tail) > LENGTHS[0]:
            del tail[0]
