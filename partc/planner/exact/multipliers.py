"""Bounds for hundreds of unlike devices: Lagrangian relaxation of "each device at most once".

Every use of a device of type t costs a price λ_t >= 0 and may be repeated. For given prices the cheapest plan
is a shortest path over (cut, device), and its cost less Σ λ_t · members_t is at most the cost of every true
plan (weak duality): EdgeShard's recurrence (section IV-A, Eq. 7-9), which has no set of devices in use in its
state either, priced so that re-use does not pay. The prices are raised for devices that are used too often
and lowered for the others (a subgradient method with Polyak's step along a running mean of the directions, as
in the volume algorithm of Barahona and Anbil 2000: the plain subgradient zigzags between paths that use
disjoint sets of devices).

On a capped chain (throughput) all costs but the prices are zero: a positive value proves that no plan is as
fast as the cap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from partc.planner.exact.chain import Chain
from partc.planner.exact.objective import Objective
from partc.planner.exact.tables import Array
from partc.planner.model.effort import CALL, Budget

_FIRST_STEP = 0.1
"""The first step as a part of Polyak's."""
_MIN_STEP = 0.01
_DECAY, _PATIENCE = 0.8, 10
"""Factor of the steps after so many rounds without a better bound."""
_SHRINK = 0.7
"""Factor of the steps where one was far too long."""
_MEMORY = 0.8
"""Weight of the earlier directions in the running mean."""
_MARGIN = 1e-11
"""Part of a bound that is given away to rounding."""


@dataclass(frozen=True, eq=False)
class ToGo:
    """Cheapest completions at given prices; re-use of devices allowed."""

    begin: Array
    """[b, type]: the next interval is on this type, its price and time included, its message not."""
    rest: Array
    """[c, type]: everything after c, if the path's last value is on this type."""
    start: Array
    """[c]: the whole plan, if the source holds [0, c)."""


def cost_to_go(chain: Chain, prices: Array) -> ToGo:
    """The shortest paths from every state to the end, cut by cut. O(n (T^2 + T log n))."""
    n, kinds = chain.count, chain.kinds
    windows = chain.ends
    left, right = windows.flat()
    table = np.full((windows.depth, n + 2, kinds), np.inf)
    flat = table.reshape(-1)
    halves = [2**level for level in range(windows.depth - 1)]
    begin, rest = np.full((n + 1, kinds), np.inf), np.full((n + 1, kinds), np.inf)
    price = np.append(np.inf, prices[1:])
    rest[n] = chain.back
    for b in range(n, -1, -1):
        if b < n:
            begin[b] = np.minimum(flat[left[b]], flat[right[b]]) - chain.elapsed[b] + price
            rest[b] = (chain.matrix(b) + begin[b]).min(axis=1)
            if (after := chain.least_end[b] - 1) > b:
                # Off the path an interval may run beside the others: here it is free, a further relaxation.
                np.minimum(rest[b], rest[after], out=rest[b])
        np.add(chain.elapsed[b], rest[b], out=table[0, b])
        for level, half in enumerate(halves):
            np.minimum(table[level, b], table[level, min(b + half, n + 1)], out=table[level + 1, b])
    return ToGo(begin, rest, _start(chain, rest))


def _start(chain: Chain, rest: Array) -> Array:
    cuts = np.arange(chain.count + 1)
    own = np.where(cuts >= chain.least_end[0], chain.elapsed[:, 0], 0.0)
    return np.where((cuts > 0) & (cuts <= chain.reach[0, 0]), own + rest[:, 0], np.inf)


def cheapest_path(chain: Chain, to_go: ToGo) -> list[tuple[int, int]]:
    """(type, end) of the intervals of the cheapest path; the path must exist. O(devices (T + n))."""
    cut = int(to_go.start.argmin())
    path, holder = [(0, cut)], 0
    while cut < chain.count:
        costs = chain.matrix(cut)[holder] + to_go.begin[cut]
        kind, after = int(costs.argmin()), int(chain.least_end[cut])
        if after - 1 > cut and to_go.rest[after - 1, holder] < costs[kind]:
            cut = after - 1
            continue
        last = chain.reach[cut, kind] + 1
        ends = chain.elapsed[after:last, kind] + to_go.rest[after:last, kind]
        cut, holder = after + int(ends.argmin()), kind
        path.append((kind, cut))
    return path


@dataclass(frozen=True, eq=False)
class Round:
    """One step of the ascent."""

    bound: float
    """Best so far: no plan costs less."""
    prices: Array
    """The prices that gave the best bound."""
    path: list[tuple[int, int]]
    """The cheapest path at this round's prices; empty where there is none at any price."""


