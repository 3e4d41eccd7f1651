"""The seconds of a sub-module on a device: measured by `partc profile` where there are times, else the roofline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partc.config.devices import DeviceConfig, DevicesConfig
from partc.ir.digests import submodule_digest
from partc.ir.graph import PhaseCost, Submodule
from partc.ir.workload import Step


def roofline_s(cost: PhaseCost, device: DeviceConfig) -> float:
    """A sub-module takes as long as its arithmetic or as its memory traffic."""
    computing = cost.flops / device.flops_per_s
    moving = cost.read_bytes / device.memory_bandwidth_bytes_per_s
    return max(computing, moving) + device.call_overhead_s


def prices(
    submodules: Sequence[Submodule], costs: Sequence[PhaseCost], step: Step, devices: DevicesConfig
) -> tuple[Mapping[str, float], ...]:
    """Device → seconds of every sub-module in one phase, as the plan counts them.

    On the source, sub-module 0 begins every step, whatever the plan is: it carries what a step costs there
    besides (`step_overhead_s`). Elsewhere the message that begins a stage does (`hop_s`).
    """
    result = submodule_s(submodules, costs, step, devices)
    if result and (times := devices.times_of(devices.source)) is not None:
        result[0][devices.source] += times.step_overhead_s
    return tuple(result)


def hop_s(devices: DevicesConfig, receiver: str) -> float:
    """Seconds that a message costs its receiver besides what the link takes; 0 where that was not measured.

    A message to the source ends a step: what the next one costs there is in sub-module 0.
    """
    times = devices.times_of(receiver)
    return 0.0 if times is None or receiver == devices.source else times.hop_overhead_s


def submodule_s(
    submodules: Sequence[Submodule], costs: Sequence[PhaseCost], step: Step, devices: DevicesConfig
) -> list[dict[str, float]]:
    """Device → seconds of every sub-module by itself; O(V + E), nothing is looked up where no device was measured."""
    measured = _measured(submodules, step, devices)
    result = []
    for index, cost in enumerate(costs):
        known = {name: times[index] for name, times in measured.items() if index in times}
        estimated = {name: roofline_s(cost, device) for name, device in devices.devices.items()}
        result.append({**estimated, **known})
    return result


def count_measured(
    submodules: Sequence[Submodule], steps: Iterable[Step], devices: DevicesConfig
) -> dict[str, int]:
    """The number of measured times among those of all sub-modules, phases and devices, and the number of all."""
    steps = list(steps)
    found = [_measured(submodules, step, devices) for step in steps]
    return {
        "measured": sum(len(times) for one in found for times in one.values()),
        "of": len(steps) * len(submodules) * len(devices.devices),
    }


def overheads(devices: DevicesConfig) -> dict[str, dict[str, float]]:
    """Device → what a call of its engine costs, a step as the source, and one elsewhere, where these were measured."""
    found = ((name, devices.times_of(name)) for name in devices.devices)
    return {
        name: {
            "call_s": times.call_overhead_s,
            "step_s": times.step_overhead_s,
            "hop_s": times.hop_overhead_s,
        }
        for name, times in found
        if times is not None
    }


def _measured(
    submodules: Sequence[Submodule], step: Step, devices: DevicesConfig
) -> dict[str, dict[int, float]]:
    """Device → sub-module → seconds, where its digest was measured there."""
    known = {name: times for name in devices.devices if (times := devices.times_of(name)) is not None}
    if not known:
        return {}
    digests = [submodule_digest(submodule.nodes, step) for submodule in submodules]
    return {
        name: {
            index: times.seconds[digest] for index, digest in enumerate(digests) if digest in times.seconds
        }
        for name, times in known.items()
    }
