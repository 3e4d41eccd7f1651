"""The strategies by name, and the one function that the rest of the compiler calls to plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from partc.errors import PlanError

if TYPE_CHECKING:  # the command line reads the names below for its help, and must stay quick
    from partc.plan.answer import Plan
    from partc.plan.problem import Problem
    from partc.plan.what_if import Best

STRATEGIES: Mapping[str, str] = {
    "optimal": "partc.plan.exact.optimal:plan_optimal",
    "even": "partc.plan.baselines.even:plan_even",
    "edgeshard-latency": "partc.plan.baselines.edgeshard_latency:plan_edgeshard_latency",
    "edgeshard-throughput": "partc.plan.baselines.edgeshard_throughput:plan_edgeshard_throughput",
    "lingualinked": "partc.plan.baselines.lingualinked:plan_lingualinked",
}
"""Every strategy by the name that `--strategy` takes; loaded on first use."""

ABOUT: Mapping[str, str] = {
    "optimal": "the best plan, proven",
    "even": "equal numbers for all devices",
    "edgeshard-latency": "EdgeShard's Algorithm 1",
    "edgeshard-throughput": "EdgeShard's Algorithm 2",
    "lingualinked": "LinguaLinked's Eq. 5, devices may be returned to",
}
"""What each is, in a few words."""

_PROVEN_STEPS = 5e6
"""Steps of a solve (`what_if.solve_steps`) up to which an explanation asks for a proof: some 20 ms."""
_PROVEN_LIMIT_S = 10.0
"""So that no freak problem holds up the explanation; hundreds of times what such solves take."""

Strategy: TypeAlias = "Callable[[Problem], Plan]"
"""Pure: it reads a problem and returns a plan, feasible or with the constraint that cannot be met."""


def load_strategy(name: str) -> Strategy:
    """The strategy of that name; raises PlanError if there is none."""
    if name not in STRATEGIES:
        raise PlanError(f"unknown strategy `{name}`", hint=f"choose one of: {', '.join(STRATEGIES)}")
    module, _, function = STRATEGIES[name].partition(":")
    strategy: Strategy = getattr(import_module(module), function)
    return strategy


def solve(problem: Problem, strategy: str = "optimal", *, explained: bool = True) -> Plan:
    """The plan of a strategy for a problem; `explained` adds why it is so, which takes further solves."""
    plan = load_strategy(strategy)(problem)
    return with_explanation(problem, plan, free=strategy == "optimal") if explained else plan


def with_explanation(problem: Problem, plan: Plan, *, free: bool) -> Plan:
    """The plan with `explain` filled in; what the strategy itself wrote there wins.

    `free` says that the planner chose the assignment as the best it knew; else it stays as it is, whatever
    changes, and is compared with the best one.
    """
    if plan.assignment is None:
        return plan
    from partc.plan.explain import explain

    return replace(plan, explain={**explain(problem, plan.assignment, _best, free=free), **plan.explain})


def _best(problem: Problem, forced: tuple[int, int] | None) -> Best | None:
    """The best plan of a small problem; of a larger one the best that is found without a proof."""
    from partc.plan.exact.optimal import find_best
    from partc.plan.what_if import Best, solve_steps

    proven = solve_steps(problem) <= _PROVEN_STEPS
    try:
        solution = find_best(problem, forced=forced, limit_s=_PROVEN_LIMIT_S, quick=not proven)
    except PlanError:
        return None
    return Best(solution.value, solution.assignment) if solution else None
