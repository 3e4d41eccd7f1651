"""A move that somebody asks for: some sub-modules to one device, the others stay where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from partc.balance.artifacts import Artifacts
from partc.config.placement import Range, parse_range
from partc.config.units import format_bytes
from partc.errors import ConfigError, PlanError
from partc.format.placement import Placement, Stages, stages_of
from partc.planner.model.evaluate import Evaluation, evaluate
from partc.planner.model.layers import spans_of
from partc.planner.model.objective_values import say_difference, say_value, seconds_per_token
from partc.planner.model.problem import Problem
from partc.planner.model.stages import devices_of, held


@dataclass(frozen=True)
class Change:
    """Two placements, with what the plan says of each."""

    problem: Problem
    before: Stages
    after: Stages
    placement: Placement
    """The placement with the stages `after`."""
    now: Evaluation
    then: Evaluation

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Device, its sub-modules before and after, the memory that it needs after and has, as people read them."""
        before, after = held(self.before), held(self.after)
        memory = {use.device: use for use in self.then.memory}
        return [
            (
                name,
                _spans(before.get(name, [])),
                _spans(after.get(name, [])),
                format_bytes(memory[name].needed_bytes) if name in memory else "-",
                format_bytes(self.problem.device_of[name].memory_bytes),
            )
            for name in dict.fromkeys([*before, *after])
        ]

    @property
    def text(self) -> str:
        """The times of both: `5.74 ms per token before, 6.02 ms per token after: 281 µs more`."""
        now, then = self.now.value or 0.0, self.then.value or 0.0
        difference = say_difference(self.problem, then, now)
        return f"{say_value(self.problem, now)} before, {say_value(self.problem, then)} after: {difference}"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "before": _stages_json(self.before),
            "after": _stages_json(self.after),
            "before_s_per_token": seconds_per_token(self.problem, self.now.value or 0.0),
            "after_s_per_token": seconds_per_token(self.problem, self.then.value or 0.0),
            "placement_id": self.placement.placement_id,
        }


def range_of(text: str, where: str) -> Range:
    """A range as typed: sub-modules of the plan, `8-11`, or layers of the model, `layers 4-5`.

    Raises:
        ConfigError: it is neither, or goes backwards.
    """
    found = parse_range(text if text.strip()[:1].isalpha() else f"submodules {text}", where)
    if found is None:
        raise ConfigError(f"{text!r} is neither like 8-11 nor like 'layers 4-5'", where=where)
    if found.last < found.first:
        raise ConfigError(f"{text!r} goes backwards", where=where)
    return found


def change_to(artifacts: Artifacts, before: Stages, wanted: Range, device: str) -> Change:
    """The placement in which `device` computes the sub-modules of a range.

    Raises:
        PlanError: there are no such sub-modules, no such device, or it has them already; or as `Artifacts.place`.
    """
    indices = artifacts.shape.indices(wanted)
    if device not in artifacts.builds:
        hint = f"the devices are: {', '.join(sorted(artifacts.builds))}"
        raise PlanError(f"{device!r} is none of the devices of this build", where="--to", hint=hint)
    names = devices_of(before)
    if all(names[index] == device for index in indices):
        there = f"{artifacts.shape.describe(indices)}: {device} computes that already"
        raise PlanError(there, where=wanted.where)
    after = stages_of([device if place in indices else name for place, name in enumerate(names)])
    try:
        placement = artifacts.place(after)
    except PlanError as error:
        raise PlanError(error.message, where=error.where or wanted.where, hint=error.hint) from None
    problem = artifacts.problem
    return Change(problem, before, after, placement, evaluate(problem, before), evaluate(problem, after))


def _spans(indices: list[int]) -> str:
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans_of(indices)) or "-"


def _stages_json(stages: Stages) -> list[dict[str, Any]]:
    return [{"device": stage.device, "submodules": list(stage.submodules)} for stage in stages]
