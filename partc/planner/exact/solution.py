"""Results of a solver: the best plan it knows, and a bound on all plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partc.format.placement import Stage, Stages
from partc.planner.exact.objective import TIE
from partc.planner.exact.tables import Forced, Tables
from partc.planner.model.evaluate import Evaluation
from partc.planner.model.objectives import by_objective, seconds_of
from partc.planner.model.problem import Problem


@dataclass(frozen=True)
class Solution:
    """The best plan and how far it is proven."""

    stages: Stages
    evaluation: Evaluation
    bound: float | None
    """The bound in the unit of the objective: seconds, or steps per second; None: not known."""
    method: str

    @property
    def value(self) -> float:
        """Seconds or steps per second."""
        return self.evaluation.value or 0.0


@dataclass(frozen=True)
class Best:
    """The end of a search for the best plan."""

    solution: Solution | None
    """The best plan that was found."""
    proven: bool
    """Whether it is proven that no plan is better; without a solution, that there is none."""
    trouble: str = ""
    """The searches that found nothing, with their reasons."""


Solve = Callable[[Problem, Forced | None], Best]
"""Looks for the best plan, or for the best that uses a device."""


def cost_of(problem: Problem, value: float) -> float:
    """Seconds to be minimised: a latency, or the bottleneck of a throughput. Its own inverse."""
    return seconds_of(problem.objective, value)


def bound_of(problem: Problem, value: float, least_s: float) -> float | None:
    """A proven least cost in the unit of the objective, never on the wrong side of the value.

    Costs that differ by rounding alone are equal. That a bottleneck takes no less than no time bounds nothing.
    """
    cost = cost_of(problem, value)
    if least_s >= cost * (1 - len(problem.submodules) * TIE):
        return value
    if least_s <= 0:
        return by_objective(problem.objective, latency=0.0, throughput=None)
    return cost_of(problem, least_s)


def named(tables: Tables, intervals: Sequence[tuple[int, int]]) -> Stages:
    """(type, end) of intervals as stages: the members of a type in the order of the devices."""
    members = [iter(names) for names in tables.types]
    begins = [0, *(end for _, end in intervals)]
    return tuple(
        Stage((begin, end - 1), (name,))
        for (kind, end), begin in zip(intervals, begins, strict=False)
        for name in [next(members[kind])]
        if end > begin
    )
