"""The explanation of a plan in which stages have several devices: shares, what is busy, and the best plan without."""

from __future__ import annotations

from collections.abc import Mapping

from partc.config.units import format_seconds
from partc.format.plan import Plan, SharedStage
from partc.planner.exact.solution import Best, Solve
from partc.planner.groups.algorithm1 import Shares
from partc.planner.groups.capacity import Layers, layers_of
from partc.planner.groups.eq5 import best_shares, eq5_seconds
from partc.planner.groups.evaluate import evaluate_shared
from partc.planner.model.evaluate import Evaluation
from partc.planner.model.objective_values import compare, unit
from partc.planner.model.objectives import by_objective
from partc.planner.model.problem import Problem

_MOST_COLUMNS = 1_000_000
"""Units for which the best shares by Eq. 5 are looked for; more would take minutes."""


def explain_shared(problem: Problem, plan: Plan, solve: Solve) -> dict[str, object]:
    """Plain JSON for a feasible plan; `solve` looks for the best plan with one device a stage."""
    evaluation = evaluate_shared(problem, plan.phases)
    used = {use.device for use in evaluation.memory}
    return {
        "shared": [*_shares(plan), *_by_eq5(problem, plan)],
        "unused": dict.fromkeys(
            (name for name in problem.device_of if name not in used), "it cannot run every block"
        ),
        "binding": f"speed: {_busiest(problem, evaluation)}",
        "best": {"text": _pipeline(problem, plan.value or 0.0, solve(problem, None))},
    }


def _shares(plan: Plan) -> list[str]:
    """`heads of sub-module 1 and others: a 7, b 5; tiles in prefill`, a line for each kind of stage."""
    lines: dict[str, list[str]] = {}
    for phase, stages in plan.phases.items():
        for stage in stages:
            if len(stage.devices) > 1:
                phases = lines.setdefault(_share(stage), [])
                text = f"{stage.exchange} in {phase}"
                phases += [text] if text not in phases else []
    return [f"{share}; {', '.join(phases)}" for share, phases in lines.items()]


def _share(stage: SharedStage) -> str:
    name = "rows" if stage.share == "sequence" else stage.share
    parts = (f"{device} {units:,}" for device, units in zip(stage.devices, stage.shares, strict=True))
    return f"{name}: {', '.join(parts)}"


def _by_eq5(problem: Problem, plan: Plan) -> list[str]:
    """How far the shares are from the best by the measure of Eq. 5; nothing where rows are shared."""
    layers = layers_of(problem)
    if isinstance(layers, str) or sum(kind.units for kind in layers.kinds) > _MOST_COLUMNS:
        return []
    mine = _of_plan(layers, {stage.share: stage for stage in next(iter(plan.phases.values()))})
    best = best_shares(layers) if mine else None
    if mine is None or best is None:
        return []
    value, least = eq5_seconds(layers, mine), eq5_seconds(layers, best)
    if value <= least * (1 + 1e-9):
        return ["no shares are better by Eq. 5"]
    if least == 0:
        return [f"by Eq. 5 these shares take {format_seconds(value)}, and the best ones no time"]
    return [f"by Eq. 5 these shares take {value / least - 1:.2%} more than the best ones"]


def _of_plan(layers: Layers, stages: Mapping[str, SharedStage]) -> Shares | None:
    found = [stages.get(kind.share) for kind in layers.kinds]
    return tuple(stage.shares for stage in found if stage) if all(found) else None


def _busiest(problem: Problem, evaluation: Evaluation) -> str:
    name, most = max(evaluation.busy_s, key=lambda item: item[1])
    kind = "link" if "->" in name else "device"
    value = evaluation.value or 0.0
    idle = by_objective(problem.objective, latency=f" of {format_seconds(value)}", throughput="")
    return f"the {kind} {name} is busy longest, {format_seconds(most)}{idle} per {unit(problem)}"


def _pipeline(problem: Problem, value: float, best: Best) -> str:
    """The best plan in which every stage has one device."""
    if best.solution is None:
        return "no plan with one device a stage " + ("is possible" if best.proven else "was found")
    count = len(best.solution.stages)
    stages = "one device" if count == 1 else f"{count} stages of one device each"
    name = (
        "the best plan with one device a stage"
        if best.proven
        else "the best plan found with one device a stage"
    )
    return f"{name} ({stages}) {compare(problem, best.solution.value, value)}"
