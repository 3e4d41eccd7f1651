"""devices.yaml: the devices, the links between them, and what the plan shall be best at."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from partc.config.addresses import check_addresses, read_address, require_links
from partc.config.limits import read_limits
from partc.config.model import PLACES as PLACES_IN_MODEL
from partc.config.placement import KEYS as PLACEMENT_KEYS
from partc.config.placement import Ranges, read_ranges
from partc.config.profiles import PLATFORM_OF, find_profile
from partc.config.section import Section, describe
from partc.config.target import read_target
from partc.config.times import DeviceTimes, Times, load_times
from partc.config.units import parse_bandwidth, parse_bytes, parse_flops, parse_seconds
from partc.config.yamlfile import load_yaml
from partc.format.plan import OBJECTIVES, Objective
from partc.format.readings import Limits
from partc.pipeline.registry import COMMON_OPTIONS, owner_of
from partc.runtime.processor import MOST_THREADS

SURVIVE = ("none", "one")
"""The number of devices that may be lost: none, or any single one but the source."""
MIRROR = ("auto", "on", "off")
"""Whether devices keep copies of others' rows: where link and memory have room, in any case, never."""
ANSWER = "prompt+answer"
KEEP = ("prompt", ANSWER)
"""What no device but the source sees."""
MOST_BORDERS = 3
"""Further borders that a device may be given, at which work can be moved."""
_TOP_KEYS = (
    "source", "objective", "keep", "returns", "memory_fraction", "survive", "mirror", "overlap", "devices", "links",
    "measured", *PLACEMENT_KEYS,
)  # fmt: skip
_DEVICE_KEYS = (
    "target", "profile", "arch", "flops", "memory_bandwidth", "memory", "overhead", "call_overhead",
    "storage", "storage_bandwidth", "limits", "address", "threads", "provider", "runner", "options",
)  # fmt: skip
RUNNERS = ("native", "python")
"""The programs that can run a device's part: partc-runner in C++, and the one of this package."""
_OF_THE_FILE = {key: f"write `{key}` at the top of the file, beside `source`" for key in _TOP_KEYS}
_OF_A_DEVICE = {key: f"write `{key}` in a device, beside its `memory`" for key in _DEVICE_KEYS}
"""Key → the place where it belongs."""
_NAME = re.compile(r"^[a-z][a-z0-9_]*$")
_PAIR = re.compile(r"^([^\s>-]+)\s*(->|-)\s*([^\s>-]+)$")
_T = TypeVar("_T")


@dataclass(frozen=True)
class DeviceConfig:
    """One device: the figures of its profile, overridden by what devices.yaml says."""

    name: str
    target: str
    """A name of `partc.pipeline.registry.TARGETS`."""
    arch: str
    flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    memory_bytes: int
    """All of its memory; `DevicesConfig.usable_memory` applies memory_fraction."""
    overhead_bytes: int = 0
    """Bytes of the usable memory that the runner itself takes."""
    call_overhead_s: float = 0.0
    """Added to every call of a sub-module."""
    storage_bytes: int | None = None
    """Bytes of weights that may lie on its disk; None: no limit."""
    storage_bandwidth_bytes_per_s: float | None = None
    """Speed at which it reads its disk; None: not known."""
    limits: Limits | None = None
    """The point at which its work shall move to other devices; None: never."""
    provider: str = "cpu"
    """Execution provider of the target."""
    threads: int = 0
    """Threads of a call; 0 leaves it to the engine."""
    runner: str | None = None
    """One of `RUNNERS`; None: the native one, where it is built and serves the target."""
    address: str | None = None
    """`host:port` where its runner listens; None: given at start."""
    profile: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of the target alone."""
    chosen: Mapping[str, object] = field(default_factory=dict)
    """Keys that devices.yaml leaves open, with what was taken, as JSON."""

    @property
    def platform(self) -> str:
        """The system that its runner is for, a name of `make native`'s."""
        return str(self.options.get("platform") or PLATFORM_OF.get(self.arch, self.arch))

    @property
    def target_options(self) -> dict[str, object]:
        """The options that `partc.pipeline.registry.load_target` takes for this device."""
        return {**{key: getattr(self, key) for key in COMMON_OPTIONS}, **self.options}


