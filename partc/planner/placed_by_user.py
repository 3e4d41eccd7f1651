"""`place` of devices.yaml: the user's own assignment, checked, evaluated, and set beside the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from partc.config.devices import DevicesConfig
from partc.config.placement import Ranges
from partc.config.units import format_bytes
from partc.errors import PlanError
from partc.format.placement import Stages, stages_of
from partc.format.plan import Plan, feasible_plan
from partc.pipeline.sharing import SHARING
from partc.planner.exact.optimal import bound_beside, plan_optimal
from partc.planner.model.evaluate import evaluate
from partc.planner.model.layers import Shape
from partc.planner.model.plan_file import PLACED
from partc.planner.model.problem import Problem
from partc.planner.model.rules import Rule
from partc.planner.model.stages import held
from partc.planner.solve import load_strategy


def check_strategy(devices: DevicesConfig, strategy: str, file: Path | str) -> None:
    """Refuses a strategy that has nothing to decide; cheap: it is asked first.

    Args:
        devices: devices.yaml.
        strategy: its name.
        file: the name of devices.yaml, for messages.

    Raises:
        PlanError: the layers are placed, its stages have several devices where they cannot, or it is unknown.
    """
    load_strategy(strategy)
    if strategy in SHARING and devices.overlap:
        raise PlanError(
            f"--strategy {strategy} gives stages to several devices, and `overlap` is for stages of one",
            where=f"{file}: overlap",
            hint="remove `overlap`, or leave --strategy out",
        )
    if devices.place and strategy != "optimal":
        raise PlanError(
            f"devices.yaml places the layers: --strategy {strategy} has nothing to decide",
            where=next(part.where for parts in devices.place.values() for part in parts),
            hint="remove `place`, or leave --strategy out",
        )


def stages_placed(devices: DevicesConfig, shape: Shape, rules: Iterable[Rule]) -> Stages:
    """The stages of the user's `place`; a device may be returned to.

    Raises:
        PlanError: a range is not of this model, a sub-module has no place or two, or a place breaks a rule.
    """
    holder = _holders(devices.place, shape)
    where = next(part.where for parts in devices.place.values() for part in parts)
    if missing := [j for j in range(shape.count) if j not in holder]:
        raise PlanError(
            f"`place` gives {shape.describe(missing)} to no device",
            where=where,
            hint=f"place {shape.describe(missing)}, too, or remove `place` and let partc decide",
        )
    if holder[0] != devices.source:
        raise PlanError(
            f"`place` gives sub-module 0 to {holder[0]}, but the source {devices.source} must hold it",
            where=where,
            hint=f"raw input never leaves the source: place the first layers on {devices.source}",
        )
    for rule in rules:
        if against := [j for j in sorted(rule.indices) if not rule.allows(j, holder[j])]:
            raise PlanError(
                f"`place` gives {shape.describe(against)} to {holder[against[0]]} against `{rule}`",
                where=rule.range.where,
                hint="remove one of the two",
            )
    return stages_of([holder[j] for j in range(shape.count)])


def _holders(place: Ranges, shape: Shape) -> dict[int, str]:
    holder: dict[int, str] = {}
    for device, parts in place.items():
        for part in parts:
            indices = shape.indices(part)
            if twice := sorted(indices & holder.keys()):
                raise PlanError(
                    f"`place` gives {shape.describe(twice)} to {holder[twice[0]]} and to {device}",
                    where=part.where,
                    hint="every layer has one device",
                )
            holder |= dict.fromkeys(indices, device)
    return holder


def plan_placed(problem: Problem, stages: Stages, shape: Shape, where: str | None = None) -> Plan:
    """The user's plan; its bound is that of the best plan, so that the gap says what the place gives away.

    Raises:
        PlanError: a device has too little memory, a link is missing, or a device cannot run what it is given;
            says what would fit.
    """
    evaluation = evaluate(problem, stages)
    if evaluation.value is None:
        fits = [
            text for name, mine in held(stages).items() if (text := _what_fits(problem, mine, shape, name))
        ]
        raise PlanError(
            f"`place` does not fit: {'; '.join([*evaluation.violations, *fits])}",
            where=where,
            hint=_advice(problem, shape),
        )
    bound = bound_beside(problem, evaluation.value, stages)
    return feasible_plan(stages, evaluation.value, bound, PLACED)


def _what_fits(problem: Problem, mine: Sequence[int], shape: Shape, name: str) -> str | None:
    """The part of its share that a device with too little memory could hold, from the front."""
    device = problem.device_of[name]
    room = device.room_bytes
    if problem.memory_of(mine) <= room:
        return None
    count = max((n for n in range(1, len(mine)) if problem.memory_of(mine[:n]) <= room), default=0)
    if count == 0:
        return f"{name} has no room for any of {shape.describe(mine)}"
    held = problem.memory_of(mine[:count]) + device.overhead_bytes
    return (
        f"of {shape.describe(mine)} {name} could hold {shape.describe(mine[:count])} ({format_bytes(held)})"
    )


def _advice(problem: Problem, shape: Shape) -> str:
    """The best plan as a `place` that can be copied."""
    best = plan_optimal(problem)
    if best.stages is None:
        return f"no other place fits either: {best.constraint}"
    text = ", ".join(f"{name}: {shape.describe(mine)}" for name, mine in held(best.stages).items())
    return f"this fits: `place: {{{text}}}`; or remove `place` and let partc decide"
