"""The window of one request: its guesses that are under way, in the order of their steps.

The first guess stands for the token that is awaited, the second for the one behind that. A guess that comes true leaves
the window; one that does not empties it, and the next step begins a branch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from partc.runtime.core.source.drafts import Draft, Drafts
from partc.runtime.core.source.guessing import SURE
from partc.runtime.core.step import MOST_GUESSED


@dataclass(frozen=True, slots=True)
class Guess:
    """A token that a step under way takes for the one to come."""

    token: int
    started: float
    """When the step began."""
    chance: float
    """How often this guess and all before it are right."""
    leads: bool
    """Whether it is the first token of its step."""


@dataclass(slots=True)
class Window:
    """The guesses of one request."""

    drafts: Drafts
    """The drafts of its tokens."""
    guesses: deque[Guess] = field(default_factory=deque)
    branch: int = 0
    """The step from which on the request was last taken back; 0: it never was, in the placement in force."""
    drafted: int = 0
    """Guesses that steps took."""
    accepted: int = 0
    """Those that were right."""
    is_sure: bool = True
    """Whether the token of the step that is awaited was known when it began."""
    awaited_tokens: int = 1
    """Tokens of the step whose token is awaited."""
    last_tokens: int = 1
    """Tokens of the step that began last."""
    _before: tuple[float, float] = (0.0, 0.0)
    """When the step before it began, and when the token of that came."""

    @property
    def room(self) -> int:
        """Guesses that may be under way besides."""
        return MOST_GUESSED - len(self.guesses)

    @property
    def steps(self) -> int:
        """Steps under way that begin with a guess."""
        return sum([guess.leads for guess in self.guesses])

    @property
    def chance(self) -> float:
        """How often all guesses that are under way are right."""
        return self.guesses[-1].chance if self.guesses else 1.0

    @property
    def counts_on(self) -> bool:
        """Whether the guess for the awaited token is as good as right, so that no true step will follow from it."""
        return bool(self.guesses) and self.guesses[0].chance >= SURE

    def draft(self, ends: Collection[int], behind: Sequence[int] = ()) -> Draft | None:
        """What the token behind the guesses may be, and behind more of them; none where it would end the answer."""
        draft = self.drafts.next([*[guess.token for guess in self.guesses], *behind])
        return None if draft is None or draft.token in ends else draft

    def add(self, guess: Guess) -> None:
        """A step that takes a guess begins."""
        self.guesses.append(guess)
        self.drafted += 1

    def apart(self, started: float, now: float) -> tuple[float, float]:
        """The token of the step has come that began then: how far it and the one before left apart, and arrived."""
        left_s, arrived_s = self._before
        self._before = started, now
        return started - left_s, now - arrived_s

    def has(self, token: int) -> bool:
        """Whether the step that takes a new token is under way."""
        return bool(self.guesses) and self.guesses[0].token == token

    def compare(self, token: int) -> Guess | None:
        """Hold a new token against the guess for it; that, if it was right. Else all guesses are void."""
        self.drafts.add(token)
        if not self.has(token):
            self.guesses.clear()
            return None
        self.is_sure = False
        self.accepted += 1
        guess = self.guesses.popleft()
        if guess.leads:
            self.awaited_tokens = 1 + sum(1 for _ in takewhile(lambda each: not each.leads, self.guesses))
        return guess

    def step_begins(self) -> None:
        """A step begins whose token is known, and which takes no other so far."""
        self.is_sure = True
        self.awaited_tokens = self.last_tokens = 1

    def empty(self) -> None:
        """Another placement is in force: nothing is under way, and no branch has begun."""
        self.guesses.clear()
        self.branch = 0
