"""Costs of devices and links from records of runs: what `partc profile` measures, learnt from use.

A record has one time for all that a device computed in a step. So every sub-module is priced as before (e: measured,
or the roofline), and the prices on a device are scaled to what it took (c). What its runner took for itself (own) and
what messages took become overheads and links; all are means over the same steps (`partc.runs.typical`), so that the
plan that ran comes out at what it took:

    t(i) = e(i) · (c - calls · call) / Σ e(j)     j over the sub-modules that the device ran
    step = own + call                             on the source; hop = own + call elsewhere
    link = took - own of the sender               = latency + bytes / bandwidth (`learn_links`)

The plan counts a prompt as if its parts did not overlap. Where they did, what devices computed at once is in both of
their times, and all times of the phase are scaled down by one factor (share) to what the whole step took.

One build cannot tell a call of the engine from the sub-modules in it: call is what it was known to be. Builds that
gave a device loads of different sizes can: then c = calls · call + factor · Σ e(j) is fitted, as least squares of the
relative error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from partc.config.devices import DevicesConfig
from partc.errors import UserError
from partc.ir.digests import submodule_digest
from partc.ir.graph import Module
from partc.ir.workload import Step, workload
from partc.profiler.learn_links import learn_links
from partc.profiler.links import LinkFigures
from partc.profiler.observed import LEAST_S, Observed, Prices, observed_in, prices_of
from partc.profiler.same_build import check_one_device_a_stage, check_same_devices, check_same_model
from partc.runs.history import History
from partc.runs.typical import Typical, typical_steps
from partc.runtime.client.results import NO_GUESSES, GuessCounts

_LEAST_PART = 0.1
"""The part of a device's computing that is its sub-modules' at least: overheads must not make them free."""
_UNLIKE = 4.0
"""How many times as large a load must be as another one, so that noise does not hide what a call is."""

_OVERLAP = (
    "prompts went in parts, which devices computed at once: their times are scaled to what a prompt took"
)


@dataclass(frozen=True)
class Overheads:
    """Seconds that a step costs one device besides its sub-modules."""

    call_s: float
    """A call of the engine."""
    own_s: float
    """The runner itself."""

    @property
    def step_s(self) -> float:
        """Both together."""
        return self.own_s + self.call_s


@dataclass(frozen=True)
class Learnt:
    """The costs that records of runs show."""

    runs: int
    requests: int
    observed: tuple[Observed, ...]
    overheads: Mapping[str, Overheads]
    """Device → its overheads, of all that took part."""
    times: Mapping[str, Mapping[str, dict[str, object]]]
    """Device → digest → an entry of times.json."""
    links: Mapping[tuple[str, str], LinkFigures]
    """(from, to) → its figures, for every link in use, and where they are alike for the way back."""
    notes: tuple[str, ...]
    """Sentences about what did not count."""
    guesses: GuessCounts = NO_GUESSES
    """Guessed tokens of all requests."""


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
    prices = prices_of(module, devices)
    by_run = [observed_in(found, prices) for found in runs]
    observed = list(chain.from_iterable(by_run))
    names = list(dict.fromkeys(item.device for item in observed))
    overheads = {name: Overheads(_call_s(name, observed, devices), _own_s(name, runs)) for name in names}
    links = learn_links(devices, runs, {name: overheads[name].own_s for name in names})
    shared = [
        replace(item, share=_share(item.phase, found, items, overheads, links))
        for found, items in zip(runs, by_run, strict=True)
        for item in items
    ]
    return Learnt(
        runs=sum(len(history.records) for history in histories),
        requests=sum(found.requests for found in runs),
        observed=tuple(shared),
        overheads=overheads,
        times={name: _times(name, module, shared, prices, overheads[name].call_s) for name in names},
        links=links,
        notes=_notes(runs, [name for name in devices.devices if name not in names]),
        guesses=sum(
            (
                request.guesses
                for history in histories
                for record in history.records
                for request in record.requests
            ),
            NO_GUESSES,
        ),
    )


def _typical(module: Module, devices: DevicesConfig, history: History) -> Typical:
    check_same_model(module, history)
    check_one_device_a_stage(history)
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
    notes += [_OVERLAP for found in runs for phase in found.phases if phase.overlaps and phase.chosen]
    notes += [f"{', '.join(idle)} took no part: priced as before"] if idle else []
    return tuple(dict.fromkeys(notes))


def _own_s(device: str, runs: Sequence[Typical]) -> float:
    """Seconds that a runner takes for itself in a step of the last phase: the mean of the builds."""
    each = [found.phases[-1].mean(lambda steps, number: steps.own_of(device, number)) for found in runs]
    known = [seconds for seconds in each if seconds is not None]
    return math.fsum(known) / len(known) if known else 0.0


def _call_s(device: str, observed: Sequence[Observed], devices: DevicesConfig) -> float:
    """Seconds of a call of the engine, by the last phase of loads of different sizes; else as it was known before."""
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


def _share(
    name: str,
    found: Typical,
    observed: Sequence[Observed],
    overheads: Mapping[str, Overheads],
    links: Mapping[tuple[str, str], LinkFigures],
) -> float:
    """The share with which the plan of a build comes out at what the steps of a phase took."""
    (phase,) = (one for one in found.phases if one.phase == name)
    if not phase.overlaps:
        return 1.0
    lasted_s = phase.mean(lambda steps, number: steps.lasted.get(number)) or 0.0
    items = [item for item in observed if item.phase == name]
    computing_s = math.fsum(item.seconds - len(item.stages) * overheads[item.device].call_s for item in items)
    besides_s = math.fsum(len(item.stages) * overheads[item.device].step_s for item in items)
    besides_s += math.fsum(
        links[message.sender, message.receiver].seconds(message.bytes)
        for message in phase.timeline.messages
        if message.kind != "residual"
    )
    return float(np.clip((lasted_s - besides_s) / max(computing_s, LEAST_S), _LEAST_PART, 1.0))


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
                "seconds": max(scale * price, LEAST_S),
                "spread_s": spread * price,
                "repeats": sum(item.steps for item in loads),
                "phase": step.name,
                "submodules": indices,
            }
    return times


def _scale(loads: Sequence[Observed], call_s: float) -> tuple[float, float]:
    """(time over price, its spread): the mean over the builds."""
    own = [
        item.share * max(item.seconds - len(item.stages) * call_s, _LEAST_PART * item.seconds) / item.priced_s
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
