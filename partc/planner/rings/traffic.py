"""Requests that come at random, dealt out to rings and followed through them.

Requests of a wish come as a Poisson process of its rate. Each goes to the ring that has had the fewest for its
capacity, as a front does that knows what its rings can do. `partc.planner.simulate` then follows every ring by itself:
rings have no device in common.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from partc.config.demand import Wish
from partc.format.fleet import Arrivals, Latency
from partc.planner.rings.rings import RingKind
from partc.planner.simulate.case import simulate
from partc.planner.simulate.demand import Load
from partc.planner.simulate.script import workflow_of

_FEWEST, _MOST = 10, 60
"""Requests for each ring. The first half of them finds it emptier than it will be, and is not counted."""
_TAIL = 0.99


@dataclass(frozen=True)
class _Request:
    """How long a request took."""

    end_s: float
    first_token_s: float
    per_token_s: float | None

    def is_as(self, wish: Wish) -> bool:
        """Whether it was answered as soon as wished for."""
        pairs = ((self.first_token_s, wish.first_token_s), (self.per_token_s, wish.per_token_s))
        return all(took is None or wished is None or took <= wished for took, wished in pairs)


def simulate_wish(rings: Sequence[RingKind], wish: Wish, slots: int, tokens: int, seed: int) -> Arrivals:
    """The course of requests of one wish, of about so many tokens in all, on its rings: one entry for each ring.

    Raises:
        PlanError: an answer is too long to follow.
    """
    each = min(max(tokens // (wish.answer * len(rings)), _FEWEST), _MOST)
    arrivals = _arrivals(wish.rate_per_s, each * len(rings), seed)
    done: list[_Request] = []
    counted: list[_Request] = []
    for ring, times in zip(rings, _dealt(arrivals, rings), strict=True):
        if times:
            followed = _followed(ring, times, wish, slots)
            done += followed
            counted += followed[len(followed) // 2 :]
    paces = [request.per_token_s for request in counted if request.per_token_s is not None]
    span = max(request.end_s for request in done) - arrivals[0]
    return Arrivals(
        requests=len(counted),
        tokens_per_s=len(done) * wish.answer / span,
        first_token=_latency([request.first_token_s for request in counted]),
        per_token=_latency(paces) if paces else None,
        as_wished=sum(request.is_as(wish) for request in counted) / len(counted),
    )


def _arrivals(rate_per_s: float, count: int, seed: int) -> list[float]:
    """The times of a Poisson process."""
    rng, now, times = random.Random(seed), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate_per_s)
        times.append(now)
    return times


def _dealt(arrivals: Sequence[float], rings: Sequence[RingKind]) -> list[tuple[float, ...]]:
    """The arrivals of each ring: the next request goes where capacity is left for it soonest. O(n log rings)."""
    dealt: list[list[float]] = [[] for _ in rings]
    turns = [(1 / ring.capacity_per_s, place) for place, ring in enumerate(rings)]
    heapq.heapify(turns)
    for time in arrivals:
        turn, place = turns[0]
        dealt[place].append(time)
        heapq.heapreplace(turns, (turn + 1 / rings[place].capacity_per_s, place))
    return [tuple(times) for times in dealt]


def _followed(ring: RingKind, times: tuple[float, ...], wish: Wish, slots: int) -> list[_Request]:
    load = Load(len(times), wish.answer, "no-bubbles", slots, arrivals_s=times)
    tokens = simulate(workflow_of(ring.problem, ring.stages), load).token_s
    steps = wish.answer - 1
    return [
        _Request(token[-1], token[0] - came, (token[-1] - token[0]) / steps if steps else None)
        for came, token in zip(times, tokens, strict=True)
    ]


def _latency(seconds: Sequence[float]) -> Latency:
    order = sorted(seconds)
    at = [order[max(0, ceil(part * len(order)) - 1)] for part in (0.5, _TAIL)]
    return Latency(*at)
