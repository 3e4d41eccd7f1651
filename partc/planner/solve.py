"""The strategies by name, and the one function that the rest of the compiler calls to plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from partc.errors import PlanError
from partc.pipeline.sharing import SHARING

if TYPE_CHECKING:  # the command line reads the names below for its help, and must stay quick
    from partc.format.plan import Plan
    from partc.planner.exact.solution import Solve
    from partc.planner.model.problem import Problem

STRATEGIES: Mapping[str, str] = {
    "optimal": "partc.planner.exact.optimal:plan_optimal",
    "optimal-groups": "partc.planner.groups.best_chain:plan_groups",
    "even": "partc.planner.baselines.even:plan_even",
    "edgeshard-latency": "partc.planner.baselines.edgeshard_latency:plan_edgeshard_latency",
    "edgeshard-throughput": "partc.planner.baselines.edgeshard_throughput:plan_edgeshard_throughput",
    "lingualinked": "partc.planner.baselines.lingualinked:plan_lingualinked",
    "galaxy": "partc.planner.baselines.galaxy:plan_galaxy",
    "megatron": "partc.planner.baselines.megatron:plan_megatron",
    "sequence-parallel": "partc.planner.baselines.sequence_parallel:plan_sequence_parallel",
}
"""Every strategy by the name that `--strategy` takes; loaded on first use."""

ABOUT: Mapping[str, str] = {
    "optimal": "the best plan, proven",
    "optimal-groups": "the best one where several devices may share a stage",
    "even": "equal numbers for all devices",
    "edgeshard-latency": "EdgeShard's Algorithm 1",
    "edgeshard-throughput": "EdgeShard's Algorithm 2",
    "lingualinked": "LinguaLinked's Eq. 5, devices may be returned to",
    "galaxy": "Galaxy's Algorithm 1",
    "megatron": "equal tensor parallelism",
    "sequence-parallel": "equal rows",
}
"""Strategy → its description in a few words."""

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
    """The plan of a strategy for a problem; `explained` adds why it is so, which takes further solves.

    Raises:
        PlanError: unknown, or it lets devices share stages where tokens are guessed.
    """
    plan = _drafted(problem, strategy) if problem.drafted else load_strategy(strategy)(problem)
    return with_explanation(problem, plan, free=strategy == "optimal") if explained else plan


def _drafted(problem: Problem, strategy: str) -> Plan:
    """The plan of a strategy where some tokens are guessed: those of papers choose as if none were.

    Raises:
        PlanError: unknown, or it lets devices share stages: no search of theirs knows the time of a guessed token.
    """
    from dataclasses import replace

    from partc.planner.baselines.valued import valued_plan

    chosen = load_strategy(strategy)
    if strategy == "optimal":
        return chosen(problem)
    if strategy in SHARING:
        raise PlanError(
            f"{strategy} plans for no guessed tokens",
            where="workload: drafted",
            hint="remove `drafted` from the workload, or use --strategy optimal",
        )
    plan = chosen(replace(problem, drafts=None))
    return plan if plan.stages is None else valued_plan(problem, plan.stages, plan.method)


def with_explanation(problem: Problem, plan: Plan, *, free: bool) -> Plan:
    """The plan with `explain` filled in; what the strategy itself wrote there wins.

    `free` says that the planner chose the assignment as the best it knew; else it stays as it is, whatever
    changes, and is compared with the best one.
    """
    if plan.stages is None:
        return plan
    from msgspec import structs

    from partc.planner.explain.explanation import explain

    if plan.phases:
        from partc.planner.groups.explain import explain_shared

        explained = explain_shared(problem, plan, _solver())
    else:
        explained = explain(problem, plan.stages, _solver(), free=free)
    return structs.replace(plan, explain={**explained, **plan.explain})


def _solver() -> Solve:
    """Answers the questions of one explanation, as far as the work for all of them goes."""
    from partc.planner.exact.optimal import seek_best
    from partc.planner.model.effort import ALL_QUESTIONS, QUESTION, Budget

    within = Budget(ALL_QUESTIONS)
    return lambda problem, forced: seek_best(problem, forced=forced, effort=QUESTION, within=within)
