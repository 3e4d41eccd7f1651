"""The computing of devices in the typical steps of runs, beside its price before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from partc.config.devices import DevicesConfig
from partc.format.placement import Stage
from partc.ir.graph import Module
from partc.ir.workload import workload
from partc.planner.model.roofline import submodule_s
from partc.runs.history import History
from partc.runs.typical import Typical, TypicalSteps

LEAST_S = 1e-12
"""No sub-module takes no time at all."""


@dataclass(frozen=True)
class Observed:
    """One device in the steps of one phase of one build."""

    device: str
    phase: str
    stages: tuple[Stage, ...]
    """The stages that it ran; the plan counts one call of the engine for each."""
    priced_s: float
    """The prices of its sub-modules before, without calls."""
    seconds: float
    """Computing in a step, calls included."""
    spread_s: float
    """Half of what lies between the quartiles."""
    steps: int
    share: float = 1.0
    """The part of its computing that makes a step longer; below 1 where parts of a prompt overlap."""


Prices = Sequence[Mapping[str, float]]
"""Sub-module → device → seconds."""


def prices_of(module: Module, devices: DevicesConfig) -> dict[str, Prices]:
    """Phase → the prices before; none is nothing."""
    submodules, profile = module.submodules or (), module.profile or ()
    return {
        step.name: [
            {name: max(seconds, LEAST_S) for name, seconds in entry.items()}
            for entry in submodule_s(submodules, [item.phases[step.name] for item in profile], step, devices)
        ]
        for step in workload(module.info)
    }


def observed_in(found: Typical, prices: Mapping[str, Prices]) -> list[Observed]:
    """Every device in every phase of a build that ran."""
    return [
        _device(name, phase, prices[phase.phase], found.history)
        for phase in found.phases
        for name in found.history.build.roles
        if phase.chosen
    ]


def _device(device: str, phase: TypicalSteps, prices: Prices, history: History) -> Observed:
    taken = [steps.computed_s[device].get(number, 0.0) for steps, number in phase.chosen]
    low, high = np.quantile(taken, (0.25, 0.75))
    stages = tuple(stage for stage in history.case.stages if stage.device == device)
    return Observed(
        device=device,
        phase=phase.phase,
        stages=stages,
        priced_s=math.fsum(prices[index][device] for stage in stages for index in stage.indices),
        seconds=math.fsum(taken) / len(taken),
        spread_s=float(high - low) / 2,
        steps=len(taken),
    )
