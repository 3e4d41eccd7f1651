"""The time of a token where some are guessed, of one request that has the ring for itself.

With g the share of tokens that come true from a guess, L the lap (from a token to the next), S the time for which a
step occupies the busiest device or link, and f(k) the time of a step of k tokens by that of one:

| devices | guesses | time per token |
|---|---|---|
| several | begin steps of one token, ahead of the true one | (1 - g) · L + g · max(1.05 · S, L / W) |
| one | are rows beside the token of a step | (1 - g) · L + g · L · (f(k) - 1) / (k - 1), no less than L · f(k) / k |

The source leaves a twentieth more than S between two steps (`SLACK`). W steps are under way, as many as there is time
for and no more than `MOST_AHEAD`; where L is less than `LEAST_ROOM` times S, as in a ring of two of which one takes
nearly all, there is time for none, and a token takes a lap. A row beside others costs what a further row does; of k
rows one takes a true token, so that no more than (k - 1) / k of the tokens are guessed.
Guesses that are wrong cost nothing here: ahead they fill what is idle, and beside they are few, since the source
guesses no more than is worth it. In a ring steps may have guesses beside their tokens, too, where rows are cheap
(`partc/runtime/core/source/guessing.py`): then copies come sooner than is said here, and nothing else does.

g = 0 is EdgeShard's latency (Eq. 4 to 6); ahead, g = 1 is its time without bubbles (Eq. 10), that of a full pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from partc.format.plan import Timeline
from partc.planner.model.problem import Problem
from partc.runtime.core.source.guessing import LEAST_ROOM, SLACK
from partc.runtime.core.step import MOST_GUESSED

SHARES = (0.1, 0.3, 1.0)
"""Shares of tokens for which a plan says its time: ordinary text, structured text, copies."""
MOST_AHEAD = 1 + MOST_GUESSED
"""Steps that may be under way at once."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a ring that one request has for itself, in steps of one token, seconds."""

    lap_s: float
    """From a token to the next."""
    slowest_s: float
    """The time for which a step occupies the busiest device or link."""

    def token_s(self, share: float) -> float:
        """Seconds of a token where such a share is guessed right, ahead."""
        return (1.0 - share) * self.lap_s + share * self.guessed_s if self.has_room else self.lap_s

    @property
    def has_room(self) -> bool:
        """Whether there is time for a guess."""
        return self.lap_s >= LEAST_ROOM * self.slowest_s

    @property
    def guessed_s(self) -> float:
        """Seconds of a token that comes true from a guess ahead of it: W is the lap by this."""
        return max(SLACK * self.slowest_s, self.lap_s / MOST_AHEAD)


def pace_of(problem: Problem, decode: Timeline) -> Pace:
    """The pace of a step of decode."""
    return Pace(decode.latency_s, busiest_s(problem, decode))


def busiest_s(problem: Problem, decode: Timeline) -> float:
    """Seconds for which a step occupies the busiest device or link.

    A link is busy while it sends: the latency that follows keeps nobody from sending the next message.
    """
    busy: dict[str, float] = defaultdict(float)
    for run in decode.stages:
        busy[run.device] += run.seconds
    for message in decode.messages:
        link = problem.link_of[message.sender, message.receiver]
        busy[f"{message.sender}->{message.receiver}"] += message.bytes / link.bandwidth_bytes_per_s
    return max(busy.values(), default=0.0)


def drafted_token_s(problem: Problem, decode: Timeline, share: float) -> float:
    """Seconds of a token where such a share is guessed right, in a plan whose step of decode is that."""
    pace = pace_of(problem, decode)
    if problem.drafts is None or len({run.device for run in decode.stages}) > 1:
        return pace.token_s(share)
    return pace.lap_s * min([1.0, *(beside(share, *each) for each in problem.drafts.step_tokens)])


def beside(share: float, tokens: int, cost: float) -> float:
    """The time of a token by that without guesses, where steps may have so many rows at this cost."""
    guessed = min(share, 1.0 - 1.0 / tokens)
    return 1.0 - guessed + guessed * (cost - 1.0) / (tokens - 1)
