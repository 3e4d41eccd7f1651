"""Plans for many different devices, where exact search is too slow: bounds by prices, plans by local search.

Both work on the chain (`chain.py`), where residual messages are dropped; every plan that is found is then
evaluated in full, so that values are true and bounds are bounds. A throughput is found by bisection over
the longest busy time, a latency directly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from partc.format.placement import Stages
from partc.planner.exact.chain import Chain, chain_of
from partc.planner.exact.cover import find_cover, largest_windows, members, order_of, priority_of
from partc.planner.exact.multipliers import PricedBound, Round, ascend, first_prices
from partc.planner.exact.objective import TIE, latency_objective
from partc.planner.exact.orders import Order, OrderSearch, order_of_path, shaken, skip_price
from partc.planner.exact.search import Search
from partc.planner.exact.solution import Solution, bound_of, cost_of, named
from partc.planner.exact.tables import Array, Tables
from partc.planner.model.effort import GAVE_UP, Budget, Effort
from partc.planner.model.evaluate import Evaluation, evaluate
from partc.planner.model.objectives import by_objective

_GOOD_GAP = 2e-3
"""The search for better plans ends here."""
_CLOSE = 1.002
"""Ratio of busy times at which a bisection ends."""
_TINY_S = 1e-12
"""Seconds below which busy times are not told apart."""


class LargeSearch:
    """One search; the best plan and the best bound so far are kept."""

    def __init__(self, tables: Tables, budget: Budget, effort: Effort) -> None:
        """Nothing is searched before `run`."""
        self.tables = tables
        self.problem = tables.problem
        self.chain = chain_of(tables)
        self.likely = self.chain
        """The chain that plans are searched on; bounds are those of `chain`."""
        self.budget = budget
        self.rounds = effort.rounds
        most = max(12.0, 1e6 / (self.chain.kinds * self.chain.count))
        self.shakes = int(min(effort.shakes, most))
        self.random = random.Random(0)
        self.infeasible = False
        """Proven: no plan exists."""
        self.prices: Array = np.zeros(self.chain.kinds)
        """The prices that gave the best bound."""
        self.least_s = 0.0
        """No plan costs less."""
        self.best: tuple[Stages, Evaluation] | None = None
        self.order: Order = ()
        """The order of the best plan."""
        self.method = "local search, Lagrangian bound"
        """The way in which the plan was found, and the reason why a step ended early."""

    @property
    def cost(self) -> float:
        """Cost of the best plan in seconds; infinite without one."""
        return cost_of(self.problem, self.best[1].value or 0.0) if self.best else np.inf

    @property
    def gap(self) -> float:
        """Relative; infinite without a plan."""
        return (self.cost - self.least_s) / self.cost if self.best else np.inf

    def run(self) -> LargeSearch:
        """Searches until the gap is small, nothing helps any more, or the budget is spent."""
        self._guarded(self._run)
        return self

    def _run(self) -> None:
        self._start()
        if self.best:
            by_objective(self.problem.objective, latency=self._latency, throughput=self._throughput)()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Runs a step; where it gives up, the plan and the bound found before hold all the same."""
        try:
            step()
        except GAVE_UP as error:
            self.method += ", out of memory" if isinstance(error, MemoryError) else ", out of work"
            if self.best is None:
                raise

    def solution(self) -> Solution | None:
        """The best plan so far with the best bound so far."""
        if self.best is None:
            return None
        stages, evaluation = self.best
        bound = bound_of(self.problem, evaluation.value or 0.0, self.least_s)
        return Solution(stages, evaluation, bound, self.method)

    def _start(self) -> None:
        """Any plan, or the proof that there is none."""
        everything = self.chain.capped(np.inf)
        if self._cover(everything, members(self.chain), self.budget.part(0.2)):
            return
        item = self._try_to_refute(everything, self.budget.part(0.3))
        self.infeasible = item is None
        if item is None:
            return
        soft = OrderSearch(self.chain, skip_price(self.chain))
        start = order_of_path(self.chain, item.path)
        self._descend(soft, start, self.budget.part(0.3))
        for _ in range(self.shakes):
            if self.best or self.budget.is_spent:
                return
            start = self._descend(soft, shaken(start, self.random), self.budget)

    def _offer(self, intervals: Sequence[tuple[int, int]]) -> bool:
        """Evaluates a plan in full and keeps it if it is the best; whether it is feasible."""
        order = order_of(intervals)
        if any(order.count(kind) < least for kind, least in enumerate(self.tables.least)):
            return False
        stages = named(self.tables, intervals)
        evaluation = evaluate(self.problem, stages)
        if evaluation.value is None:
            return False
        if cost_of(self.problem, evaluation.value) < self.cost:
            self.best, self.order = (stages, evaluation), order
        return True

    def _try_to_refute(self, chain: Chain, budget: Budget) -> Round | None:
        """None where prices prove that a capped chain cannot be covered; else the last round."""
        item = None
        for item in islice(ascend(chain, self._windows(chain), 0.02, budget), self.rounds):
            if item.bound > 0:
                return None
        return item

    def _windows(self, chain: Chain) -> Array:
        """[type]: the largest part of the model that one interval can hold, by work."""
        share = self.chain.elapsed.min(axis=1)
        return largest_windows(chain, share / max(share[-1], 1e-300))

    def _cover(self, chain: Chain, priority: Sequence[int], budget: Budget) -> bool:
        """Whether a plan was found that covers a capped chain; offered."""
        intervals = find_cover(chain, priority, budget, self.random)
        if intervals is None:
            return False
        return self._offer(self._with_forced(chain, intervals))

    def _with_forced(self, chain: Chain, intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The plan with the forced devices put where they cost least; the plan itself if that fails."""
        if not any(self.tables.least):
            return intervals
        search = OrderSearch(chain)
        order = self._require(search, order_of(intervals))
        return search.cuts(order) if np.isfinite(search.cost(order)) else intervals

    def _require(self, search: OrderSearch, order: Order) -> Order:
        """The order with as many members of each type as plans must use."""
        for kind, least in enumerate(self.tables.least):
            order = search.require(order, kind, least).order if least else order
        return order

    # Latency

    def _latency(self) -> None:
        """A first plan, prices with its value as target, better plans from their paths; both once more."""
        self.likely = chain_of(self.tables, max(2, self.chain.count // len(self.order)))
        soft = OrderSearch(self.likely, skip_price(self.likely))
        self._descend(soft, self.order, self.budget.part(0.1))
        self.prices = first_prices(self.chain, self._windows(self.chain))
        paths = self._raise_bound(self.budget.part(0.4))
        for path in paths:
            self._descend(soft, order_of_path(self.chain, path), self.budget.part(0.2))
        self._shake(soft, self.budget.part(0.5))
        if self.gap > _GOOD_GAP:
            self._raise_bound(self.budget.part(0.5))
            self._shake(soft, self.budget)

    def _raise_bound(self, budget: Budget) -> list[list[tuple[int, int]]]:
        """Better prices, and the last paths on the way to them."""
        paths: list[list[tuple[int, int]]] = []
        target = self.cost if self.best else 2 * self.least_s
        for item in islice(ascend(self.chain, self.prices, target, budget), self.rounds):
            self.least_s, self.prices = max(self.least_s, item.bound), item.prices
            paths.append(item.path)
            if self.gap < _GOOD_GAP:
                break
        return [path for path in paths[-40::10] if path]

    def _descend(self, soft: OrderSearch, start: Order, budget: Budget) -> Order:
        """Local search from an order; the plan it ends in is offered."""
        strict = OrderSearch(self.likely)
        order = self._require(strict, soft.improve(start, budget).order)
        if np.isfinite(strict.cost(order)):
            self._offer(strict.cuts(order))
        return order

    def _shake(self, soft: OrderSearch, budget: Budget) -> None:
        """Local search from disturbed copies of the best order."""
        for _ in range(self.shakes):
            if self.gap < _GOOD_GAP or budget.is_spent:
                return
            self._descend(soft, shaken(self.order, self.random), budget)

    def close(self, budget: Budget) -> None:
        """Branch and bound with the best prices: a better plan, a better bound, or the proof of optimality.

        For latencies; there must be a plan.
        """
        self.method += ", branch and bound"
        self._guarded(lambda: self._close(budget))

    def _close(self, budget: Budget) -> None:
        objective = latency_objective(self.tables)
        bound = PricedBound(self.chain, objective, self.prices)
        known = self.cost * (1 - TIE)
        found = Search(self.tables, bound, budget, known).run()
        if found.best is not None:
            self._offer([(kind, end) for kind, _, end in found.best.intervals()])
        # What was added for each device is no part of the value.
        least = min(found.bound, known) - len(self.problem.devices) * objective.per_device
        self.least_s = max(self.least_s, least)

    # Throughput

    def _throughput(self) -> None:
        """Bisects the longest busy time: what is possible, what is impossible, and again where they differ."""
        priority = members(self.chain)
        self._lower_cost(self.budget.part(0.3), priority)
        priority = self._raise_least(self.budget.part(0.5), priority)
        self._lower_cost(self.budget, priority)

    def _raise_least(self, budget: Budget, priority: list[int]) -> list[int]:
        """Bisects for the largest busy time that is proven impossible; a priority from the last path."""
        low, high = self.least_s, self.cost
        while high > max(low, _TINY_S) * _CLOSE and not budget.is_spent:
            middle = (low + high) / 2
            chain = self.chain.capped(middle)
            item = self._try_to_refute(chain, budget)
            if item is None:
                low = self.least_s = middle
                continue
            high = middle
            if item.path:
                priority = priority_of(item.path, members(chain))
        return priority

    def _lower_cost(self, budget: Budget, priority: list[int]) -> None:
        """Bisects for the smallest busy time for which a plan is found."""
        low = self.least_s
        while self.cost > max(low, _TINY_S) * _CLOSE and not budget.is_spent:
            middle = (low + self.cost) / 2
            before = self.cost
            starts = [priority_of([(kind, 0) for kind in self.order], members(self.chain)), priority]
            chain = self.chain.capped(middle)
            if not any(self._cover(chain, start, budget) for start in starts) or self.cost >= before:
                low = middle