@dataclass(frozen=True)
class Link:
    """One direction between two devices."""

    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True)
class DevicesConfig:
    """The content of devices.yaml, checked, with profiles looked up."""

    source: str
    """Holds the first sub-module; raw input never leaves it."""
    devices: Mapping[str, DeviceConfig]
    """In the order of the file."""
    objective: Objective = "latency"
    """One of `OBJECTIVES`."""
    keep: str = "prompt"
    """One of `KEEP`."""
    keep_place: str = field(default="devices.yaml: keep", compare=False)
    """The place of `keep` in the file, for messages."""
    returns: int | Literal["auto", "any"] = "auto"
    """How often a plan may return to a device that it has left; `auto`: see `partc.planner.exact.returns`."""
    memory_fraction: float = 0.9
    """The part of a device's memory that may be used (EdgeShard's beta)."""
    survive: str = "none"
    """One of `SURVIVE`."""
    mirror: str = "auto"
    """One of `MIRROR`; without `survive` there is nobody to mirror for."""
    overlap: int = 0
    """Further borders a device, at which work can be moved to a neighbour; at most `MOST_BORDERS`."""
    default_link: Link | None = None
    links: Mapping[tuple[str, str], Link | None] = field(default_factory=dict)
    """(from, to) -> the link, or None where the file says that there is none."""
    place: Ranges = field(default_factory=dict)
    """The user's own assignment; empty: the planner decides."""
    pin: Ranges = field(default_factory=dict)
    """Layers or sub-modules that a device must hold."""
    ban: Ranges = field(default_factory=dict)
    """Layers or sub-modules that a device may not hold."""
    measured: Times | None = None
    """Times of sub-modules by `partc profile`, which are preferred to estimates."""

    def times_of(self, name: str) -> DeviceTimes | None:
        """The times measured on a device with the target, threads and options that it has now."""
        device, times = self.devices[name], self.measured.devices if self.measured else {}
        found = times.get(name)
        now = (device.target, device.provider, device.threads, device.options)
        return found if found and found.fits(*now) else None

    def require_links(self, file: Path) -> None:
        """Refuse devices that nothing can be sent to; `file` is where they are listed. See `require_links`."""
        where = f"{file}: links"
        require_links(list(self.devices), self.default_link is not None, self.links, where)

    def link(self, sender: str, receiver: str) -> Link | None:
        """The link from one device to another; None where they cannot exchange."""
        return self.links.get((sender, receiver), self.default_link)

    def usable_memory(self, name: str) -> int:
        """Bytes of a device that sub-modules and the runtime may fill."""
        return int(self.devices[name].memory_bytes * self.memory_fraction)


def load_devices(path: str | Path) -> DevicesConfig:
    """Reads devices.yaml.

    Raises:
        ConfigError: no such file, or a key, unit, name or value is wrong.
    """
    return read_devices(load_yaml(Path(path)))


def read_devices(top: Section) -> DevicesConfig:
    """Checks the content of a devices.yaml."""
    top.allow(_TOP_KEYS, {**PLACES_IN_MODEL, **_OF_A_DEVICE})
    devices = {name: _device(top.section("devices"), name) for name in _device_names(top)}
    check_addresses(top.section("devices"), {name: device.address for name, device in devices.items()})
    default, links = _links(top.section("links"), devices)
    return DevicesConfig(
        source=_source(top, devices),
        devices=devices,
        objective=top.choice("objective", OBJECTIVES, "latency"),
        keep=top.choice("keep", KEEP, "prompt"),
        keep_place=top.place("keep"),
        returns=_returns(top),
        memory_fraction=_memory_fraction(top),
        survive=top.choice("survive", SURVIVE, "none"),
        mirror=_mirror(top),
        overlap=_overlap(top),
        default_link=default,
        links=links,
        **{key: read_ranges(top, key, devices) for key in PLACEMENT_KEYS},
        measured=_measured(top),
    )


