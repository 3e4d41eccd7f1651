"""Advice on measured times that do not fit the model, the devices or the workload of a plan."""

from __future__ import annotations

from collections.abc import Mapping

from partc.config.devices import DevicesConfig
from partc.config.times import Times, as_json
from partc.ir.graph import Module
from partc.ir.workload import settings

_OTHERS = "its sub-modules are others (another model, or another --cut-rule)"
_AGAIN = "profile again: partc profile MODEL --target DEVICES"


def advice(module: Module, devices: DevicesConfig, measured: int, of: int) -> list[str]:
    """Sentences about the times that devices.yaml names, which has so many of those that the plan needs."""
    times = devices.measured
    if times is None:
        return []
    rough = [name for name in devices.devices if (found := devices.times_of(name)) and found.rough]
    lines = [f"rough: measured on a busy machine ({', '.join(rough)}); {_AGAIN}"] if rough else []
    if measured < of:
        some = ["runs tell nothing of what they did not do, such as prompts of the planned length"]
        reasons = _devices(times, devices) or _model(times, module) or (some if measured else [_OTHERS])
        lines.append(f"why estimated: {'; '.join(reasons)}; {_AGAIN}")
    return lines


def _devices(times: Times, devices: DevicesConfig) -> list[str]:
    """The differences of devices."""
    reasons = []
    for name, device in devices.devices.items():
        found = times.devices.get(name)
        if found is None:
            reasons.append(f"{name} was not measured")
            continue
        for key in ("target", "provider", "threads"):
            then, now = getattr(found, key), getattr(device, key)
            if then != now:
                reasons.append(f"{name} was measured with {key} {then}, now {now}")
        reasons += _options(name, found.options, as_json(device.options))
    return reasons


def _options(name: str, then: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """The differences of a target's own options; "default" where devices.yaml says nothing."""
    changed = [key for key in sorted({*then, *now}) if then.get(key) != now.get(key)]
    return [
        f"{name} was measured with {key} {then.get(key, 'default')}, now {now.get(key, 'default')}"
        for key in changed
    ]


def _model(times: Times, module: Module) -> list[str]:
    """The differences of the model and its workload."""
    now = settings(module.info)
    return [
        f"measured with {key} {then}, now {now[key]}"
        for key, then in times.settings.items()
        if key in now and then != now[key]
    ]
