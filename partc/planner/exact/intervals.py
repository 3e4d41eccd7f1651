"""The best plan with one interval per device, and the proof that it is.

| devices | search | bound |
|---|---|---|
| few unlike ones, or many of few types | branch and bound on exact prefixes | dynamic programme over sets |
| many unlike ones | local search over orders, polished by the exact search | Lagrangian relaxation |

A search that has spent its work or runs out of memory hands over to the next one; the last is a greedy that always
ends. `Solution.method` says what happened. Any other failure of a search is a bug and ends the compile.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from partc.errors import InternalError
from partc.planner.exact.bound import Bound, operations
from partc.planner.exact.greedy import place_greedily
from partc.planner.exact.large import LargeSearch
from partc.planner.exact.objective import TIE, bottleneck_objective, devices_objective, latency_objective
from partc.planner.exact.search import Found, Label, Search
from partc.planner.exact.solution import Best, Solution, bound_of, cost_of, named
from partc.planner.exact.tables import Forced, Tables
from partc.planner.model.effort import GAVE_UP, THOROUGH, Budget, Effort, NothingFound, WorkSpent
from partc.planner.model.evaluate import evaluate
from partc.planner.model.objectives import by_objective
from partc.planner.model.problem import Problem

_EXACT_PART = 0.5
"""The part of the work for the exact search, before another takes over."""


def seek_intervals(
    problem: Problem,
    *,
    forced: Forced | None = None,
    effort: Effort = THOROUGH,
    within: Budget | None = None,
) -> Best:
    """The best plan that is found with so much work, and whether that is proven.

    `within`: work that several solves have in common.
    """
    tables, trouble = Tables(problem, forced), []
    most = within.left if within else math.inf
    budget = Budget(min(effort.programme + effort.search, most), effort.limit_s, within)
    searches = [("local search", _search_large)]
    if operations(tables.capacity, tables.count) <= effort.programme:
        searches.insert(0, ("exact search", _search_exactly))
    for name, search in searches:
        try:
            solution = search(tables, budget, effort)
        except GAVE_UP as error:
            trouble.append(f"{name}: {_in_words(error, budget)}")
            continue
        if solution is None:
            return Best(None, True)
        return Best(_with_notes(solution, trouble, budget), solution.bound == solution.value)
    return Best(None if forced else _last_resort(problem, trouble), False, "; ".join(trouble))


def _with_notes(solution: Solution, trouble: list[str], budget: Budget) -> Solution:
    """The method with what went wrong on the way; the clock makes a plan that another run may not find again."""
    notes = [*trouble, *(["stopped by the clock"] if budget.braked else [])]
    return replace(solution, method=f"{solution.method} ({'; '.join(notes)})") if notes else solution


def _search_exactly(tables: Tables, whole: Budget, effort: Effort) -> Solution | None:
    """The dynamic programme and branch and bound.

    Raises:
        WorkSpent: its part of the work brought nothing.
    """
    problem = tables.problem
    budget = whole.part(_EXACT_PART, share_time=True)
    made = by_objective(problem.objective, latency=latency_objective, throughput=bottleneck_objective)
    first = made(tables)
    found = Search(tables, Bound(tables, first, budget), budget).run(dive_only=not effort.proves)
    if found.best is None:
        if np.isfinite(found.bound):
            raise WorkSpent
        return None
    solution = _solution(tables, found.best, found)
    may_need_fewer = by_objective(problem.objective, latency=False, throughput=True)
    if not may_need_fewer or not effort.proves:
        return solution
    try:
        return _solution(tables, _fewest_devices(tables, found.best, budget), found)
    except GAVE_UP:
        return solution  # the fewest devices are a nicety: as fast a plan is at hand


def _fewest_devices(tables: Tables, best: Label, budget: Budget) -> Label:
    """The plan with the fewest devices that is as fast, as far as it is found."""
    bound = Bound(tables, devices_objective(best.cost), budget)
    return Search(tables, bound, budget).run().best or best


def _search_large(tables: Tables, whole: Budget, effort: Effort) -> Solution | None:
    """Bounds by prices and local search; then exactly over the devices of the plan it found.

    Raises:
        NothingFound: neither a plan nor the proof that there is none.
    """
    large = LargeSearch(tables, whole.part(0.8 if effort.proves else 1.0), effort)
    if large.run().infeasible:
        return None
    further = effort.proves and not any(tables.least)
    may_close = by_objective(tables.problem.objective, latency=True, throughput=False)
    if large.best and further and may_close:
        large.close(whole.part(0.5))
    solution = large.solution()
    if solution is None:
        raise WorkSpent if whole.is_spent else NothingFound
    return _polished(tables.problem, solution, whole, effort) if further else solution


def _polished(problem: Problem, solution: Solution, budget: Budget, effort: Effort) -> Solution:
    """The best plan over the devices that a plan uses, where an exact search can bear that."""
    used = {stage.device for stage in solution.stages}
    part = Tables(replace(problem, devices=tuple(d for d in problem.devices if d.name in used)))
    if solution.value == solution.bound or operations(part.capacity, part.count) > effort.programme / 4:
        return solution
    try:
        better = _search_exactly(part, budget, effort)
    except WorkSpent:
        return solution
    except GAVE_UP as error:
        return replace(solution, method=f"{solution.method}, polishing {_in_words(error, budget)}")
    if better is None or cost_of(problem, better.value) >= cost_of(problem, solution.value):
        return solution
    least = cost_of(problem, solution.bound) if solution.bound is not None else 0.0
    return replace(
        better, bound=bound_of(problem, better.value, least), method=f"{solution.method}, polished exactly"
    )


def _last_resort(problem: Problem, trouble: list[str]) -> Solution | None:
    """A plan without a proof, when every search has failed."""
    stages = place_greedily(problem)
    evaluation = evaluate(problem, stages) if stages else None
    if stages is None or evaluation is None or evaluation.value is None:
        return None
    return Solution(stages, evaluation, None, f"greedy ({'; '.join(trouble)})")


def _in_words(error: Exception, budget: Budget) -> str:
    if isinstance(error, WorkSpent):
        return "out of time" if budget.braked else "at the end of the work allowed to it"
    if isinstance(error, NothingFound):
        return "found no plan"
    return "out of memory"


def _solution(tables: Tables, best: Label, found: Found) -> Solution:
    problem = tables.problem
    stages = named(tables, [(kind, end) for kind, _, end in best.intervals()])
    evaluation = evaluate(problem, stages)
    if evaluation.value is None:
        raise InternalError(f"the solver's plan breaks a constraint: {evaluation.violations[0]}")
    cost = cost_of(problem, evaluation.value)
    proven = found.best is not None and found.bound >= found.best.estimate * (1 - TIE)
    # What was added for each device is no part of the value.
    least = cost if proven else min(cost, found.bound - len(problem.devices) * TIE * cost)
    method = "dynamic programming" + (", then branch and bound" if found.expanded else "")
    return Solution(
        stages,
        evaluation,
        evaluation.value if proven else bound_of(problem, evaluation.value, least),
        method + ("" if proven else ", stopped before the proof"),
    )