def _returns(top: Section) -> int | Literal["auto", "any"]:
    value = top.data.get("returns", "auto")
    if value == "auto":
        return "auto"
    if value == "any":
        return "any"
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise top.error(
            f"expected `auto`, `any` or a whole number of at least 0, found {describe(value)}",
            "returns",
            hint="write `returns: 0` for plans that give each device one interval",
        )
    return value


def _device_names(top: Section) -> list[str]:
    names = list(top.section("devices").data)
    if not names:
        raise top.error(
            "there are no devices",
            "devices",
            hint="add `devices: {phone: {profile: pixel_7_pro}}`",
        )
    for name in names:
        if not _NAME.match(name):
            raise top.section("devices").error(
                f"`{name}` is not a device name",
                name,
                hint="lower-case letters, digits and _, starting with a letter",
            )
    return names


def _source(top: Section, devices: Mapping[str, DeviceConfig]) -> str:
    top.require("source", f"source: {next(iter(devices))}")
    source = top.text("source")
    if source not in devices:
        raise top.error(
            f"the source `{source}` is not one of the devices", "source", hint=_choose(source, devices)
        )
    return source


def _measured(top: Section) -> Times | None:
    """The file is beside the one that names it."""
    if "measured" not in top:
        return None
    return load_times(Path(top.file).parent / top.text("measured"), top.place("measured"))


def _mirror(top: Section) -> str:
    """One of `MIRROR`; YAML takes a plain `on` or `off` for a truth value."""
    if isinstance(value := top.data.get("mirror"), bool):
        mode = "on" if value else "off"
    else:
        mode = top.choice("mirror", MIRROR, "auto")
    if mode == "on" and top.choice("survive", SURVIVE, "none") == "none":
        raise top.error("`mirror: on` needs a loss to mirror for", "mirror", hint="write `survive: one`, too")
    return mode


def _overlap(top: Section) -> int:
    count = top.whole("overlap", 0, minimum=0)
    if count > MOST_BORDERS:
        hint = f"write `overlap: {MOST_BORDERS}`: each further border costs a call in every step"
        raise top.error(f"{count} further borders a device are too many", "overlap", hint=hint)
    return count


def _memory_fraction(top: Section) -> float:
    fraction = top.number("memory_fraction", 0.9, positive=True)
    if fraction > 1:
        raise top.error(
            f"expected a fraction of at most 1, found {fraction:g}",
            "memory_fraction",
            hint="write `memory_fraction: 0.9`",
        )
    return fraction


def _device(parent: Section, name: str) -> DeviceConfig:
    section = parent.section(name)
    section.allow(_DEVICE_KEYS, _elsewhere(section))
    profile = (
        find_profile(section.text("profile"), where=section.place("profile"))
        if "profile" in section
        else None
    )
    return DeviceConfig(
        name=name,
        **read_target(section, profile)._asdict(),
        flops_per_s=_figure(
            section, "flops", parse_flops, profile.flops_per_s if profile else None, "12 GFLOP/s"
        ),
        memory_bandwidth_bytes_per_s=_figure(
            section,
            "memory_bandwidth",
            parse_bandwidth,
            profile.memory_bandwidth_bytes_per_s if profile else None,
            "9 GB/s",
        ),
        memory_bytes=_figure(
            section, "memory", parse_bytes, profile.memory_bytes if profile else None, "3 GiB"
        ),
        overhead_bytes=parse_bytes(
            section.data.get("overhead", "0 B"), where=section.place("overhead"), allow_zero=True
        ),
        call_overhead_s=parse_seconds(
            section.data.get("call_overhead", "0 s"), where=section.place("call_overhead")
        ),
        storage_bytes=section.quantity("storage", parse_bytes),
        storage_bandwidth_bytes_per_s=section.quantity("storage_bandwidth", parse_bandwidth),
        limits=read_limits(section),
        threads=_threads(section),
        runner=section.choice("runner", RUNNERS) if "runner" in section else None,
        address=read_address(section),
        profile=profile.name if profile else None,
    )


