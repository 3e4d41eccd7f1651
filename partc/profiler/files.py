"""The files of a profile: devices.yaml with measured figures, and times.json beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from partc.atomic import write_file
from partc.config.devices import DeviceConfig, DevicesConfig
from partc.config.section import Section
from partc.config.times import FORMAT, as_json
from partc.config.units import format_bytes, format_seconds
from partc.errors import ConfigError
from partc.format.json_text import read_json
from partc.profiler.learn import Learnt
from partc.profiler.links import LinkFigures
from partc.profiler.measurement import DeviceResult, ProfileResult

DEVICES_FILE, TIMES_FILE = "devices.yaml", "times.json"
Pair = tuple[str, str]
_MEASURED = ("profile", "arch", "provider", "flops", "memory_bandwidth", "memory", "call_overhead")


def write_files(folder: Path, top: Section, devices: DevicesConfig, result: ProfileResult) -> None:
    """Write devices.yaml and times.json; `top` is the devices.yaml that was given."""
    now = datetime.now(UTC)
    by = f"measured by partc profile on {now:%Y-%m-%d}"
    where = ", over loopback: the figures of this machine" if result.local else ""
    given = top.section("devices")
    blocks = [
        _device(name, given.section(name).data, config, result.devices[name], by)
        for name, config in devices.devices.items()
    ]
    text = devices_yaml(f"{by.capitalize()}{where}.", top, devices, blocks, result.links)
    sections = {name: _times(devices.devices[name], result, name) for name in result.devices}
    _write(folder, text, times_json(result.work.settings, sections, now))


def write_learnt(
    folder: Path, top: Section, devices: DevicesConfig, settings: Mapping[str, object], learnt: Learnt
) -> None:
    """Write the same two files from what runs showed; what they do not tell stays as it was."""
    now = datetime.now(UTC)
    given = top.section("devices")
    blocks = [[f"  {_flow({name: given.section(name).data})}"] for name in devices.devices]
    heading = f"Learnt by partc profile --from on {now:%Y-%m-%d}, from {learnt.runs} runs."
    text = devices_yaml(heading, top, devices, blocks, learnt.links)
    known = _known_times(devices)
    sections = {
        **known,
        **{name: _learnt_times(devices.devices[name], learnt, name, known) for name in learnt.times},
    }
    _write(folder, text, times_json(settings, sections, now))


def _write(folder: Path, devices: str, times: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / TIMES_FILE, f"{json.dumps(times, indent=1)}\n")
    write_file(folder / DEVICES_FILE, devices)


def times_json(
    settings: Mapping[str, object], devices: Mapping[str, Mapping[str, object]], now: datetime
) -> dict[str, object]:
    """The content of times.json (`partc.config.times`)."""
    return {
        "format": FORMAT,
        "measured": now.isoformat(timespec="seconds"),
        "settings": dict(settings),
        "devices": dict(devices),
    }


def _settings(device: DeviceConfig) -> dict[str, object]:
    """The settings of a device that its times are for."""
    return {
        "target": device.target,
        "provider": device.provider,
        "threads": device.threads,
        "options": as_json(device.options),
    }


def _times(device: DeviceConfig, result: ProfileResult, name: str) -> dict[str, object]:
    found = result.devices[name]
    return {
        **_settings(device),
        "machine": {key: found.facts.get(key) for key in ("cpu", "arch", "cores", "memory_bytes")},
        "call_overhead_s": found.figures.call_overhead_s,
        "step_overhead_s": found.step_overhead_s,
        "hop_overhead_s": found.figures.call_overhead_s,
        "rough": name in result.busy,
        "times": dict(found.times),
    }


def _learnt_times(
    device: DeviceConfig, learnt: Learnt, name: str, known: Mapping[str, Mapping[str, Any]]
) -> dict[str, object]:
    """The section of a device in times.json: what runs showed, over what was known before."""
    before, overheads = known.get(name, {}), learnt.overheads[name]
    return {
        **_settings(device),
        "machine": before.get("machine", {}),
        "call_overhead_s": overheads.call_s,
        "step_overhead_s": overheads.step_s,
        "hop_overhead_s": overheads.step_s,
        "times": {**before.get("times", {}), **learnt.times[name]},
    }


def _known_times(devices: DevicesConfig) -> dict[str, dict[str, Any]]:
    """Device → its section of the times.json that devices.yaml names, where it is for the device as it is now."""
    if devices.measured is None:
        return {}
    data = read_json(Path(devices.measured.file), ConfigError, None)["devices"]
    return {name: data[name] for name in devices.devices if devices.times_of(name) is not None}


def devices_yaml(
    heading: str,
    top: Section,
    devices: DevicesConfig,
    blocks: Iterable[Sequence[str]],
    links: Mapping[Pair, LinkFigures],
) -> str:
    """The devices.yaml that was given, with the figures that were measured in the place of its own."""
    lines = [f"# {heading}", f"source: {devices.source}", f"measured: {TIMES_FILE}"]
    rest = {
        key: value for key, value in top.data.items() if key not in ("source", "devices", "links", "measured")
    }
    lines += [_flow({key: value}) for key, value in rest.items()]
    lines += ["devices:", *(line for block in blocks for line in block)]
    entries = [f"  {_flow({key: value})}" for key, value in _kept_links(top, devices, links).items()]
    entries += [_link(pair, figures) for pair, figures in links.items()]
    lines += ["links:", *entries] if entries else []  # a device by itself has none
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
        f"    arch: {given.get('arch', config.arch)}",  # `host` stands for features, too
        f"    provider: {config.provider}",
        f"    flops: {figures.flops_per_s / 1e9:.4g} GFLOP/s",
        f"    memory_bandwidth: {figures.memory_bandwidth_bytes_per_s / 1e9:.4g} GB/s",
        f"    memory: {memory} B  # the smaller of what was given and the {format_bytes(free)} that were free",
        f"    call_overhead: 0 s  # a call takes {format_seconds(figures.call_overhead_s)}, counted once a step by"
        f" {TIMES_FILE}",
    ]


def _kept_links(top: Section, devices: DevicesConfig, links: Mapping[Pair, LinkFigures]) -> dict[str, object]:
    """The links that were given and are not replaced altogether."""
    names = list(devices.devices)
    left = {(a, b) for a in names for b in names if a != b} - set(links)
    kept = {}
    for key, value in top.section("links").data.items():
        pair = tuple(key.replace(">", "").replace(" ", "").split("-"))
        both = {pair, pair[::-1]} if "->" not in key else {pair}
        if left if key == "default" else both & left:
            kept[key] = value
    return kept


def _link(pair: Pair, figures: LinkFigures) -> str:
    bandwidth = f"{figures.bandwidth_bytes_per_s * 8 / 1e6:.4g} Mbit/s"
    return f"  {pair[0]}->{pair[1]}: {{bandwidth: {bandwidth}, latency: {figures.latency_s * 1e6:.4g} us}}"


def _flow(data: Mapping[str, object]) -> str:
    """One entry on one line."""
    text = yaml.safe_dump(data, sort_keys=False, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.strip().removeprefix("{").removesuffix("}")
