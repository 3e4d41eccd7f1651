"""Costs of devices and links from records of runs: what `partc profile` measures, learnt from use.

A record has one time for all that a device computed in a step. So every sub-module is priced as before (e: measured,
or the roofline), and the prices on a device are scaled to what it took (c). What its runner took for itself (own) and
what messages took become overheads and links; all are means over the same steps (`partc.runs.typical`), so that the
plan that ran comes out at what it took:

    t(i) = e(i) · (c - calls · call) / Σ e(j)     j over the sub-modules that the device ran
    step = own + call                             on the source; hop = own + call elsewhere
    link = took - own of the sender               = latency + bytes / bandwidth (`learn_links`)

One build cannot tell a call of the engine from the sub-modules in it: call is what it was known to be. Builds that
gave a device loads of different sizes can: then c = calls · call + factor · Σ e(j) is fitted, as least squares of the
relative error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from partc.config.devices import DevicesConfig
from partc.errors import UserError
from partc.format.placement import Stage
from partc.ir.digests import submodule_digest
from partc.ir.graph import Module
from partc.ir.workload import Step, workload
from partc.plan.roofline import submodule_s
from partc.profiler.learn_links import learn_links
from partc.profiler.links import LinkFigures
from partc.profiler.same_build import check_same_devices, check_same_model
from partc.runs.history import History
from partc.runs.typical import Typical, TypicalSteps, typical_steps

_LEAST_PART = 0.1
"""The part of a device's computing that is its sub-modules' at least: overheads must not make them free."""
_UNLIKE = 4.0
"""How many times as large a load must be as another one, so that noise does not hide what a call is."""
_LEAST_S = 1e-12
"""No sub-module takes no time at all."""


@dataclass(frozen=True)
class Observed:
    """One device in the steps of one phase of one build."""

    device: str
    phase: str
    stages: tuple[Stage, ...]
    """What it ran; the plan counts one call of the engine each."""
    priced_s: float
    """The prices of its sub-modules before, without calls."""
    seconds: float
    """Computing in a step, calls included."""
    spread_s: float
    """Half of what lies between the quartiles."""
    steps: int


@dataclass(frozen=True)
class Overheads:
    """Seconds that a step costs one device besides its sub-modules."""

    call_s: float
    """A call of the engine."""
    own_s: float
    """The runner itself."""


@dataclass(frozen=True)
class Learnt:
    """The costs that records of runs show."""

    runs: int
    requests: int
    observed: tuple[Observed, ...]
    overheads: Mapping[str, Overheads]
    """Of every device that took part."""
    times: Mapping[str, Mapping[str, dict[str, object]]]
    """Device → digest → an entry of times.json."""
    links: Mapping[tuple[str, str], LinkFigures]
    """(from, to) → its figures, for every link in use, and where they are alike for the way back."""
    notes: tuple[str, ...]
    """Sentences about what did not count."""


def learn(module: Module, devices: DevicesConfig, histories: Sequence[History]) -> Learnt:
    """The costs in the runs of builds of one model; O(steps + V + E).

    Args:
        module: of the model that the builds were compiled from, profiled.
        devices: with the prices before.
        histories: the runs of each build, at least of one.

    Raises:
        UserError: runs are of another model or of other devices, or none did the planned work.
    """
    runs = [_typical(module, devices, history) for history in histories]
    prices = _prices(module, devices)
    observed = [
        _observed(name, phase, prices[phase.phase], found.history)
        for found in runs
        for phase in found.phases
        for name in found.history.build.roles
        if phase.chosen
    ]
    names = list(dict.fromkeys(item.device for item in observed))
    overheads = {name: Overheads(_call_s(name, observed, devices), _own_s(name, runs)) for name in names}
    return Learnt(
        runs=sum(len(history.records) for history in histories),
        requests=sum(found.requests for found in runs),
        observed=tuple(observed),
        overheads=overheads,
        times={name: _times(name, module, observed, prices, overheads[name].call_s) for name in names},
        links=learn_links(devices, runs, {name: overheads[name].own_s for name in names}),
        notes=_notes(runs, [name for name in devices.devices if name not in names]),
    )


def _typical(module: Module, devices: DevicesConfig, history: History) -> Typical:
    check_same_model(module, history)
    check_same_devices(devices, history)
    found = typical_steps(history)
    if not found.phases[-1].chosen:
        raise UserError(
            f"no run did the planned work: {'; '.join(found.notes) or 'none went beyond its first token'}",
            where=str(history.build.folder),
            hint="run what the plan is for, or change `workload` and compile again",
        )
    return found


def _notes(runs: Sequence[Typical], idle: Sequence[str]) -> tuple[str, ...]:
    notes = [note for found in runs for note in found.notes]
    notes += [f"{', '.join(idle)} took no part: priced as before"] if idle else []
    return tuple(dict.fromkeys(notes))


Prices = Sequence[Mapping[str, float]]
"""Sub-module → device → seconds."""


def _prices(module: Module, devices: DevicesConfig) -> dict[str, Prices]:
    """Phase → the prices before; none is nothing."""
    submodules, profile = module.submodules or (), module.profile or ()
    return {
        step.name: [
            {name: max(seconds, _LEAST_S) for name, seconds in entry.items()}
            for entry in submodule_s(submodules, [item.phases[step.name] for item in profile], step, devices)
        ]
        for step in workload(module.info)
    }


def _observed(device: str, phase: TypicalSteps, prices: Prices, history: History) -> Observed:
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


def _own_s(device: str, runs: Sequence[Typical]) -> float:
    """What its runner took for itself in a step of the last phase, in the mean of the builds."""
    each = [found.phases[-1].mean(lambda steps, number: steps.own_of(device, number)) for found in runs]
    known = [seconds for seconds in each if seconds is not None]
    return math.fsum(known) / len(known) if known else 0.0


def _call_s(device: str, observed: Sequence[Observed], devices: DevicesConfig) -> float:
    """What a call of its engine takes, by the last phase of loads of different sizes; else what was known before."""
    phase = observed[-1].phase
    loads = [item for item in observed if (item.device, item.phase) == (device, phase) and item.seconds > 0]
    sizes = [item.priced_s / len(item.stages) for item in loads]
    if not sizes or max(sizes) < _UNLIKE * min(sizes):
        known = devices.times_of(device)
        return known.call_overhead_s if known else 0.0
    matrix = np.array([[len(item.stages) / item.seconds, item.priced_s / item.seconds] for item in loads])
    (call_s, _), *_ = np.linalg.lstsq(matrix, np.ones(len(loads)), rcond=None)
    most_s = min(item.seconds / len(item.stages) for item in loads) * (1 - _LEAST_PART)
    return float(np.clip(call_s, 0.0, most_s))


def _times(
    device: str,
    module: Module,
    observed: Sequence[Observed],
    prices: Mapping[str, Prices],
    call_s: float,
) -> dict[str, dict[str, object]]:
    """The entries of times.json; sub-modules that the device did not run are scaled like those that it ran."""
    times: dict[str, dict[str, object]] = {}
    for step in workload(module.info):
        loads = [item for item in observed if (item.device, item.phase) == (device, step.name)]
        if not loads:
            continue
        scale, spread = _scale(loads, call_s)
        for digest, indices in _alike(module, step).items():
            price = prices[step.name][indices[0]][device]
            times[digest] = {
                "seconds": max(scale * price, _LEAST_S),
                "spread_s": spread * price,
                "repeats": sum(item.steps for item in loads),
                "phase": step.name,
                "submodules": indices,
            }
    return times


def _scale(loads: Sequence[Observed], call_s: float) -> tuple[float, float]:
    """(time over price, its spread): the mean over the builds."""
    own = [
        max(item.seconds - len(item.stages) * call_s, _LEAST_PART * item.seconds) / item.priced_s
        for item in loads
    ]
    spreads = [item.spread_s / item.priced_s for item in loads]
    return math.fsum(own) / len(loads), math.fsum(spreads) / len(loads)


def _alike(module: Module, step: Step) -> dict[str, list[int]]:
    """Digest → the sub-modules that compute the same in a step."""
    alike: dict[str, list[int]] = {}
    for index, submodule in enumerate(module.submodules or ()):
        alike.setdefault(submodule_digest(submodule.nodes, step), []).append(index)
    return alike
