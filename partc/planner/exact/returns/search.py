"""The best plan that may return to a device: prices, then wider and wider sweeps, until the bound meets the value."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from partc.format.placement import Stages
from partc.planner.exact.objective import TIE
from partc.planner.exact.returns.busy import BusyPrices
from partc.planner.exact.returns.latency import LatencyLabels
from partc.planner.exact.returns.prices import Prices
from partc.planner.exact.returns.space import Space
from partc.planner.exact.returns.sweep import Labels, sweep
from partc.planner.exact.returns.throughput import ThroughputLabels
from partc.planner.exact.tables import Forced
from partc.planner.model.effort import Budget, WorkSpent
from partc.planner.model.evaluate import Evaluation, evaluate
from partc.planner.model.objectives import by_objective, seconds_of
from partc.planner.model.problem import Problem
from partc.planner.model.stages import returns_of

_WIDTHS = (30, 300, 3000, None)
"""Labels of each sweep at each cut; None: all."""
_MOST_TABLE = 2_000_000
"""Numbers of a table of least costs, of which a search has six; beyond, prices alone bound what plans cost."""
_NEAR = 1e-9
"""A bound that is nearer to the value, relatively, meets it."""


@dataclass(slots=True)
class Returning:
    """The best plan that was found, and a bound on all plans."""

    cost: float
    """Seconds to be minimised; infinite: no plan is known."""
    bound: float
    """No plan costs less; infinite: there is none."""
    stages: Stages | None = None
    """The plan, where it is better than what was known before."""
    evaluation: Evaluation | None = None

    @property
    def is_proven(self) -> bool:
        """Whether the bound meets the value, or nothing can be a plan."""
        return self.bound >= self.cost * (1 - 2 * _NEAR) or self.cost <= sys.float_info.min


def seek_returning(
    problem: Problem, known: float, budget: Budget, *, rounds: int, forced: Forced | None = None
) -> Returning:
    """A plan that costs less than `known` seconds, infinite where no plan is known; and a bound on all plans.

    Searches by layers of labels (see `sweep`): what they cost is in the worst case exponential in the devices, so the
    budget ends them, and the bound is then that of what was not looked at.
    """
    search = _Search(Space(problem, forced), known, budget, rounds)
    search.run()
    return search.found


class _Search:
    def __init__(self, space: Space, known: float, budget: Budget, rounds: int) -> None:
        self._space, self._budget, self._rounds = space, budget, rounds
        self.found = Returning(known, -math.inf)
        is_latency = by_objective(space.problem.objective, latency=True, throughput=False)
        self._prices = Prices(space) if is_latency else BusyPrices(space)

    def run(self) -> None:
        """Go on until the bound meets the value, every label was looked at, or the budget ends."""
        self._ascend(1)
        if not self.found.is_proven:
            self._ascend(self._rounds)
        if self._is_large:
            return
        for width in _WIDTHS:
            if self.found.is_proven or self._budget.is_spent:
                return
            try:
                is_over = self._sweep(width)
            except (WorkSpent, MemoryError):
                return
            if is_over:
                return

    @property
    def _is_large(self) -> bool:
        return isinstance(self._prices, Prices) and self._prices.table_size > _MOST_TABLE

    def _sweep(self, width: int | None) -> bool:
        """Look at so many labels at each cut; whether all were looked at."""
        # Busy times that stay below the limit are left out: each limit is a question of its own.
        is_question = by_objective(self._space.problem.objective, latency=False, throughput=True)
        while True:
            swept = sweep(self._labels(), self.found.cost * (1 - _NEAR), width, self._budget)
            is_better = swept.assignment is not None and self._offer(swept.assignment)
            if not (is_better and is_question):
                self._raise(min(swept.least, self.found.cost))
            if is_better:
                self._ascend(max(20, self._rounds // 3))
            if self.found.is_proven or not (is_better and is_question):
                return width is None

    def _labels(self) -> Labels:  # type: ignore[type-arg]
        if isinstance(self._prices, Prices):
            return LatencyLabels(self._space, self._prices)
        return ThroughputLabels(self._space, self._prices, self.found.cost * (1 - _NEAR))

    def _ascend(self, rounds: int) -> None:
        for assignment in self._prices.ascend(rounds, self.found.cost, self._budget):
            self._offer(assignment)
        self._raise(self._prices.bound)
        if rounds > 1 and not self.found.is_proven and not self._is_large:
            self._prices.ready(self._budget)

    def _raise(self, bound: float) -> None:
        self.found.bound = max(self.found.bound, bound)

    def _offer(self, assignment: list[int]) -> bool:
        """Take a plan if it is better than what is known."""
        problem, stages = self._space.problem, self._space.stages(assignment)
        members, count = self._space.forced
        used = sum(1 << device for device in set(assignment))
        if (used & members).bit_count() < count or self._returns_too_often(stages):
            return False
        evaluation = evaluate(problem, stages)
        if evaluation.value is None:
            return False
        cost = seconds_of(problem.objective, evaluation.value)
        if cost >= self.found.cost * (1 - TIE):
            return False
        self.found.cost, self.found.stages, self.found.evaluation = cost, stages, evaluation
        return True

    def _returns_too_often(self, stages: Stages) -> bool:
        most = self._space.problem.returns
        return most is not None and returns_of(stages) > most
