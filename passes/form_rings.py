"""`form-rings`: the rings of a fleet of devices for a demand. It decides only, as `partition-graph` does for a ring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from partc.config.demand import Demand, Wish, load_demand
from partc.config.devices import load_devices
from partc.errors import ConfigError
from partc.format.plan import PlanFile
from partc.ir.graph import ModelInfo, Module
from partc.ir.workload import of_batch
from partc.pipeline.contract import Context, Pass
from partc.pipeline.default import Default
from partc.planner.model.problem import Problem
from partc.planner.rings.kinds import check_fleet, kinds_of, reduced
from partc.planner.rings.make import plan_fleet
from partc.planner.rings.rings import most_devices
from passes.partition_graph import problem_of, profile_on


@dataclass(frozen=True)
class FormRings(Pass):
    """Plan rings of the profiled sub-modules on the devices of a devices.yaml for a demand.yaml."""

    name: ClassVar[str] = "form-rings"
    requires: ClassVar[str | None] = "mapped"
    ensures: ClassVar[str | None] = "mapped"

    devices: str = Default("devices.yaml")
    """Path of devices.yaml."""
    demand: str = Default("demand.yaml")
    """Path of demand.yaml."""

    def apply(self, module: Module, context: Context) -> bool:
        """Set `module.plan` to a plan with a fleet; raises PlanError if the demand cannot be met."""
        before = module.plan
        devices, demand = load_devices(self.devices), load_demand(Path(self.demand))
        check_fleet(devices, self.devices)
        _check_demand(module.info, demand)
        kinds = kinds_of(devices)
        most = min(demand.devices_per_ring or most_devices(kinds), len(devices.devices))
        few = reduced(devices, kinds, most)

        @cache
        def profiled(wish: Wish) -> Module:
            info = of_batch(module.info, 1) if module.info.batches else replace(module.info, batch=1)
            # Requests of others fill the rings of a fleet, so that there is no time for guesses.
            info = replace(info, prompt=wish.prompt, generate=wish.answer, drafted=0.0)
            return replace(module, info=info, profile=profile_on(few, info, module))

        def problems(wish: Wish, source: str) -> Problem:
            return problem_of(profiled(wish), replace(few, source=source))

        fleet = plan_fleet(demand, kinds, most, problems, module.info.max_requests, self.demand)
        module.plan = PlanFile(fleet=fleet)
        return module.plan != before


def _check_demand(info: ModelInfo, demand: Demand) -> None:
    for wish in demand.wishes:
        if not info.has_states and wish.answer > 1:
            raise ConfigError(f"{info.name} answers in one step", where=wish.where, hint="write `answer: 1`")
        if info.has_states and wish.prompt + wish.answer > info.max_sequence:
            raise ConfigError(
                f"{wish.prompt} + {wish.answer} tokens are more than the model's max_sequence of {info.max_sequence}",
                where=wish.where,
                hint=f"write `max_sequence: {wish.prompt + wish.answer}` in model.yaml, or wish for less",
            )
