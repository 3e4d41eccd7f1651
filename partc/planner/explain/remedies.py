"""Remedies where no plan fits, by the kind of constraint that cannot be met."""

from __future__ import annotations

from collections.abc import Sequence

from partc.config.devices import DevicesConfig
from partc.config.units import format_bytes
from partc.ir.graph import ModelInfo, SubmoduleProfile
from partc.planner.model.infeasible import kind_of
from partc.planner.model.problem import Problem

_WORTH = 0.02
"""A lever is named that saves at least this part of all memory needed."""


def problem_remedy(problem: Problem, constraint: str) -> str:
    """The remedy for a user who wrote a planning problem."""
    remedies = {
        "memory": "raise `memory_bytes` of a device, add a device, or cut into finer sub-modules",
        "storage": "raise `storage_bytes` of a device, or add a device",
        "links": "add the missing link to `links`, or raise `memory_bytes` of devices that are linked",
        "times": "add a time to `time_s` of the sub-module for a device that may run it",
        "source": f"add `{problem.source}` to `time_s` of sub-module 0, or choose another source",
    }
    return remedies.get(kind_of(constraint), "give more memory or links, or finer sub-modules")


def model_remedy(
    info: ModelInfo, profile: Sequence[SubmoduleProfile], devices: DevicesConfig, constraint: str
) -> str:
    """The remedy for a user who wrote model.yaml and devices.yaml."""
    remedies = {
        "storage": "raise `storage` of a device in devices.yaml, add a device, or quantise the weights",
        "links": "add the missing link to `links` of devices.yaml, or give linked devices more memory",
        "times": "remove the pin or ban that leaves it no device",
        "source": f"remove the pin or ban that takes it from {devices.source}, or choose another source",
    }
    return remedies.get(kind_of(constraint)) or _memory_remedy(info, profile, devices)


def _memory_remedy(info: ModelInfo, profile: Sequence[SubmoduleProfile], devices: DevicesConfig) -> str:
    """The largest lever of the user's own files, with what it saves at most."""
    levers = _levers(info, profile, devices)
    weights = sum(item.weight_bytes for item in profile)
    need = weights + sum(item.state_bytes for item in profile)
    text, saved = max(levers.items(), key=lambda lever: lever[1])
    if saved < _WORTH * need:
        return f"the weights take {format_bytes(weights)}: add a device or memory"
    return f"{text}, which saves up to {format_bytes(saved)}; or add a device or memory"


def _levers(info: ModelInfo, profile: Sequence[SubmoduleProfile], devices: DevicesConfig) -> dict[str, float]:
    """Change → bytes that it saves in all, down to the needs of the workload."""
    states = sum(item.state_bytes for item in profile)
    peak = max((cost.peak_bytes for item in profile for cost in item.phases.values()), default=0)
    tokens = info.prompt + (info.generate if info.has_states else 0)
    least_batch = info.batch or 1
    overhead = {
        "lower the `overhead` of devices": sum(device.overhead_bytes for device in devices.devices.values())
    }
    if info.task == "graph":
        return {**overhead, **({"lower the sizes in `dims`": float(states + peak)} if info.dims else {})}
    return {
        f"lower max_batch ({info.max_batch})": (states + peak) * (1 - least_batch / max(1, info.max_batch)),
        f"lower max_requests ({info.max_requests})": states * (1 - 1 / max(1, info.max_requests)),
        f"lower max_sequence ({info.max_sequence})": (states + peak)
        * max(0.0, 1 - tokens / max(1, info.max_sequence)),
        **overhead,
    }
