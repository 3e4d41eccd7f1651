"""Plans of given shares: all blocks on all devices that can run them, everything else on the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from msgspec import structs

from partc.format.plan import Exchange, Plan, SharedStage, SharedStages, infeasible_plan
from partc.planner.groups.evaluate import evaluate_shared
from partc.planner.model.problem import Block, Phase, Problem, Tiling

Share = Callable[[int, Block], SharedStage]
"""The stage of one shared sub-module: its index and block."""


def stages_by(problem: Problem, share: Share) -> SharedStages:
    """The stages of a plan, what has no block on the source."""
    return merged(
        SharedStage((j, j), (problem.source,)) if part.block is None else share(j, part.block)
        for j, part in enumerate(problem.submodules)
    )


def merged(single: Iterable[SharedStage]) -> SharedStages:
    """Stages of one sub-module each, in their order: neighbours that the same devices hold alike are one stage."""
    runs = (list(run) for _, run in groupby(single, key=lambda one: structs.replace(one, submodules=(0, 0))))
    return tuple(structs.replace(run[0], submodules=(run[0].first, run[-1].last)) for run in runs)


def by_units(
    problem: Problem, names: Sequence[str], shares: Mapping[str, Sequence[int]], exchange: Exchange
) -> SharedStages:
    """Every block by its units; `shares`: `heads` and `columns` → units of each device."""

    def share(j: int, block: Block) -> SharedStage:
        return SharedStage((j, j), tuple(names), block.share, tuple(shares[block.share]), exchange)

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
    if len(choices) == 1:
        return make(choices[0])
    alone = replace(problem, objective="latency", phases=(phase,))
    options = [make(choice) for choice in choices]
    found = [(evaluate_shared(alone, {phase.name: stages}).value, stages) for stages in options]
    priced = [(value, stages) for value, stages in found if value is not None]
    return min(priced, key=lambda pair: pair[0])[1] if priced else options[0]


def valued_shares(problem: Problem, phases: Mapping[str, SharedStages], method: str) -> Plan:
    """The plan with its true value, or what it violates; no bound is known."""
    evaluation = evaluate_shared(problem, phases)
    if evaluation.value is None:
        return infeasible_plan(f"{method}: {'; '.join(evaluation.violations)}", method)
    stages = phases[problem.steps[0].name]
    return Plan(stages=stages, phases=dict(phases), value=evaluation.value, method=method)
