"""When the source begins a step with a guessed token, while the true one is on its way.

A lone request leaves all devices but one idle. A *guess* is a step of one row as any other, so no call has another
shape and no token another bit; only its input is a draft. It is right, and the next token comes so much earlier, or the
source takes it back (`branch`). A guess leaves only where no true step is expected to wait for it:

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
from dataclasses import dataclass, field

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
_SLACK = 1.05
"""A stage takes so much longer than it computes: it receives and sends."""
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

    lap_s: float = 0.0
    """Seconds from the begin of a true step to its token, guesses beside it or not; 0: not known, as below."""
    calm_s: float = 0.0
    """The same of those without guesses."""
    loud_s: float = 0.0
    """And of those with."""
    gap_s: float = 0.0
    """Seconds from a token to the next one that was guessed."""
    hits: float = 0.0
    """Share of tokens for which a draft stood that was right, and would be sent."""
    reach: float = 1.0
    """Share of these whose guess was under way, while guesses left."""
    stage_s: float = 0.0
    """Seconds that the busiest device computes for a step; 0: not known."""
    link_s: float = 0.0
    """Seconds that the busiest link takes for one, where that has shown; 0: no longer than a device."""
    _guessed_at: float = float("-inf")
    """When the last guess left."""
    _steps: int = 0
    """True steps whose tokens have come."""
    _right: list[float] = field(default_factory=lambda: [p * _PRIOR_WEIGHT for p in _PRIOR])
    _all: list[float] = field(default_factory=lambda: [_PRIOR_WEIGHT] * len(LENGTHS))

    # -- what it learns

    def guessed(self, now: float) -> None:
        """A guess leaves."""
        self._guessed_at = now

    def came(self, began_s: float, now: float, busy_s: float | None, *, is_sure: bool) -> None:
        """The token of a step has come; whether its own was known, and how long the busiest device computed."""
        if is_sure:
            lap_s = now - began_s
            if self._guessed_at >= began_s - self.lap_s:
                self.loud_s = _mean(self.loud_s, lap_s)
            else:
                self.calm_s = _mean(self.calm_s, lap_s)
            self.lap_s = _mean(self.lap_s, lap_s)
            self._steps += 1
        if busy_s is not None:
            self.stage_s = _mean(self.stage_s, busy_s)
        self.link_s *= _KEPT

    def apart(self, left_s: float, arrived_s: float) -> None:
        """A step of a guess that was right, and the one before: how far apart they left, and arrived, seconds."""
        self.gap_s = _mean(self.gap_s, arrived_s)
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

    def forget_times(self) -> None:
        """Another placement is in force: its laps are others."""
        self.lap_s = self.calm_s = self.loud_s = self.gap_s = self.stage_s = self.link_s = 0.0

    # -- what follows

    @property
    def most(self) -> int:
        """Steps that the ring has room for; 1: nothing is guessed."""
        slowest_s = self.slowest_s
        return max(1, min(1 + MOST_GUESSED, math.ceil(self.lap_s / slowest_s))) if slowest_s else 1

    @property
    def slowest_s(self) -> float:
        """Seconds of the slowest stage."""
        return max(self.stage_s, self.link_s)

    def has_time(self, began_s: float, now: float) -> bool:
        """Whether the slowest stage is done with a guess before the token of a step is expected that began then."""
        return now + _NEARLY * self.slowest_s <= began_s + self.lap_s

    @property
    def goes(self) -> bool:
        """Whether guesses leave now: they pay, or it is tried whether they do."""
        is_tried = self._steps % _PERIOD < _TRIED
        return self.pays != is_tried

    @property
    def pays(self) -> bool:
        """Whether tokens come sooner with guesses, as far as is known."""
        if not (self.calm_s and self.loud_s and self.gap_s):
            return True
        share = self.hits * self.reach
        return (1.0 - share) * self.loud_s + share * self.gap_s < _WORTH * self.calm_s

    @property
    def pace_s(self) -> float:
        """Seconds between a step and a guess behind it, so that the slowest stage is not kept from true ones."""
        return max(_SLACK * self.stage_s, self.link_s)

    def chance(self, draft: Draft) -> float:
        """How often drafts of this kind are right."""
        return self._right[draft.length] / self._all[draft.length]


def _mean(before: float, value: float) -> float:
    """The mean with another value; one that is far off, since a device was away, counts for little."""
    return before + _NEW * (min(value, _FAR * before) - before) if before else value
