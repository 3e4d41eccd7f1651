"""The files of a profile: devices.yaml with measured figures, and times.json beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import yaml

from partc.config.devices import DeviceConfig, DevicesConfig
from partc.config.section import Section
from partc.config.times import FORMAT, as_json
from partc.config.units import format_bytes, format_seconds
from partc.profiler.links import LinkFigures
from partc.profiler.measurement import DeviceResult, ProfileResult

DEVICES_FILE, TIMES_FILE = "devices.yaml", "times.json"
_MEASURED = ("profile", "arch", "provider", "flops", "memory_bandwidth", "memory", "call_overhead")


def write_files(folder: Path, top: Section, devices: DevicesConfig, result: ProfileResult) -> None:
    """Write devices.yaml and times.json; `top` is the devices.yaml that was given."""
    now = datetime.now(UTC)
    (folder / TIMES_FILE).write_text(f"{json.dumps(times_json(devices, result, now), indent=1)}\n", "utf-8")
    (folder / DEVICES_FILE).write_text(devices_yaml(top, devices, result, now), "utf-8")


def times_json(devices: DevicesConfig, result: ProfileResult, now: datetime) -> dict[str, object]:
    """The content of times.json (`partc.config.times`)."""
    return {
        "format": FORMAT,
        "measured": now.isoformat(timespec="seconds"),
        "settings": dict(result.work.settings),
        "devices": {
            name: {
                "target": devices.devices[name].target,
                "provider": devices.devices[name].provider,
                "threads": devices.devices[name].threads,
                "options": as_json(devices.devices[name].options),
                "machine": {key: found.facts.get(key) for key in ("cpu", "arch", "cores", "memory_bytes")},
                "call_overhead_s": found.figures.call_overhead_s,
                "step_overhead_s": found.step_overhead_s,
                "rough": name in result.busy,
                "times": dict(found.times),
            }
            for name, found in result.devices.items()
        },
    }


def devices_yaml(top: Section, devices: DevicesConfig, result: ProfileResult, now: datetime) -> str:
    """The devices.yaml that was given, with the figures that were measured in the place of its own."""
    by = f"measured by partc profile on {now:%Y-%m-%d}"
    where = ", over loopback: the figures of this machine" if result.local else ""
    lines = [f"# {by.capitalize()}{where}.", f"source: {devices.source}", f"measured: {TIMES_FILE}"]
    rest = {
        key: value for key, value in top.data.items() if key not in ("source", "devices", "links", "measured")
    }
    lines += [_flow({key: value}) for key, value in rest.items()]
    lines.append("devices:")
    for name, config in devices.devices.items():
        lines += _device(name, top.section("devices").section(name).data, config, result.devices[name], by)
    lines.append("links:")
    lines += [f"  {_flow({key: value})}" for key, value in _kept_links(top, devices, result).items()]
    lines += [_link(pair, figures) for pair, figures in result.links.items()]
    return "\n".join(lines) + "\n"


def _device(
    name: str, given: Mapping[str, object], config: DeviceConfig, found: DeviceResult, by: str
) -> list[str]:
    figures, cpu = found.figures, str(found.facts.get("cpu"))
    free = int(found.facts.get("memory_bytes") or 0)
    memory = min(config.memory_bytes, free) if free else config.memory_bytes
    kept = {key: value for key, value in given.items() if key not in _MEASURED}
    return [
        f"  {name}:  # {by}, {cpu}",
        *(f"    {_flow({key: value})}" for key, value in kept.items()),
        f"    arch: {config.arch}",
        f"    provider: {config.provider}",
        f"    flops: {figures.flops_per_s / 1e9:.4g} GFLOP/s",
        f"    memory_bandwidth: {figures.memory_bandwidth_bytes_per_s / 1e9:.4g} GB/s",
        f"    memory: {memory} B  # the smaller of what was given and the {format_bytes(free)} that were free",
        f"    call_overhead: 0 s  # a call takes {format_seconds(figures.call_overhead_s)}, counted once a step:"
        " in the latency of links, and on the source in times.json",
    ]


def _kept_links(top: Section, devices: DevicesConfig, result: ProfileResult) -> dict[str, object]:
    """The links that were given and are not replaced altogether."""
    names = list(devices.devices)
    left = {(a, b) for a in names for b in names if a != b} - set(result.links)
    kept = {}
    for key, value in top.section("links").data.items():
        pair = tuple(key.replace(">", "").replace(" ", "").split("-"))
        both = {pair, pair[::-1]} if "->" not in key else {pair}
        if left if key == "default" else both & left:
            kept[key] = value
    return kept


def _link(pair: tuple[str, str], figures: LinkFigures) -> str:
    bandwidth = f"{figures.bandwidth_bytes_per_s * 8 / 1e6:.4g} Mbit/s"
    return f"  {pair[0]}->{pair[1]}: {{bandwidth: {bandwidth}, latency: {figures.latency_s * 1e6:.4g} us}}"


def _flow(data: Mapping[str, object]) -> str:
    """One entry on one line."""
    text = yaml.safe_dump(data, sort_keys=False, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.strip().removeprefix("{").removesuffix("}")
