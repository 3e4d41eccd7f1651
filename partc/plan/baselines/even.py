"""The strategy `even`: the baseline of EdgeShard and LinguaLinked, equal shares for all devices."""

from __future__ import annotations

from partc.plan.answer import Plan, feasible_plan, infeasible_plan
from partc.plan.evaluate import evaluate
from partc.plan.exact.optimal import lower_bound
from partc.plan.problem import Problem


def plan_even(problem: Problem) -> Plan:
    """Sub-modules in equal numbers over the devices in their order, round from the source.

    The numbers differ by one at most, the larger ones first; with more devices than sub-modules the last
    ones get nothing. Speeds, memory and links are not looked at: where they forbid it, the plan is
    infeasible. The bound is that of the best plan, so that the gap says what the baseline gives away.
    """
    names = list(problem.device_of)
    first = names.index(problem.source)
    ring = (names[first:] + names[:first])[: len(problem.submodules)]
    size, larger = divmod(len(problem.submodules), len(ring))
    assignment = tuple(name for k, name in enumerate(ring) for _ in range(size + (k < larger)))
    evaluation = evaluate(problem, assignment)
    method = "equal numbers of sub-modules"
    if evaluation.value is None:
        return infeasible_plan(f"equal numbers of sub-modules: {'; '.join(evaluation.violations)}", method)
    return feasible_plan(assignment, evaluation.value, _bound(problem, evaluation.value), method, {})


def _bound(problem: Problem, value: float) -> float | None:
    """The lower (upper) bound, never on the wrong side of the value by rounding."""
    bound = lower_bound(problem)
    if bound is None:
        return None
    return min(bound, value) if problem.objective == "latency" else max(bound, value)