def _elsewhere(section: Section) -> dict[str, str]:
    """Keys of a device that are none → the place where they belong, as far as there is one."""
    unknown = [key for key in section.data if key not in _DEVICE_KEYS]
    of_options = {key: f"write `options: {{{key}: …}}`" for key in unknown if owner_of(key)}
    return {**_OF_THE_FILE, **PLACES_IN_MODEL, **of_options}


def _figure(section: Section, key: str, parse: Callable[..., _T], known: _T | None, example: str) -> _T:
    """A figure of the file, else of the profile."""
    if key in section or known is None:
        value = section.require(key, f"{key}: {example}` or a `profile: ...")
        return parse(value, where=section.place(key))
    return known


def _threads(section: Section) -> int:
    count = section.whole("threads", 0, minimum=0)
    if count > MOST_THREADS:
        hint = "write the number of the device's cores, or leave it out"
        raise section.error(f"{count} threads are more than any device has cores for", "threads", hint=hint)
    return count


def _links(
    section: Section, devices: Mapping[str, DeviceConfig]
) -> tuple[Link | None, dict[tuple[str, str], Link | None]]:
    """The default link and the particular ones: `a->b` wins over `a-b`, which wins over `default`."""
    default = _link(section, "default", None) if "default" in section else None
    both_ways: dict[tuple[str, str], Link | None] = {}
    one_way: dict[tuple[str, str], Link | None] = {}
    keys = [key for key in section.data if key != "default"]
    # Both-way entries first: a one-way entry takes from them what it leaves out.
    for key in sorted(keys, key=lambda key: "->" in key):
        first, arrow, second = _pair(section, key, devices)
        known, wider = (one_way, both_ways) if arrow == "->" else (both_ways, {})
        if (first, second) in known:
            raise section.error(f"the link `{key}` is given twice", key, hint="remove one of the two")
        known[first, second] = _link(section, key, wider.get((first, second), default))
        if arrow == "-":
            known[second, first] = known[first, second]
    return default, {**both_ways, **one_way}


def _pair(section: Section, key: str, devices: Mapping[str, DeviceConfig]) -> tuple[str, str, str]:
    match = _PAIR.match(key)
    if match is None:
        raise section.error(
            f"`{key}` is not a pair of devices",
            key,
            hint="write `a-b` (both ways), `a->b` (one way) or `default`",
        )
    first, arrow, second = match.groups()
    for name in (first, second):
        if name not in devices:
            raise section.error(f"a link to the unknown device `{name}`", key, hint=_choose(name, devices))
    if first == second:
        raise section.error(f"a link from `{first}` to itself", key, hint="remove it")
    return first, arrow, second


def _link(parent: Section, key: str, wider: Link | None) -> Link | None:
    """`{bandwidth, latency}`; what is left out comes from the next wider entry. `none`: no link."""
    value = parent.data[key]
    if value is None or value == "none":
        return None
    if not isinstance(value, Mapping):
        raise parent.error(
            f"expected {{bandwidth: ..., latency: ...}}, found {describe(value)}",
            key,
            hint="write `{bandwidth: 100 Mbit/s, latency: 2 ms}`, or `none` where there is no link",
        )
    section = parent.section(key)
    section.allow(("bandwidth", "latency"))
    return Link(
        _figure_of_link(
            section,
            "bandwidth",
            parse_bandwidth,
            wider.bandwidth_bytes_per_s if wider else None,
            "100 Mbit/s",
        ),
        _figure_of_link(section, "latency", parse_seconds, wider.latency_s if wider else None, "2 ms"),
    )


def _figure_of_link(
    section: Section, key: str, parse: Callable[..., float], wider: float | None, example: str
) -> float:
    if key not in section.data and wider is not None:
        return wider
    return parse(section.require(key, f"{key}: {example}"), where=section.place(key))


def _choose(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"{f'did you mean `{near[0]}`? ' if near else ''}choose one of: {', '.join(known)}"
