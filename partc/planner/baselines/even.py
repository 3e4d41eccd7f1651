"""The strategy `even`: the baseline of EdgeShard and LinguaLinked, equal shares for all devices."""

from __future__ import annotations

from partc.format.placement import stages_of
from partc.format.plan import Plan
from partc.planner.baselines.valued import valued_plan
from partc.planner.model.problem import Problem


def plan_even(problem: Problem) -> Plan:
    """Sub-modules in equal numbers over the devices that can run any, in their order, round from the source.

    The numbers differ by one at most, the larger ones first; with more devices than sub-modules the last
    ones get nothing. Speeds, memory and links are not looked at: where they forbid it, the plan is
    infeasible. The bound is that of the best plan, so that the gap says what the baseline gives away.
    """
    names = [name for name in problem.device_of if name in problem.able or name == problem.source]
    first = names.index(problem.source)
    ring = (names[first:] + names[:first])[: len(problem.submodules)]
    size, larger = divmod(len(problem.submodules), len(ring))
    assignment = [name for k, name in enumerate(ring) for _ in range(size + (k < larger))]
    return valued_plan(problem, stages_of(assignment), "equal numbers of sub-modules")
