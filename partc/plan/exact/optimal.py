"""The strategy `optimal`: the best plan with one interval per device, and the proof that it is."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from partc.errors import InternalError, PlanError
from partc.plan.answer import Plan, feasible_plan, infeasible_plan
from partc.plan.evaluate import Evaluation, evaluate
from partc.plan.exact.bound import MAX_STEPS, Bound, steps
from partc.plan.exact.objective import TIE, bottleneck_objective, devices_objective, latency_objective
from partc.plan.exact.search import Found, Label, Search
from partc.plan.exact.tables import Tables
from partc.plan.explain import explain
from partc.plan.infeasible import why_infeasible
from partc.plan.problem import Device, Problem


@dataclass(frozen=True)
class Solution:
    """The best assignment and how far it is proven."""

    assignment: tuple[str, ...]
    evaluation: Evaluation
    bound: float
    """In the unit of the objective: seconds, or steps per second."""
    method: str

    @property
    def value(self) -> float:
        """Seconds or steps per second."""
        return self.evaluation.value or 0.0


def plan_optimal(problem: Problem, limit_s: float = 60.0) -> Plan:
    """The best plan; with a gap where the time did not suffice for a proof.

    Raises:
        PlanError: there may be a plan, but none was found in the time.
    """
    solution = find_best(problem, limit_s=limit_s)
    if solution is None:
        return infeasible_plan(why_infeasible(problem, _is_feasible), "exact search")
    notes = explain(problem, solution.evaluation, _quick_value)
    return feasible_plan(solution.assignment, solution.value, solution.bound, solution.method, notes)


def find_best(
    problem: Problem, *, forced: tuple[int, int] | None = None, limit_s: float = 60.0, quick: bool = False
) -> Solution | None:
    """The best assignment, or None where there is none.

    `forced` (type, count) asks for so many devices of a type of `Tables.types`; `quick` leaves out the proof.
    """
    tables = Tables(problem)
    first = latency_objective(tables) if problem.objective == "latency" else bottleneck_objective(tables)
    bound = Bound(tables, first, forced)
    if not bound.exact_devices:
        return _best_of_few(tables, bound, limit_s)
    found = Search(tables, bound, limit_s).run(dive_only=quick)
    if found.best is None:
        if not quick and np.isfinite(found.bound):
            raise PlanError("no plan was found in time", hint="use fewer devices or coarser sub-modules")
        return None
    best = found.best
    if problem.objective == "throughput" and not quick:
        fewer = Search(tables, Bound(tables, devices_objective(best.cost), forced), limit_s).run()
        best = fewer.best or best
    return _solution(tables, best, found)


def lower_bound(problem: Problem) -> float | None:
    """What no latency can be below, or no throughput above; None where no plan was found."""
    try:
        solution = find_best(problem, quick=True)
    except PlanError:
        return None
    return solution.bound if solution else None


def _best_of_few(tables: Tables, bound: Bound, limit_s: float) -> Solution | None:
    """For too many unlike devices: the best plan over some of them, with a bound that holds for all.

    The devices are once those that compute fastest and once those with the most memory, as many as an exact
    search bears; the bound lets devices be used again.

    Raises:
        PlanError: no plan was found, though there may be one.
    """
    problem, least = tables.problem, float(bound.start().min())
    if not np.isfinite(least):
        return None
    few = 1
    while steps((0, *(1 for _ in range(few))), tables.count) <= MAX_STEPS / 4:
        few += 1
    others = [device for device in problem.devices if device.name != problem.source]
    solutions = []
    for rank in (_total_seconds, _negative_memory):
        chosen = {device.name for device in sorted(others, key=partial(rank, problem))[: few - 1]}
        part = tuple(device for device in problem.devices if device.name in {problem.source, *chosen})
        if (solution := find_best(replace(problem, devices=part), limit_s=limit_s / 2)) is not None:
            solutions.append(solution)
    if not solutions:
        raise PlanError("no plan was found in time", hint="use fewer devices or coarser sub-modules")
    if problem.objective == "latency":
        best = min(solutions, key=lambda solution: solution.value)
        limit = min(best.value, least - len(problem.devices) * TIE * best.value)
    else:
        best = max(solutions, key=lambda solution: solution.value)
        limit = max(best.value, 1.0 / max(least, sys.float_info.min))
    return replace(best, bound=limit, method=f"{best.method}, over {few} of {len(problem.devices)} devices")


def _total_seconds(problem: Problem, device: Device) -> float:
    """Seconds of the whole model on one device; what it cannot run counts as a day."""
    return sum(times.get(device.name, 86400.0) for phase in problem.steps for times in phase.time_s)


def _negative_memory(problem: Problem, device: Device) -> float:
    """Ranks the devices with the most memory first."""
    return device.overhead_bytes - device.memory_bytes


def _is_feasible(problem: Problem) -> bool:
    try:
        return find_best(problem, limit_s=10.0) is not None
    except PlanError:
        return False


def _quick_value(problem: Problem, forced: tuple[int, int] | None) -> float | None:
    solution = find_best(problem, forced=forced, quick=True)
    return solution.value if solution else None


def _solution(tables: Tables, best: Label, found: Found) -> Solution:
    problem = tables.problem
    assignment = _names(tables, best)
    evaluation = evaluate(problem, assignment)
    if evaluation.value is None:
        raise InternalError(f"the solver's plan breaks a constraint: {evaluation.violations[0]}")
    cost = evaluation.value if problem.objective == "latency" else 1.0 / evaluation.value
    proven = found.best is not None and found.bound >= found.best.estimate * (1 - TIE)
    # What was added for each device is no part of the value.
    least = cost if proven else max(0.0, min(cost, found.bound - len(problem.devices) * TIE * cost))
    bound = least if problem.objective == "latency" else 1.0 / max(least, sys.float_info.min)
    method = "dynamic programming" + (", then branch and bound" if found.expanded else "")
    return Solution(
        assignment,
        evaluation,
        evaluation.value if proven else bound,
        method + ("" if proven else ", stopped before the proof"),
    )


def _names(tables: Tables, label: Label) -> tuple[str, ...]:
    """The device of every sub-module: the members of a type in the order of the devices."""
    members = [iter(names) for names in tables.types]
    return tuple(
        name for kind, first, end in label.intervals() for name in [next(members[kind])] * (end - first)
    )
