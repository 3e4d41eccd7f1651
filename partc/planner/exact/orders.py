"""Local search over the order of the devices, the cuts of every order chosen at best.

For a given order of devices the best cuts are a dynamic programme over (place in the order, cut). With the
costs of all prefixes and of all suffixes of an order at hand, one more step of it prices a device put
between any prefix and any suffix, for all devices at once: that gives every insertion, replacement and
removal in some milliseconds. Costs are those of the chain, on which residual messages are not counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from partc.planner.exact.chain import Chain
from partc.planner.exact.tables import Array
from partc.planner.model.effort import CALL, Budget

Order = tuple[int, ...]
"""Types of devices in the order of their intervals; the source, type 0, first."""

_GAIN = 1e-9
"""Relative improvement below which a change is none."""
_MAX_COLUMNS = 96
_PER_ELEMENT = 60
"""Operations for each element of a row of costs."""


@dataclass(frozen=True)
class Change:
    """An order made of a prefix, perhaps one device, and a suffix of another order."""

    cost: float
    order: Order


class OrderSearch:
    """Orders of devices for one chain."""

    def __init__(self, chain: Chain, skip_s: float = np.inf) -> None:
        """`skip_s`: price of leaving out a sub-module; a finite one leads out of orders that hold too little."""
        self.chain = chain
        self.skip_s = skip_s
        self._turn = 0

    def cost(self, order: Order) -> float:
        """Least cost over all cuts; infinite where the order cannot hold the model."""
        return float(self._suffixes(order)[0][0])

    def cuts(self, order: Order) -> list[tuple[int, int]]:
        """(type, end) of the intervals with the best cuts."""
        suffixes, cut, result = self._suffixes(order), 0, []
        for place, kind in enumerate(order):
            after, last = self.chain.least_end[cut], self.chain.reach[cut, kind] + 1
            ends = self.chain.elapsed[:, kind] + self._after(order, place, suffixes)
            cut = int(after + ends[after:last].argmin())
            result.append((kind, cut))
        return result

    def improve(self, order: Order, budget: Budget) -> Change:
        """The order that single changes lead to, until none of them helps."""
        current = Change(self.cost(order), order)
        while not budget.is_spent:
            better = self._better(current, budget)
            if better is None:
                break
            current = better
        return current

    def _better(self, current: Change, budget: Budget) -> Change | None:
        """The first improvement: the best of one kind of change, else of all places for one device."""
        for changes in self._neighbours(current.order, budget):
            best = min(changes, key=lambda change: change.cost, default=current)
            if best.cost < current.cost * (1 - _GAIN):
                return best
        return None

    def _neighbours(self, order: Order, budget: Budget) -> Iterator[list[Change]]:
        yield self._changes(order, budget)
        for _ in range(1, len(order)):
            if budget.is_spent:
                return
            # Goes on behind the device that was moved last, so that each has its turn.
            self._turn = self._turn % (len(order) - 1) + 1
            yield self._moves(order, self._turn, budget)

    def require(self, order: Order, kind: int, count: int) -> Change:
        """The order with at least so many members of a type, each put where it costs least."""
        current = Change(self.cost(order), order)
        while current.order.count(kind) < count:
            order = current.order
            spots = [(place, place + 1 + gone, kind) for place in range(len(order)) for gone in (0, 1)]
            spots = [spot for spot in spots if spot[1] <= len(order)]
            spots = [spot for spot in spots if spot[1] == spot[0] + 1 or order[spot[0] + 1] != kind]
            current = min(self._between(order, spots, Budget()), key=lambda change: change.cost)
            if not np.isfinite(current.cost):
                break
        return current

    def _changes(self, order: Order, budget: Budget) -> list[Change]:
        """Removals, and every free device inserted or put in the place of another."""
        counts = Counter(order)
        free = [kind for kind, size in enumerate(self.chain.capacity) if counts[kind] < size]
        places = range(len(order))
        spots = [(place, place + 1, kind) for place in places for kind in free]
        spots += [(place, place + 2, kind) for place in places[:-1] for kind in free]
        return self._removals(order) + self._between(order, spots, budget)

    def _moves(self, order: Order, place: int, budget: Budget) -> list[Change]:
        """The device at a place taken out and put elsewhere, also in the place of another."""
        kind, rest = order[place], order[:place] + order[place + 1 :]
        spots = [(spot, spot + 1 + gone, kind) for spot in range(len(rest)) for gone in (0, 1)]
        return self._between(rest, [spot for spot in spots if spot[1] <= len(rest)], budget)

    def _removals(self, order: Order) -> list[Change]:
        prefixes, suffixes = self._prefixes(order), self._suffixes(order)
        result = []
        for place in range(1, len(order)):
            kept = order[:place] + order[place + 1 :]
            rest = self._into(order, place - 1, place + 1, suffixes)
            result.append(Change(float((prefixes[place - 1] + rest).min()), kept))
        return result

    def _between(self, order: Order, spots: Sequence[tuple[int, int, int]], budget: Budget) -> list[Change]:
        """The order with a type between, for each (last place before, first place after, type)."""
        prefixes, suffixes = self._prefixes(order), self._suffixes(order)
        result: list[Change] = []
        column = _PER_ELEMENT * self.chain.count + 8 * CALL
        budget.spend(2 * len(order) * column)
        for low in range(0, len(spots), _MAX_COLUMNS):
            if budget.is_spent:
                break
            part = spots[low : low + _MAX_COLUMNS]
            budget.spend(len(part) * column)
            kinds = np.array([kind for _, _, kind in part])
            outward = np.stack(
                [self._out_of(order, kind, place, suffixes) for _, place, kind in part], axis=1
            )
            elapsed = self.chain.elapsed[:, kinds]
            inward = np.stack(
                [prefixes[a] + self.chain.message(order[a], kind) for a, _, kind in part], axis=1
            )
            total = inward + self.chain.ends.minimum(outward + elapsed, kinds) - elapsed
            costs = total.min(axis=0).tolist()
            result += [
                Change(cost, (*order[: a + 1], kind, *order[b:]))
                for cost, (a, b, kind) in zip(costs, part, strict=True)
            ]
        return result

    def _out_of(self, order: Order, kind: int, place: int, suffixes: list[Array]) -> Array:
        """[c]: what follows an interval of this type that ends at c, if `place` of the order comes next."""
        if place < len(order):
            return self.chain.message(kind, order[place]) + suffixes[place]
        return self._end(kind)

    def _into(self, order: Order, before: int, place: int, suffixes: list[Array]) -> Array:
        return self._out_of(order, order[before], place, suffixes)

    def _after(self, order: Order, place: int, suffixes: list[Array]) -> Array:
        return self._out_of(order, order[place], place + 1, suffixes)

    def _end(self, kind: int) -> Array:
        result = np.full(self.chain.count + 1, np.inf)
        result[-1] = self.chain.back[kind]
        return self._skipping(result[::-1])[::-1]

    def _skipping(self, costs: Array) -> Array:
        """`costs`, or that of an earlier element and leaving out what lies between."""
        if np.isinf(self.skip_s):
            return costs
        price = self.skip_s * np.arange(len(costs))
        return np.asarray(np.minimum.accumulate(costs - price) + price)

    def _suffixes(self, order: Order) -> list[Array]:
        """[b] for each place: cost from the begin of its interval to the end."""
        result: list[Array] = [np.empty(0)] * len(order)
        for place in range(len(order) - 1, -1, -1):
            kind = order[place]
            elapsed = self.chain.elapsed[:, kind]
            ends = elapsed + self._after(order, place, result)
            least = self.chain.ends.minimum(ends[:, None], np.array([kind]))[:, 0]
            result[place] = self._skipping((least - elapsed)[::-1])[::-1]
        return result

    def _prefixes(self, order: Order) -> list[Array]:
        """[c] for each place: cost up to the end of its interval."""
        result: list[Array] = []
        for place, kind in enumerate(order):
            elapsed = self.chain.elapsed[:, kind]
            if place == 0:
                reached = np.arange(self.chain.count + 1)
                fits = (reached >= self.chain.least_end[0]) & (reached <= self.chain.reach[0, kind])
                result.append(self._skipping(np.where(fits, elapsed, np.inf)))
                continue
            begins = result[-1] + self.chain.message(order[place - 1], kind) - elapsed
            least = self.chain.begins.minimum(begins[:, None], np.array([kind]))[:, 0]
            result.append(self._skipping(least + elapsed))
        return result


def skip_price(chain: Chain) -> float:
    """More than any device saves by leaving out one of its sub-modules or itself."""
    longest = float(np.diff(chain.elapsed, axis=0).max())
    messages = chain.delay + chain.bytes.max() * chain.rate
    return longest + 3 * float(messages[np.isfinite(messages)].max(initial=0.0))


def order_of_path(chain: Chain, path: Sequence[tuple[int, int]]) -> Order:
    """A relaxed path with every device in its longest interval alone (as many as it has members)."""
    lengths = np.diff([0, *(end for _, end in path)])
    kept: Counter[int] = Counter()
    places = {0}
    for place in sorted(range(1, len(path)), key=lambda i: -lengths[i]):
        kind = path[place][0]
        if kept[kind] < chain.capacity[kind]:
            kept[kind] += 1
            places.add(place)
    return tuple(path[place][0] for place in sorted(places))


def shaken(order: Order, rng: random.Random) -> Order:
    """The order with some neighbours of one place turned round or taken out."""
    if len(order) < 3:
        return order
    size = rng.randint(2, max(2, min(8, len(order) // 3)))
    low = rng.randrange(1, max(2, len(order) - size + 1))
    middle = list(order[low : low + size])
    if rng.random() < 0.5:
        middle.reverse()
    middle = [kind for kind in middle if rng.random() < 0.6]
    return (*order[:low], *middle, *order[low + size :])
