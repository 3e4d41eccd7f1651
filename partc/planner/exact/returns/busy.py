"""A bound on the longest busy time of all plans: prices on the busy times of devices and links, and on memory.

With prices that sum up to 1, the priced busy times of a plan are no more than its longest one; so the least priced load
of any path through the devices is a bound. Residual values count on no link here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from partc.planner.exact.returns.space import Space, weighed
from partc.planner.exact.tables import Array
from partc.planner.model.effort import CALL, Budget


@dataclass(frozen=True, slots=True)
class Weights:
    """Prices: of busy times, which sum up to 1, and of memory in seconds per byte."""

    device: Array
    link: Array
    """[sender, receiver]"""
    memory: Array


@dataclass(frozen=True, slots=True)
class BusyTable:
    """Least priced loads under some prices."""

    device: list[float]
    link: list[list[float]]
    memory: list[float]
    base: float
    """The priced room of all devices."""
    rest: list[list[float]]
    """[cut][device]: least priced load behind the cut."""


class BusyPrices:
    """The best prices found so far, and their bound."""

    def __init__(self, space: Space) -> None:
        """Equal prices for all devices, none for links and memory."""
        self.space = space
        self.bound = -math.inf
        self.tables: list[BusyTable] = []
        self._room = np.maximum(np.array(space.room) - min(space.peak), 0.0)
        self._messages = self._message_seconds()
        self._pairs = np.isfinite(space.latency) & ~np.eye(space.devices, dtype=bool)
        self._best = self._equal()
        self._pool: list[Weights] = []

    def ascend(self, rounds: int, upper: float, budget: Budget) -> list[list[int]]:
        """Better prices by exponential weights on loads; the plans met on the way, whether they fit or not."""
        space, met, top = self.space, [], upper
        weights = self._equal()
        loads, memory = np.zeros(space.devices * (1 + space.devices)), np.zeros(space.devices)
        for number in range(rounds):
            if budget.is_spent:
                break
            bound, plan, _ = self._solve(weights, budget)
            if plan is None:
                self.bound = math.inf
                break
            if bound > self.bound:
                self.bound, self._best = bound, weights
            if number % max(1, rounds // 6) == 0:
                self._pool.append(weights)
            met.append(plan)
            busy, use = self._loads(plan)
            longest = float(busy.max())
            if (use <= self._room).all() and longest < top:
                top = longest
            unit = top if 0 < top < math.inf else max(self.bound, longest, 1e-30)
            step = 4.0 / (1 + number) ** 0.6
            loads = loads + step * (busy / unit - 1)
            loads -= loads.max()
            memory = np.maximum(0.0, memory + 0.3 * step * (use - self._room) / np.maximum(self._room, 1.0))
            shares = np.exp(loads)
            shares[space.devices :][~self._pairs.ravel()] = 0.0
            shares /= shares.sum()
            links = shares[space.devices :].reshape(space.devices, space.devices)
            weights = Weights(shares[: space.devices], links, memory * unit / np.maximum(self._room, 1.0))
        return met

    def ready(self, budget: Budget) -> None:
        """Tabulate the best prices, and some met on the way."""
        self.tables = []
        for weights in (self._best, *self._pool[-3:]):
            rest = self._solve(weights, budget)[2]
            base = float(weights.memory @ self._room)
            lists = weights.device.tolist(), weights.link.tolist(), weights.memory.tolist()
            self.tables.append(BusyTable(*lists, base, rest.tolist()))

    def _equal(self) -> Weights:
        devices = self.space.devices
        return Weights(np.ones(devices) / devices, np.zeros((devices, devices)), np.zeros(devices))

    def _solve(self, weights: Weights, budget: Budget) -> tuple[float, list[int] | None, Array]:
        """(bound, its path, least priced load behind [cut, device])."""
        space = self.space
        count, devices = space.count, np.arange(space.devices)
        budget.spend(count * 5 * CALL)
        finite = np.where(space.able, space.weighted, 0.0)
        cost = np.where(space.able, finite * weights.device + space.charged * weights.memory, np.inf)
        rest = np.empty((count + 1, space.devices))
        rest[count] = np.where(np.isfinite(space.back), _product(space.back, weights.link[:, 0]), np.inf)
        following = np.zeros((count, space.devices), int)
        for cut in range(count - 1, 0, -1):
            message = np.where(
                np.isfinite(self._messages[cut]), _product(self._messages[cut], weights.link), np.inf
            )
            choices = message + cost[cut] + rest[cut + 1]
            following[cut] = choices.argmin(1)
            rest[cut] = choices[devices, following[cut]]
        rest[0] = np.inf
        bound = float(cost[0, 0] + rest[1, 0] - weights.memory @ self._room)
        if not math.isfinite(bound):
            return math.inf, None, rest
        plan = [0]
        for cut in range(1, count):
            plan.append(int(following[cut, plan[-1]]))
        return bound, plan, rest

    def _loads(self, plan: list[int]) -> tuple[Array, Array]:
        """Busy times of devices, then of links, and the memory of devices, as prices count them."""
        space = self.space
        rows = np.arange(space.count)
        busy = np.bincount(plan, space.weighted[rows, plan], space.devices)
        links = np.zeros((space.devices, space.devices))
        for cut in range(1, space.count):
            if plan[cut] != plan[cut - 1]:
                links[plan[cut - 1], plan[cut]] += self._messages[cut][plan[cut - 1], plan[cut]]
        links[plan[-1], 0] += space.back[plan[-1]]
        use = np.bincount(plan, space.charged[rows, plan], space.devices)
        return np.concatenate([busy, links.ravel()]), np.asarray(use, float)

    def _message_seconds(self) -> list[Array]:
        """[cut][sender, receiver]: weighted seconds of what the sub-module before a cut hands to the one behind it."""
        space = self.space
        found = np.zeros((space.count + 1, space.devices, space.devices))
        for phase, weight in enumerate(space.weights):
            sizes, is_sent = space.chain_bytes(phase), np.array(space.chained[phase])
            own = weighed(weight, space.latency + sizes[:, None, None] * space.per_byte)
            found += np.where(is_sent[:, None, None], own, 0.0)
        return list(found)


def _product(seconds: Array, price: Array) -> Array:
    return np.where(np.isfinite(seconds), seconds, 0.0) * price
