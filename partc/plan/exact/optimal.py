"""The strategy `optimal`: the best plan with one interval per device, and the proof that it is.

| devices | search | bound |
|---|---|---|
| few unlike ones, or many of few types | branch and bound on exact prefixes | dynamic programme over sets |
| many unlike ones | local search over orders, polished by the exact search | Lagrangian relaxation |

A search that fails, for want of time or memory or through a mistake of ours, hands over to the next one;
the last is a greedy that cannot fail. `Solution.method` says what happened.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from partc.errors import InternalError, PlanError
from partc.plan.answer import Plan, feasible_plan, infeasible_plan
from partc.plan.evaluate import evaluate
from partc.plan.exact.bound import MAX_STEPS, Bound, TimeUp, steps
from partc.plan.exact.greedy import place_greedily
from partc.plan.exact.large import LargeSearch
from partc.plan.exact.objective import TIE, bottleneck_objective, devices_objective, latency_objective
from partc.plan.exact.search import Found, Label, Search
from partc.plan.exact.solution import Solution, bound_of, cost_of, named
from partc.plan.exact.tables import Tables
from partc.plan.infeasible import why_infeasible
from partc.plan.problem import Problem

LIMIT_S = 90.0
"""Default limit of a solve; small problems take milliseconds."""
_QUICK_S = 3.0
"""Limit of a quick solve."""
_QUICK_PART = 1 / 30
"""Of the steps that are borne otherwise."""
_EXACT_PART = 0.5
"""Of the time, for the exact search before another takes over."""


def plan_optimal(problem: Problem, limit_s: float = LIMIT_S) -> Plan:
    """The best plan; with a gap where the time did not suffice for a proof.

    Raises:
        PlanError: there may be a plan, but none was found in the time.
    """
    solution = find_best(problem, limit_s=limit_s)
    if solution is None:
        return infeasible_plan(why_infeasible(problem, _is_feasible), "exact search")
    return feasible_plan(solution.assignment, solution.value, solution.bound, solution.method, {})


def find_best(
    problem: Problem,
    *,
    forced: tuple[int, int] | None = None,
    limit_s: float = LIMIT_S,
    quick: bool = False,
) -> Solution | None:
    """The best assignment, or None where there is none.

    `forced` (type, count) asks for so many devices of a type of `Tables.types`. `quick` leaves out the proof
    and takes some seconds at most; None then says only that no plan was found.

    Raises:
        PlanError: there may be a plan, but none was found in the time (never where it is quick).
    """
    deadline = time.monotonic() + (min(limit_s, _QUICK_S) if quick else limit_s)
    tables, trouble = Tables(problem), []
    searches = [("local search", _search_large)]
    if steps(tables.capacity, tables.count) <= MAX_STEPS * (_QUICK_PART if quick else 1):
        searches.insert(0, ("exact search", _search_exactly))
    for name, search in searches:
        try:
            solution = search(tables, forced, deadline, quick)
        except Exception as error:
            # Also a mistake of ours must not take the compiler down: another search stands behind this one.
            trouble.append(f"{name}: {_in_words(error)}")
            continue
        if solution is None or not trouble:
            return solution
        return replace(solution, method=f"{solution.method} ({'; '.join(trouble)})")
    solution = None if forced else _last_resort(problem, trouble)
    if solution is None and not quick:
        raise PlanError(
            f"no plan was found ({'; '.join(trouble)})", hint="use fewer devices or coarser sub-modules"
        )
    return solution


def lower_bound(problem: Problem) -> float | None:
    """What no latency can be below, or no throughput above; None where no plan was found."""
    solution = find_best(problem, quick=True)
    return solution.bound if solution else None


def _search_exactly(
    tables: Tables, forced: tuple[int, int] | None, deadline: float, quick: bool
) -> Solution | None:
    """The dynamic programme and branch and bound; raises TimeUp where its part of the time brought nothing."""
    problem = tables.problem
    now = time.monotonic()
    until = now + (deadline - now) * _EXACT_PART
    first = latency_objective(tables) if problem.objective == "latency" else bottleneck_objective(tables)
    found = Search(tables, Bound(tables, first, forced, until), until).run(dive_only=quick)
    if found.best is None:
        if np.isfinite(found.bound):
            raise TimeUp
        return None
    best = found.best
    if problem.objective == "throughput" and not quick:
        best = _fewer_devices(tables, best, forced, deadline)
    return _solution(tables, best, found)


def _fewer_devices(tables: Tables, best: Label, forced: tuple[int, int] | None, deadline: float) -> Label:
    """The plan with the fewest devices that is as fast; `best` itself where time runs out."""
    try:
        bound = Bound(tables, devices_objective(best.cost), forced, deadline)
    except TimeUp:
        return best
    return Search(tables, bound, deadline).run().best or best


def _search_large(
    tables: Tables, forced: tuple[int, int] | None, deadline: float, quick: bool
) -> Solution | None:
    """Bounds by prices and local search; then exactly over the devices of the plan it found."""
    now = time.monotonic()
    large = LargeSearch(tables, deadline if quick else now + 0.8 * (deadline - now), forced, quick=quick)
    if large.run().infeasible:
        return None
    if large.best and tables.problem.objective == "latency" and not quick and not forced:
        now = time.monotonic()
        large.close(now + (deadline - now) / 2)
    solution = large.solution()
    if solution is None:
        raise TimeUp
    return solution if quick or forced else _polished(tables.problem, solution, deadline)


def _polished(problem: Problem, solution: Solution, deadline: float) -> Solution:
    """The best plan over the devices that a plan uses, where an exact search can bear that."""
    used = set(solution.assignment)
    part = Tables(replace(problem, devices=tuple(d for d in problem.devices if d.name in used)))
    if solution.value == solution.bound or steps(part.capacity, part.count) > MAX_STEPS / 4:
        return solution
    try:
        better = _search_exactly(part, None, deadline, quick=False)
    except TimeUp:
        return solution
    if better is None or cost_of(problem, better.value) >= cost_of(problem, solution.value):
        return solution
    least = cost_of(problem, solution.bound)
    return replace(
        better, bound=bound_of(problem, better.value, least), method=f"{solution.method}, polished exactly"
    )


def _last_resort(problem: Problem, trouble: list[str]) -> Solution | None:
    """A plan without a proof, when every search has failed."""
    assignment = place_greedily(problem)
    evaluation = evaluate(problem, assignment) if assignment else None
    if assignment is None or evaluation is None or evaluation.value is None:
        return None
    worst = 0.0 if problem.objective == "latency" else cost_of(problem, 0.0)
    return Solution(assignment, evaluation, worst, f"greedy ({'; '.join(trouble)})")


def _in_words(error: Exception) -> str:
    if isinstance(error, TimeUp):
        return "out of time"
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"failed, {type(error).__name__} {error}"


def _is_feasible(problem: Problem) -> bool:
    try:
        return find_best(problem, limit_s=10.0) is not None
    except PlanError:
        return False


def _solution(tables: Tables, best: Label, found: Found) -> Solution:
    problem = tables.problem
    assignment = named(tables, [(kind, end) for kind, _, end in best.intervals()])
    evaluation = evaluate(problem, assignment)
    if evaluation.value is None:
        raise InternalError(f"the solver's plan breaks a constraint: {evaluation.violations[0]}")
    cost = cost_of(problem, evaluation.value)
    proven = found.best is not None and found.bound >= found.best.estimate * (1 - TIE)
    # What was added for each device is no part of the value.
    least = cost if proven else min(cost, found.bound - len(problem.devices) * TIE * cost)
    method = "dynamic programming" + (", then branch and bound" if found.expanded else "")
    return Solution(
        assignment,
        evaluation,
        evaluation.value if proven else cost_of(problem, max(0.0, least)),
        method + ("" if proven else ", stopped before the proof"),
    )
