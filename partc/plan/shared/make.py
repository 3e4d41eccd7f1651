"""Plans of given shares: all blocks on all devices that can run them, everything else on the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Literal

from msgspec.structs import replace

from partc.ir.plan import Exchange, Plan, SharedStage, SharedStages, infeasible_plan
from partc.plan.problem import Block, Phase, Problem, Tiling
from partc.plan.shared.evaluate import evaluate_shared

Share = Callable[[int, Block], SharedStage]
"""The stage of one shared sub-module: its index and block."""


def stages_by(problem: Problem, share: Share) -> SharedStages:
    """The stages of a plan: neighbours that the same devices hold in the same way are one stage."""
    single = [
        SharedStage((j, j), (problem.source,)) if part.block is None else share(j, part.block)
        for j, part in enumerate(problem.submodules)
    ]
    runs = (list(run) for _, run in groupby(single, key=lambda one: replace(one, submodules=(0, 0))))
    return tuple(replace(run[0], submodules=(run[0].first, run[-1].last)) for run in runs)


def by_units(
    problem: Problem, names: Sequence[str], shares: Mapping[str, Sequence[int]], exchange: Exchange
) -> SharedStages:
    """Every block by its units; `shares`: `heads` and `columns` → units of each device."""

    def share(j: int, block: Block) -> SharedStage:
        kind: Literal["heads", "columns"] = "heads" if block.share == "heads" else "columns"
        return SharedStage((j, j), tuple(names), kind, tuple(shares[kind]), exchange)

    return stages_by(problem, share)


def by_rows(problem: Problem, names: Sequence[str], rows: Sequence[int]) -> SharedStages:
    """Every block whole on every device, each for its rows."""

    def share(j: int, _: Block) -> SharedStage:
        return SharedStage((j, j), tuple(names), "sequence", tuple(rows), "ring")

    return stages_by(problem, share)


def rows_of(phase: Phase) -> int:
    """Positions of a step, the least of any block."""
    return min(tiling.rows for tiling in phase.tilings if isinstance(tiling, Tiling))


def choose_exchange(
    problem: Problem, phase: Phase, make: Callable[[Exchange], SharedStages], choices: Sequence[Exchange]
) -> SharedStages:
    """The stages with the exchange by which a step of this phase is fastest, the first of equals.

    Where none is possible (a link is missing), those of the first.
    """
    alone = {phase.name: make(choices[0])}
    only = Problem(
        "latency", problem.source, problem.devices, problem.submodules, problem.links, phases=(phase,)
    )
    if len(choices) == 1:
        return alone[phase.name]
    found = [(evaluate_shared(only, {phase.name: make(choice)}).value, choice) for choice in choices]
    priced = [(value, choice) for value, choice in found if value is not None]
    return make(min(priced, key=lambda pair: pair[0])[1]) if priced else alone[phase.name]


def valued_shares(problem: Problem, phases: Mapping[str, SharedStages], method: str) -> Plan:
    """The plan with its true value, or what it violates; no bound is known."""
    evaluation = evaluate_shared(problem, phases)
    if evaluation.value is None:
        return infeasible_plan(f"{method}: {'; '.join(evaluation.violations)}", method)
    stages = phases[problem.steps[0].name]
    return Plan(stages=stages, phases=dict(phases), value=evaluation.value, method=method)
