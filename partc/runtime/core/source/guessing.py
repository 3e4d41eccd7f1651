"""When the source lets steps take guessed tokens: behind the token of a step, or while the true one is on its way.

A step reads all weights for one token, and a few more cost little beside that; and a lone request leaves all devices
but one idle. A *guess* is a row as any other: several of one step are computed as those of several requests are, one
after the other where they see each other's keys, so no token has another bit; only its input is a draft. It is right,
and the next token comes so much earlier, or the source takes it back (`branch`).

A step takes so many guesses behind its own token that most tokens come true in a time (`tokens`): by the chances of the
drafts, and by what steps of so many tokens take (the build says what to expect, the ring what is so).

A step of its own begins with a guess only where no true step is expected to wait for it:

1. fewer steps are under way, of all requests, than the ring has room for: its lap divided by its slowest stage;
2. the slowest stage has had time for the step before, and will have time for this one until a token is expected, so
   that it keeps no true step waiting; none is to come where the guess for that token is as good as right (`SURE`);
3. the draft and the guesses before it are right often enough (`LEAST_CHANCE`), as drafts of their kinds have been
   lately. Every token counts, also where its draft was not sent: so it shows when what has failed succeeds again.
4. guessing pays: devices that share a processor, or spend more on a message than on computing, make true steps slower
   by what they do for guesses. So laps with and without guesses are told apart, and compared with what drafts would
   have had right; now and then the other way is tried, for `_TRIED` steps of `_PERIOD`.

Time per token is (1 - g) · lap + g · slowest stage, where g is the share of tokens that were guessed. PipeInfer
(asynchronous single-token runs) is the nearest published design; it draws drafts from a second model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from partc.runtime.core.source.drafts import LENGTHS, Draft
from partc.runtime.core.step import MOST_GUESSED

LEAST_CHANCE = 0.1
"""No guess is sent that is right less often."""
SURE = 0.8
"""A guess that is right as often is counted on."""
_PRIOR = (0.85, 0.75, 0.6, 0.45, 0.3, 0.15)
"""Chance that a draft is right, for each of `LENGTHS`, before anything is known (measured on texts of six kinds)."""
_PRIOR_WEIGHT = 6.0
"""Tokens that the prior counts for."""
_KEPT = 0.98
"""The part of a count that remains when another token comes."""
_NEARLY = 0.9
"""A true step may wait for a guess as long as the rest of a stage: laps differ by as much."""
SLACK = 1.05
"""A stage takes so much longer than it computes: it receives and sends."""
LEAST_ROOM = SLACK + _NEARLY
"""A step begins with a guess in rings whose lap is so many times their slowest stage: with less, it would be in the way
of the true step behind the one that it follows."""
_FORGOTTEN = 0.001
"""The part of a price that is forgotten with each step that does not show it."""
_LEAST_S = 1e-9
"""Nothing takes less time, whatever devices tell."""
_NEW = 0.1
"""Weight of the last value in a mean."""
_FAR = 3.0
"""Values that are so many times the mean count as that."""
_QUEUED = 1.5
"""Steps that arrive so much further apart than they left have waited for each other: a link is the slowest stage."""

_WORTH = 0.98
"""Guessing pays where tokens take no more than this share of the time without."""
_PERIOD, _TRIED = 128, 2
"""Of so many true steps so many go the other way: guesses of the one before are on their way beside the first."""


@dataclass(slots=True)
class Guessing:
    """The source's knowledge of its ring and of its drafts."""

    costs: Sequence[tuple[int, int]] = ()
    """Tokens that a step may take, and thousandths of a step of one that it costs, as the build has it."""
    stages: int = 1
    """Devices of the ring."""
    lap_s: float = 0.0
    """Seconds from the begin of a true step of one token to that, guesses beside it or not; 0: not known, as below."""
    calm_s: float = 0.0
    """The same of those without guesses."""
    loud_s: float = 0.0
    """And of those with."""
    gap_s: float | None = None
    """Seconds from a token to the next one that was guessed; nearly none where one step took both."""
    hits: float = 0.0
    """Share of tokens for which a draft stood that was right, and would be sent."""
    reach: float = 1.0
    """Share of these whose guess was under way, while guesses left."""
    stage_s: float = 0.0
    """Seconds that the busiest device computes for a step of one token; 0: not known."""
    prices: dict[int, float] = field(init=False)
    """Tokens of a step → its time by that of one, on the busiest device."""
    _expected: dict[int, float] = field(init=False)
    """The same, as the build has it."""
    link_s: float = 0.0
    """Seconds that the busiest link takes for one, where that has shown; 0: no longer than a device."""
    _guessed_at: float = float("-inf")
    """When the last guess left."""
    _seen: dict[int, int] = field(default_factory=dict)
    """Tokens of a step → how often its price has shown."""
    _steps: int = 0
    """True steps whose tokens have come."""
    _right: list[float] = field(default_factory=lambda: [p * _PRIOR_WEIGHT for p in _PRIOR])
    _all: list[float] = field(default_factory=lambda: [_PRIOR_WEIGHT] * len(LENGTHS))

    def __post_init__(self) -> None:
        self._expected = {1: 1.0, **{tokens: cost / 1000 for tokens, cost in self.costs}}
        self.prices = dict(self._expected)

    # -- what it learns

    def guessed(self, now: float) -> None:
        """A guess leaves."""
        self._guessed_at = now

    def came(self, began_s: float, now: float, tokens: int) -> None:
        """The first token of a true step has come, which took so many."""
        lap_s = now - began_s
        if self._guessed_at >= began_s - self.lap_s:
            self.loud_s = _mean(self.loud_s, lap_s)
        else:
            self.calm_s = _mean(self.calm_s, lap_s)
        if tokens == 1:
            self.lap_s = _mean(self.lap_s, lap_s)
        self._steps += 1

    def timed(self, tokens: int, busy_s: float) -> None:
        """A step of so many tokens is over, for which the busiest device computed so long.

        What has not been measured lately becomes again what is expected of it: so it is tried again.
        """
        self.link_s *= _KEPT
        busy_s = max(busy_s, _LEAST_S)
        if tokens == 1:
            self.stage_s = _mean(self.stage_s, busy_s)
        elif self.stage_s and tokens in self.prices:
            self._priced(tokens, busy_s / self.stage_s)
        for other, expected in self._expected.items():
            if other != tokens:
                self.prices[other] += _FORGOTTEN * (expected - self.prices[other])

    def apart(self, left_s: float, arrived_s: float) -> None:
        """The step of a guess that was right, and the one before: how far apart they left, and arrived, seconds."""
        gap_s = min(arrived_s, _FAR * self.lap_s)
        self.gap_s = gap_s if self.gap_s is None else self.gap_s + _NEW * (gap_s - self.gap_s)
        if arrived_s > _QUEUED * left_s:
            self.link_s = _mean(self.link_s, arrived_s)

    def scored(self, draft: Draft | None, token: int, now: float, *, is_guessed: bool) -> None:
        """The token has come for which a draft stood, whether that was sent or not; None: there was none.

        `is_guessed`: the step that takes it is under way.
        """
        is_hit = draft is not None and draft.token == token and self.chance(draft) >= LEAST_CHANCE
        self.hits += _NEW * (is_hit - self.hits)
        if is_hit and self._guessed_at >= now - self.lap_s:
            self.reach += _NEW * (is_guessed - self.reach)
        if draft is not None:
            at = draft.length
            self._right[at] = self._right[at] * _KEPT + (draft.token == token)
            self._all[at] = self._all[at] * _KEPT + 1.0

    def forget_times(self, stages: int) -> None:
        """Another placement is in force, of so many devices: its laps are others."""
        self.stages, self.gap_s = stages, None
        self.lap_s = self.calm_s = self.loud_s = self.stage_s = self.link_s = 0.0
        self.prices = dict(self._expected)
        self._seen.clear()

    # -- what follows

    @property
    def most(self) -> int:
        """Steps that the ring has room for; 1: none begins with a guess. A device alone has no time to fill."""
        slowest_s = self.slowest_of(1)
        if self.stages < 2 or not slowest_s:
            return 1
        return max(1, math.ceil(min(1 + MOST_GUESSED, self.lap_s / slowest_s)))

    @property
    def most_further(self) -> int:
        """Guesses that a step may take behind its own token; none before a lap is known."""
        return max(self.prices) - 1 if self.lap_s else 0

    def tokens(self, chances: Sequence[float], time_s: float = math.inf) -> int:
        """Tokens that a step takes, so that most come true in a time; one unless more are worth it.

        Args:
            chances: how often the guess behind its own token is right, that and the next one, and so on.
            time_s: as long the slowest stage may take for it, seconds.
        """
        rate = partial(self._rate, chances)
        sizes = [size for size in self.prices if size <= 1 + len(chances)]
        best = max([1, *(size for size in sizes if _NEARLY * self.slowest_of(size) <= time_s)], key=rate)
        return best if rate(1) < _WORTH * rate(best) else 1

    def lap_of(self, tokens: int) -> float:
        """Seconds of the lap of a step that takes so many tokens: all devices compute longer, and links send more."""
        busy_s = min(self.lap_s, self.stages * self.stage_s)
        more_s = (self.prices.get(tokens, 1.0) - 1.0) * busy_s + (tokens - 1) * self.link_s
        return max(_LEAST_S, self.lap_s + more_s)

    def slowest_of(self, tokens: int) -> float:
        """Seconds of the slowest stage in a step of so many tokens."""
        return max(self.stage_s * self.prices.get(tokens, 1.0), tokens * self.link_s)

    def has_time(self, expected: float, now: float) -> bool:
        """Whether the slowest stage is done with a guess before a token is expected."""
        return now + _NEARLY * self.slowest_of(1) <= expected

    def pace_of(self, tokens: int) -> float:
        """Seconds between a step of so many tokens and a guess, which keeps no true step from the slowest stage."""
        return max(SLACK * self.stage_s * self.prices.get(tokens, 1.0), tokens * self.link_s)

    @property
    def goes(self) -> bool:
        """Whether guesses leave now: they pay, or it is tried whether they do."""
        is_tried = self._steps % _PERIOD < _TRIED
        return self.pays != is_tried

    @property
    def pays(self) -> bool:
        """Whether tokens come sooner with guesses, as far as is known."""
        if not (self.calm_s and self.loud_s) or self.gap_s is None:
            return True
        share = self.hits * self.reach
        return (1.0 - share) * self.loud_s + share * self.gap_s < _WORTH * self.calm_s

    def chance(self, draft: Draft) -> float:
        """How often drafts of this kind are right."""
        return self._right[draft.length] / self._all[draft.length]

    # -- inner workings

    def _priced(self, tokens: int, price: float) -> None:
        """A step of so many tokens has shown its price; what is not known yet of others follows it."""
        seen = self._seen.get(tokens, 0)
        self._seen[tokens] = seen + 1
        weight = max(_NEW, 1.0 / (2.0 + seen))
        self.prices[tokens] += weight * (min(price, _FAR * tokens) - self.prices[tokens])
        extra = self._expected[tokens] - 1.0
        for other, expected in self._expected.items():
            if other > 1 and other not in self._seen and extra > 0.0:
                follows = 1.0 + (expected - 1.0) * max(0.0, self.prices[tokens] - 1.0) / extra
                self.prices[other] = min(follows, float(other))

    def _rate(self, chances: Sequence[float], tokens: int) -> float:
        """Tokens that come true in a second where steps take so many: those under way at once come in one lap."""
        taken = min(tokens * self.most, 1 + len(chances))
        return (1.0 + sum(chances[: taken - 1])) / self.lap_of(tokens)


def _mean(before: float, value: float) -> float:
    """The mean with another value; one that is far off, since a device was away, counts for little."""
    return before + _NEW * (min(value, _FAR * before) - before) if before else value
