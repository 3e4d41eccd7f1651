"""The strategy `optimal`: the best plan, and the proof that it is.

A device may have several intervals of sub-modules, as in EdgeShard's Eq. 2-6 and LinguaLinked's Eq. 5, unless the
problem's `returns` says how often at most. First the best plan with one interval per device (`exact`), which is mostly
the best of all; then whether one that returns is better, and a bound on all of them (`returns`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from partc.errors import PlanError
from partc.format.placement import Stages
from partc.format.plan import Plan, feasible_plan, infeasible_plan
from partc.planner.exact.drafted import seek_drafted
from partc.planner.exact.intervals import seek_intervals
from partc.planner.exact.results import has_results, seek_with_results
from partc.planner.exact.returns.search import Returning, seek_returning
from partc.planner.exact.solution import Best, Solution, bound_of, cost_of
from partc.planner.exact.tables import Forced
from partc.planner.model.effort import QUESTION, QUICK, THOROUGH, Budget, Effort
from partc.planner.model.infeasible import why_infeasible
from partc.planner.model.objectives import best_of
from partc.planner.model.problem import Problem
from partc.planner.model.stages import returns_of

_MOST_ROUNDS = 100
"""Rounds of better prices for plans that return."""


def plan_optimal(problem: Problem, effort: Effort = THOROUGH) -> Plan:
    """The best plan; with a gap where the work allowed did not suffice for a proof.

    Raises:
        PlanError: there may be a plan, but none was found.
    """
    solution = find_best(problem, effort=effort)
    if solution is None:
        return infeasible_plan(why_infeasible(problem, is_feasible), "exact search")
    return feasible_plan(solution.stages, solution.value, solution.bound, solution.method)


def find_best(
    problem: Problem, *, forced: Forced | None = None, effort: Effort = THOROUGH
) -> Solution | None:
    """The best plan that is found, or None where there is none.

    Raises:
        PlanError: there may be a plan, but none was found.
    """
    best = seek_best(problem, forced=forced, effort=effort)
    if best.solution is None and not best.proven:
        raise PlanError(
            f"no plan was found ({best.trouble})", hint="use fewer devices or coarser sub-modules"
        )
    return best.solution


def seek_best(
    problem: Problem,
    *,
    forced: Forced | None = None,
    effort: Effort = THOROUGH,
    within: Budget | None = None,
) -> Best:
    """The best plan that is found with so much work, and whether that is proven.

    `within`: work that several solves have in common.
    """
    if has_results(problem):
        return seek_with_results(
            problem, lambda other: seek_best(other, forced=forced, effort=effort, within=within)
        )
    if problem.drafted:
        seek = partial(_seek_weighed, forced=forced, effort=effort)
        return seek_drafted(problem, seek, effort, within, must_use_others=forced is not None)
    return _seek_weighed(problem, forced=forced, effort=effort, within=within)


def _seek_weighed(
    problem: Problem, *, forced: Forced | None = None, effort: Effort, within: Budget | None = None
) -> Best:
    """The same where the objective is a sum over phases, or the longest busy time."""
    best = seek_intervals(problem, forced=forced, effort=effort, within=within)
    if problem.returns == 0 or len(problem.submodules) < 3 or len(problem.devices) < 2:
        return best
    known = cost_of(problem, best.solution.value) if best.solution else math.inf
    budget = Budget(min(effort.returns, within.left if within else math.inf), effort.limit_s, within)
    rounds = min(effort.rounds, _MOST_ROUNDS)
    return _best_of_all(problem, best, seek_returning(problem, known, budget, rounds=rounds, forced=forced))


def without_returns(problem: Problem) -> Problem:
    """The problem whose plans have one interval per device."""
    return replace(problem, returns=0)


def _best_of_all(problem: Problem, best: Best, found: Returning) -> Best:
    """The better of the plans with one interval per device and of all, with the bound of all."""
    if found.stages is None or found.evaluation is None:
        if best.solution is None:
            trouble = "" if found.is_proven else best.trouble or "plans that return: out of work"
            return Best(None, found.is_proven, trouble)
        bound = bound_of(problem, best.solution.value, 0.0 if math.isinf(found.bound) else found.bound)
        if found.is_proven:
            return Best(replace(best.solution, bound=best.solution.value), True)
        method = f"{best.solution.method}; whether a plan that returns is better was not settled"
        return Best(replace(best.solution, bound=bound, method=method), False)
    solution = Solution(found.stages, found.evaluation, None, "prices and labels, over plans that may return")
    bound = solution.value if found.is_proven else bound_of(problem, solution.value, max(found.bound, 0.0))
    method = solution.method + ("" if found.is_proven else ", stopped before the proof")
    return Best(replace(solution, bound=bound, method=method), found.is_proven)


def lower_bound(problem: Problem) -> float | None:
    """The bound of all plans: below a latency, above a throughput; None where it is not known."""
    solution = seek_best(problem, effort=QUICK).solution
    return solution.bound if solution else None


def bound_beside(problem: Problem, value: float, stages: Stages) -> float | None:
    """The bound of all plans beside one of this value, never on the wrong side by rounding.

    Of all that return, too, where the plan does so more often than the problem allows.
    """
    is_allowed = problem.returns is None or returns_of(stages) <= problem.returns
    bound = lower_bound(problem if is_allowed else replace(problem, returns=None))
    if bound is None:
        return None
    return best_of(problem.objective)((bound, value))


def is_feasible(problem: Problem) -> bool | None:
    """Whether there is a plan; None where neither was shown."""
    best = seek_best(replace(problem, drafts=None), effort=QUESTION)
    if best.solution is not None:
        return True
    return False if best.proven else None
