"""The value of a plan whose stages may have several devices; `partc.planner.model.evaluate` is that of all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partc.config.units import format_ranges
from partc.format.plan import DraftedToken, Plan, SharedStage, SharedStages
from partc.planner.groups.members import disk_use, memory_use
from partc.planner.groups.step import SharedStep, follow_shared
from partc.planner.model.drafted import SHARES, Pace
from partc.planner.model.evaluate import Evaluation, evaluate, memory_violation, storage_violations, value_of
from partc.planner.model.problem import Problem


def evaluate_plan(problem: Problem, plan: Plan) -> Evaluation:
    """The value of a feasible plan of any kind."""
    assert plan.stages is not None
    return evaluate_shared(problem, plan.phases) if plan.phases else evaluate(problem, plan.stages)


def evaluate_shared(
    problem: Problem, phases: Mapping[str, SharedStages], *, overlap: bool = True
) -> Evaluation:
    """Checks the stages of each phase against every constraint and follows one step of each.

    Busy times are those of the lanes: the latency of a link occupies nothing.

    Args:
        problem: with blocks for all that is shared.
        phases: every phase of the problem → its stages.
        overlap: whether tiles travel while products are computed.
    """
    if shape := [text for stages in phases.values() for text in _shape(problem, stages)]:
        return Evaluation(tuple(dict.fromkeys(shape)))
    memory = memory_use(problem, phases)
    violations = [text for use in memory if (text := memory_violation(use))]
    violations += [*storage_violations(problem, disk_use(problem, phases)), *_missing_times(problem, phases)]
    violations += _undivided(problem, phases)
    if violations:
        return Evaluation(tuple(dict.fromkeys(violations)), memory=memory)
    steps = [follow_shared(problem, phase, phases[phase.name], overlap=overlap) for phase in problem.steps]
    if absent := dict.fromkeys(pair for step in steps for pair in step.lanes.missing):
        return Evaluation(tuple(f"there is no link from {a} to {b}" for a, b in absent), memory=memory)
    busy: dict[str, float] = {}
    for phase, step in zip(problem.steps, steps, strict=True):
        for lane, seconds in step.lanes.busy_s().items():
            busy[lane] = busy.get(lane, 0.0) + phase.weight * seconds
    timelines = tuple(step.timeline for step in steps)
    value = value_of(problem, timelines, busy)
    return Evaluation((), value, timelines, memory, tuple(busy.items()), _drafted(problem, steps))


def _drafted(problem: Problem, steps: Sequence[SharedStep]) -> tuple[DraftedToken, ...]:
    """The time of a token at some shares of guessed ones, each ahead of its token; empty where none is guessed."""
    if problem.drafts is None or problem.decode is None:
        return ()
    decode = steps[problem.decode]
    pace = Pace(decode.timeline.latency_s, max(decode.lanes.busy_s().values(), default=0.0))
    return tuple(DraftedToken(share, pace.token_s(share)) for share in SHARES)


def _shape(problem: Problem, stages: SharedStages) -> Iterator[str]:
    """Faults of stages that show before anything is computed."""
    if [j for stage in stages for j in stage.indices] != list(range(len(problem.submodules))):
        yield f"the stages do not hold each of {len(problem.submodules)} sub-modules once, in their order"
        return
    if stages[0].devices != (problem.source,):
        names = ", ".join(stages[0].devices)
        yield f"sub-module 0 is on {names}, but must be on the source {problem.source} alone"
    for stage in stages:
        yield from _stage_shape(problem, stage)


def _stage_shape(problem: Problem, stage: SharedStage) -> Iterator[str]:
    if unknown := sorted(set(stage.devices) - set(problem.device_of)):
        yield f"unknown device {unknown[0]}"
    if len(set(stage.devices)) < len(stage.devices):
        yield f"sub-module {stage.first} names a device twice"
    if len(stage.devices) == 1:
        return
    for j in stage.indices:
        block = problem.submodules[j].block
        if block is None:
            yield f"sub-module {j} cannot be shared"
        elif stage.share != "sequence" and _wrong_shares(stage, block.share, block.units):
            yield f"sub-module {j} is shared by {block.share}, {block.units} in all"


def _wrong_shares(stage: SharedStage, share: str, units: int) -> bool:
    short = len(stage.shares) != len(stage.devices)
    return stage.share != share or short or sum(stage.shares) != units or min(stage.shares) < 0


def _undivided(problem: Problem, phases: Mapping[str, SharedStages]) -> Iterator[str]:
    """Rows that are to be divided and cannot be."""
    joined = {
        j
        for phase in problem.steps
        for stage in phases[phase.name]
        if len(stage.devices) > 1 and (stage.exchange == "tiles" or stage.share == "sequence")
        for j in stage.indices
        if (tiling := phase.tilings[j]) is not None and not tiling.by_rows
    }
    if joined:
        names = f"sub-module{'s' * (len(joined) > 1)} {format_ranges(joined)}"
        yield f"the rows of {names} have no axis to themselves: no tiles of them can be cut"


def _missing_times(problem: Problem, phases: Mapping[str, SharedStages]) -> Iterator[str]:
    for phase in problem.steps:
        for stage in phases[phase.name]:
            for j in stage.indices:
                for name in stage.devices:
                    if name not in phase.time_s[j]:
                        yield f"{name} cannot run sub-module {j}"
