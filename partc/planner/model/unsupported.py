"""Unsupported sub-modules: those with an operator that the device's target has no code for.

Targets say so of a node before anything is lowered (`Target.refusal`). The planner keeps these sub-modules from these
devices as a `ban` does; nodes that only lowering can judge are refused there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from partc.config.devices import DevicesConfig
from partc.errors import PlanError, UserError
from partc.format.placement import Stages
from partc.ir.graph import Node, Submodule
from partc.pipeline.contract import Target
from partc.pipeline.registry import load_target
from partc.planner.model.change import Times, with_times
from partc.planner.model.layers import Shape
from partc.planner.model.problem import Problem
from partc.planner.model.rules import Rule
from partc.planner.model.stages import held

Unsupported = Mapping[str, Mapping[int, UserError]]
"""Device → the sub-modules that it cannot run, each with its first refusal; devices that can run all have no entry."""


def unsupported_of(submodules: Sequence[Submodule], devices: DevicesConfig) -> Unsupported:
    """The unsupported sub-modules of every device. O(nodes) for each target with options of its own."""
    known: dict[Target, Mapping[int, UserError]] = {}
    found = {}
    for name, device in devices.devices.items():
        target = load_target(device.target, device.target_options)
        if target not in known:
            known[target] = _refusals(target, submodules)
        if known[target]:
            found[name] = known[target]
    return found


def _refusals(target: Target, submodules: Sequence[Submodule]) -> dict[int, UserError]:
    firsts = ((part.index, _first(target, part.nodes)) for part in submodules)
    return {index: refusal for index, refusal in firsts if refusal is not None}


def _first(target: Target, nodes: Iterable[Node]) -> UserError | None:
    return next((refusal for node in nodes if (refusal := target.refusal(node)) is not None), None)


def without_unsupported(problem: Problem, unsupported: Unsupported) -> Problem:
    """The problem in which devices have no time for what they cannot run."""

    def able(index: int, times: Times) -> Times:
        return {name: seconds for name, seconds in times.items() if index not in unsupported.get(name, {})}

    return with_times(problem, able) if unsupported else problem


def check_supported(
    unsupported: Unsupported, devices: DevicesConfig, shape: Shape, where: str | None
) -> None:
    """Refuse a model of which some sub-module is left to no device, or the first one not to the source.

    Raises:
        PlanError: names the operator, the devices and what to do.
    """
    names = list(devices.devices)
    homeless = [j for j in range(shape.count) if all(j in unsupported.get(name, {}) for name in names)]
    if homeless:
        first = homeless[0]
        raise PlanError(
            f"no device can run {shape.describe(homeless)}: {_reasons(unsupported, first)}",
            where=where,
            hint=unsupported[names[0]][first].hint,
        )
    refusal = unsupported.get(devices.source, {}).get(0)
    if refusal is not None:
        able = ", ".join(f"`source: {name}`" for name in names if 0 not in unsupported.get(name, {}))
        raise PlanError(
            f"the source {devices.source} cannot run sub-module 0, which must be on it: {refusal.message}",
            where=where,
            hint=f"{refusal.hint}; or choose another source: {able}",
        )


def _reasons(unsupported: Unsupported, index: int) -> str:
    """`the tvm target has no code for partc.QuantizedMatMul (board, old)`."""
    devices: dict[str, list[str]] = {}
    for name, refused in unsupported.items():
        if index in refused:
            devices.setdefault(refused[index].message, []).append(name)
    return "; ".join(f"{message} ({', '.join(names)})" for message, names in devices.items())


def check_place(unsupported: Unsupported, devices: DevicesConfig, shape: Shape, stages: Stages) -> None:
    """Refuse a `place` that gives a device what it cannot run.

    Raises:
        PlanError: names the operator and the place.
    """
    for name, refused in unsupported.items():
        against = [j for j in held(stages).get(name, ()) if j in refused]
        if against:
            place = devices.place[name]
            part = next((part for part in place if against[0] in shape.indices(part)), place[0])
            raise _conflict("`place`", part.where, name, against, shape, refused[against[0]])


def check_pins(unsupported: Unsupported, rules: Iterable[Rule], shape: Shape) -> None:
    """Refuse a `pin` that gives a device what it cannot run.

    Raises:
        PlanError: names the operator and the pin.
    """
    for rule in rules:
        refused = unsupported.get(rule.device, {}) if rule.kind != "ban" else {}
        if against := [j for j in sorted(rule.indices) if j in refused]:
            raise _conflict(f"`{rule}`", rule.range.where, rule.device, against, shape, refused[against[0]])


def _conflict(
    what: str, where: str, device: str, against: Collection[int], shape: Shape, refusal: UserError
) -> PlanError:
    gives = f"{what} gives {shape.describe(against)} to {device}, which cannot run it"
    return PlanError(f"{gives}: {refusal.message}", where=where, hint=refusal.hint)


def idle(unsupported: Unsupported, shape: Shape) -> dict[str, str]:
    """Device → why it can run nothing, the first sub-module aside, which is the source's."""
    others = set(range(1, shape.count))
    return {
        name: f"it cannot run {shape.describe(refused)}: {_first_of(refused).message}"
        for name, refused in unsupported.items()
        if others <= refused.keys()
    }


def left_out(unsupported: Unsupported, shape: Shape) -> str:
    """`board cannot run layers 0-3: the tvm target has no code for partc.QuantizedMatMul`."""
    return "; ".join(
        f"{name} cannot run {shape.describe(refused)}: {_first_of(refused).message}"
        for name, refused in unsupported.items()
    )


def remedies(unsupported: Unsupported) -> str:
    """The remedies of the refusals."""
    return "; ".join(
        dict.fromkeys(hint for refused in unsupported.values() if (hint := _first_of(refused).hint))
    )


def _first_of(refused: Mapping[int, UserError]) -> UserError:
    return refused[min(refused)]
