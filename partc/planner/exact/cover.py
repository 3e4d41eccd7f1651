"""Covers: plans in which nothing is busy for longer than a given time; the throughput for many devices.

An order of devices is decoded greedily: each takes as many sub-modules as it can, one that cannot follow
(no memory, link too slow) is passed over. On a capped chain further is never worse as long as the messages
are alike at all cuts, so that for the right order this finds a cover if there is one. Thousands of orders
are decoded at once, and the best neighbours of the best order are kept until the model is covered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from partc.planner.exact.chain import Chain
from partc.planner.exact.orders import Order
from partc.planner.exact.tables import Array, Indices
from partc.planner.model.effort import Budget

_NEIGHBOURS = 1500
"""Orders decoded at once."""
_DRAWING, _DECODING = 3000.0, 15.0
"""Operations of drawing a neighbour, and of decoding one of its places."""
_STUCK = 40
"""Rounds without progress after which a search gives up."""


def find_cover(
    chain: Chain, priority: Sequence[int], budget: Budget, rng: random.Random
) -> list[tuple[int, int]] | None:
    """(type, end) of intervals that cover the model on a capped chain, or None if none was found.

    `priority`: members of types in the order to start from, as many times as each may be used.
    """
    best = np.array(priority, np.int64)
    covered, idle = _decode(chain, best[None, :])[0].max(initial=0), 0
    while covered < chain.count and idle < _STUCK and not budget.is_spent:
        budget.spend(_NEIGHBOURS * (_DRAWING + _DECODING * len(best)))
        orders = _neighbours(best, rng)
        reached, _ = _decode(chain, orders)
        place = int(reached.argmax())
        idle = 0 if reached[place] > covered else idle + 1
        if reached[place] >= covered:
            best, covered = orders[place], reached[place]
    return _intervals(chain, best) if covered == chain.count else None


def members(chain: Chain) -> list[int]:
    """Every device besides the source, by type."""
    return [kind for kind, size in enumerate(chain.capacity) for _ in range(size)]


def priority_of(path: Sequence[tuple[int, int]], rest: Sequence[int]) -> list[int]:
    """The devices of a path in its order, each once, then the others in the order of `rest`."""
    free = list(rest)
    result = []
    for kind, _ in path:
        if kind in free:
            free.remove(kind)
            result.append(kind)
    return result + free


def order_of(intervals: Sequence[tuple[int, int]]) -> Order:
    """The types alone."""
    return tuple(kind for kind, _ in intervals)


def _neighbours(order: Indices, rng: random.Random) -> Indices:
    """The order itself and copies with stretches moved, turned round or exchanged."""
    result = np.repeat(order[None, :], _NEIGHBOURS, axis=0)
    size = len(order)
    if size < 2:
        return result
    for row in result[1:]:
        for _ in range(rng.choice((1, 1, 2, 3))):
            a, b = rng.randrange(size), rng.randrange(size)
            kind = rng.random()
            if kind < 0.4:
                row[a], row[b] = row[b], row[a]
            elif kind < 0.8:
                moved = row[a]
                row[min(a, b) : max(a, b) + 1] = [*row[a + 1 : b + 1], moved] if a < b else [moved, *row[b:a]]
            else:
                low, high = min(a, b), max(a, b) + 1
                row[low:high] = row[low:high][::-1].copy()
    return result


def _decode(chain: Chain, orders: Indices) -> tuple[Indices, Indices]:
    """The reach of each order [row, place], and the ends of its intervals [row, place] (-1: passed over)."""
    rows, limit = np.arange(len(orders)), np.inf if chain.limit_s is None else chain.limit_s
    cut = np.full(len(orders), _source_end(chain))
    holder = np.zeros(len(orders), np.int64)
    ends = np.full(orders.shape, -1)
    for place in range(orders.shape[1]):
        kind = orders[:, place]
        end = chain.reach[np.minimum(cut, chain.count), kind]
        last = (end >= chain.count) & ~np.isfinite(chain.back[kind])
        end = np.where(last, chain.count - 1, end)
        seconds = np.where(
            chain.begun[cut], chain.delay[holder, kind] + chain.rate[holder, kind] * chain.bytes[cut], 0.0
        )
        follows = (cut < chain.count) & (end > cut) & (seconds <= limit) & np.isfinite(seconds)
        cut, holder = np.where(follows, end, cut), np.where(follows, kind, holder)
        ends[rows[follows], place] = end[follows]
    return cut, ends


def _source_end(chain: Chain) -> int:
    return int(chain.reach[0, 0])


def _intervals(chain: Chain, order: Indices) -> list[tuple[int, int]]:
    ends = _decode(chain, order[None, :])[1][0]
    rest = [(int(kind), int(end)) for kind, end in zip(order, ends, strict=True) if end >= 0]
    return [(0, _source_end(chain)), *rest]


def largest_windows(chain: Chain, share: Array) -> Array:
    """[type]: the largest part of the model that one interval can hold; `share` [c]: part before c.

    As prices on a capped chain they prove, where it is so, that the devices cannot hold it all together.
    """
    cuts = np.arange(chain.count + 1)
    return np.array([(share[chain.reach[:, t]] - share[cuts]).max() for t in range(chain.kinds)])