@dataclass(frozen=True, eq=False)
class _Point:
    """Prices and what they are worth."""

    value: float
    prices: Array
    path: list[tuple[int, int]]
    excess: Array
    """[type]: uses on the cheapest path beyond the members there are: a subgradient."""


def ascend(chain: Chain, prices: Array, target: float, budget: Budget) -> Iterator[Round]:
    """Better and better bounds, as many as are asked for, while the budget lasts.

    `target`: value that the bound can hardly exceed; it sets the length of the steps. Ends by itself when the
    steps have become too short, or when the cheapest path is a plan (the bound is then its cost). At least
    one round is made.
    """
    best = point = _price(chain, prices)
    mean, factor, since = point.excess, _FIRST_STEP, 0
    each = chain.count * (2.0 * chain.kinds**2 + 3 * CALL)
    while True:
        budget.spend(each)
        yield Round(best.value, best.prices, point.path)
        if not point.path or _is_plan(point) or factor < _MIN_STEP or budget.is_spent:
            return
        if point.value < best.value - abs(target - best.value):
            factor, point, mean = factor * _SHRINK, best, best.excess
        elif since >= _PATIENCE:
            factor, since = factor * _DECAY, 0
        mean = (1 - _MEMORY) * point.excess + _MEMORY * mean
        step = np.where((point.prices <= 0) & (mean < 0), 0.0, mean)
        missing = max(target - point.value, 1e-3 * abs(target))
        length = factor * missing / max(float(step @ step), 1e-9)
        point = _price(chain, np.maximum(0.0, point.prices + length * step))
        since = 0 if point.value > best.value + 1e-4 * abs(best.value) else since + 1
        best = point if point.value > best.value else best


def _price(chain: Chain, prices: Array) -> _Point:
    to_go = cost_to_go(chain, prices)
    least, paid = float(to_go.start.min()), float(prices @ chain.capacity)
    if np.isinf(least):
        return _Point(np.inf, prices, [], np.zeros(chain.kinds))
    path = cheapest_path(chain, to_go)
    excess = np.bincount([kind for kind, _ in path], minlength=chain.kinds) - chain.capacity
    excess[0] = 0
    return _Point(least - paid - _MARGIN * (abs(least) + paid), prices, path, excess.astype(float))


def _is_plan(point: _Point) -> bool:
    """No device too often, and none too seldom that has a price: then the bound is the plan's cost."""
    return not (point.excess > 0).any() and not (point.prices[point.excess < 0] > 0).any()


class PricedBound:
    """Least cost to go at given prices, for branch and bound (`search.py`) where the set of devices is too big.

    What is left can use only devices that are not in use yet, so that only their prices are given back.
    """

    def __init__(self, chain: Chain, objective: Objective, prices: Array) -> None:
        """`objective`: a latency."""
        to_go = cost_to_go(chain, prices)
        self.objective = objective
        self._chain, self._prices = chain, prices
        self._rest, self._start = np.ascontiguousarray(to_go.rest.T), to_go.start

    def start(self) -> Array:
        """[c]: bound for the whole plan when the source holds [0, c)."""
        return self._less(self._start, (0,) * self._chain.kinds)

    def to_go(self, used: tuple[int, ...]) -> Array:
        """[type that holds the path's last value, cut]: least cost of the rest."""
        return self._less(self._rest, used)

    def _less(self, costs: Array, used: tuple[int, ...]) -> Array:
        """Less the prices of free devices; exact at the end, where nothing is left to do."""
        given = np.full(self._chain.count + 1, float(self._prices @ (self._chain.capacity - np.array(used))))
        given[-1] = 0.0
        return np.asarray(costs - given)


def first_prices(chain: Chain, windows: Array) -> Array:
    """Prices to start from: those of a fractional knapsack that has to hold the whole model.

    Each type offers its largest window (`windows` [type], as a part of the model) for the time that takes and
    its fastest message. The cheapest offers per part of the model are taken; a device is worth what its
    window would cost at the last offer taken, less what it costs itself.
    """
    messages = chain.delay + chain.rate * np.median(chain.bytes)
    offers = windows * chain.elapsed[-1] + np.where(np.isfinite(messages), messages, np.inf).min(axis=1)
    rates = np.where(windows > 0, offers / np.maximum(windows, 1e-12), np.inf)
    left, last = 1.0 - windows[0], 0.0
    for kind in np.argsort(rates, kind="stable"):
        if left <= 0 or not np.isfinite(rates[kind]):
            break
        left, last = left - windows[kind] * chain.capacity[kind], rates[kind]
    prices = np.where(np.isfinite(rates), np.maximum(0.0, last * windows - offers), 0.0)
    prices[0] = 0.0
    return prices
