"""The strategies by name, and the one function that the rest of the compiler calls to plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from partc.errors import PlanError
from partc.plan.answer import Plan
from partc.plan.problem import Problem

STRATEGIES: Mapping[str, str] = {
    "optimal": "partc.plan.exact.optimal:plan_optimal",
    "even": "partc.plan.baselines.even:plan_even",
}
"""Every strategy by the name that `--strategy` takes; loaded on first use."""

Strategy = Callable[[Problem], Plan]
"""Pure: it reads a problem and returns a plan, feasible or with the constraint that cannot be met."""


def load_strategy(name: str) -> Strategy:
    """The strategy of that name; raises PlanError if there is none."""
    if name not in STRATEGIES:
        raise PlanError(f"unknown strategy `{name}`", hint=f"choose one of: {', '.join(STRATEGIES)}")
    module, _, function = STRATEGIES[name].partition(":")
    strategy: Strategy = getattr(import_module(module), function)
    return strategy


def solve(problem: Problem, strategy: str = "optimal") -> Plan:
    """The plan of a strategy for a problem."""
    return load_strategy(strategy)(problem)
