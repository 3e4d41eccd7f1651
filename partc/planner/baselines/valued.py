"""Plans of the baselines at their true value: that of `evaluate`, not the paper's own estimate."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from partc.format.placement import Stages
from partc.format.plan import Plan, feasible_plan, infeasible_plan
from partc.planner.exact.optimal import bound_beside, find_best, plan_optimal, seek_best
from partc.planner.exact.solution import Solution
from partc.planner.model.effort import QUICK
from partc.planner.model.evaluate import evaluate
from partc.planner.model.objectives import by_objective
from partc.planner.model.problem import Problem


def valued_plan(problem: Problem, stages: Stages, method: str, fault: str = "") -> Plan:
    """The plan with its true value, or what it violates, and `fault`, the reason why the strategy did not see it.

    The bound is that of the best plan with one interval per device, so that the gap says what the baseline
    gives away. A plan that returns to a device may be better than all of those: for it no bound is known.
    """
    evaluation = evaluate(problem, stages)
    if evaluation.value is None:
        return infeasible_plan(f"{method}: {'; '.join(evaluation.violations)}{fault}", method)
    bound = bound_beside(problem, evaluation.value, stages)
    return feasible_plan(stages, evaluation.value, bound, method)


def missed_plan(problem: Problem, method: str, fault: str) -> Plan:
    """The answer where the strategy has no plan: the reason why there is none, or `fault` if there is one."""
    best = _some_plan(problem)
    if best is None:
        return structs.replace(plan_optimal(problem), method=method)
    if _some_plan(_added_up(problem)) is None:
        fault = (
            "it adds up the activations and shared weights of every sub-module on a device, which have room "
            "only if they are counted once"
        )
    unit = by_objective(problem.objective, latency="s", throughput="steps/s")
    return infeasible_plan(
        f"{method} finds no plan, although there is one of {best.value:.4g} {unit}: {fault}", method
    )


def _some_plan(problem: Problem) -> Solution | None:
    """A plan without a proof where that is at hand; None only where there is none."""
    return seek_best(problem, effort=QUICK).solution or find_best(problem)


def _added_up(problem: Problem) -> Problem:
    """The problem with memory as the papers have it: a sum of what each sub-module needs alone."""
    parts = tuple(
        replace(part, memory_bytes=problem.memory_of([j]), peak_bytes=0, shared=None)
        for j, part in enumerate(problem.submodules)
    )
    return replace(problem, submodules=parts)
