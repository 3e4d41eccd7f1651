"""The planning problem: devices, links, sub-modules and what flows between them.

The JSON form is a contract with users (`partc plan --problem FILE`) and with plan.json; absent numbers are 0.

```
{"objective": "latency", "source": "A", "return_bytes": 8,
 "devices":    [{"name", "memory_bytes", "overhead_bytes"}],
 "submodules": [{"memory_bytes", "time_s": {device: seconds}, "peak_bytes", "shared": {"name", "bytes"}}],
 "edges":      [{"from", "to", "bytes", "value"}],
 "links":      [{"from", "to", "bandwidth_bytes_per_s", "latency_s"}],
 "phases":     [{"name", "weight", "submodules": [{"time_s"}], "edges", "return_bytes"}]}
```

With `phases`, the times, edges and return_bytes stand in the phases alone. An optional `"batch": 8` at the top
says that a step makes a token of each of eight sequences; it changes what is said of a plan, never the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from partc.config.devices import OBJECTIVES
from partc.config.section import Section, describe
from partc.errors import ConfigError

LEAST = 1e-30
"""No number of a problem is smaller unless it is zero, and `Section` refuses the very large: products and ratios of
a few such numbers are numbers still."""


@dataclass(frozen=True)
class Device:
    """A device that may hold one interval of sub-modules."""

    name: str
    memory_bytes: float
    """Usable memory, memory_fraction already applied."""
    overhead_bytes: float = 0
    """What the runtime takes of it as soon as the device is used."""


@dataclass(frozen=True)
class Shared:
    """Memory that several sub-modules have in common, counted once per device (a tied embedding)."""

    name: str
    bytes: float


@dataclass(frozen=True)
class Submodule:
    """What one sub-module needs of a device."""

    memory_bytes: float
    """Weights and states."""
    time_s: Mapping[str, float]
    """Device name -> seconds; an absent device cannot run it. Empty where there are phases."""
    peak_bytes: float = 0
    """Largest size of its activations at one time."""
    shared: Shared | None = None


@dataclass(frozen=True)
class Edge:
    """A value that goes from one sub-module to a later one."""

    sender: int
    receiver: int
    bytes: float
    value: str | None = None
    """Edges with the same sender and value are sent once to each device; None: a value of its own."""


@dataclass(frozen=True)
class Link:
    """One direction between two devices."""

    sender: str
    receiver: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def seconds(self, count: float) -> float:
        """How long a message of `count` bytes takes."""
        return self.latency_s + count / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Phase:
    """One kind of step (prefill, decode) with its times and traffic."""

    name: str
    weight: float
    """How much a step of this phase counts."""
    time_s: tuple[Mapping[str, float], ...]
    """Of every sub-module: device name -> seconds."""
    edges: tuple[Edge, ...]
    return_bytes: float = 0
    """Size of the message from the last device back to the source."""


@dataclass(frozen=True)
class Problem:
    """Everything that a plan depends on."""

    objective: str
    """`latency` (seconds, minimised) or `throughput` (steps per second, maximised)."""
    source: str
    """The device that holds the first sub-module."""
    devices: tuple[Device, ...]
    submodules: tuple[Submodule, ...]
    links: tuple[Link, ...]
    """Each direction on its own; a pair that is not listed cannot exchange."""
    edges: tuple[Edge, ...] = ()
    return_bytes: float = 0
    phases: tuple[Phase, ...] = ()
    """Where given, these replace times, edges and return_bytes."""
    batch: int = 1
    """Sequences in a step: so many tokens a step makes. Times and bytes are those of the whole batch."""

    @cached_property
    def steps(self) -> tuple[Phase, ...]:
        """The phases; a problem without any has one, of weight 1."""
        if self.phases:
            return self.phases
        times = tuple(submodule.time_s for submodule in self.submodules)
        return (Phase("step", 1.0, times, self.edges, self.return_bytes),)

    @cached_property
    def link_of(self) -> dict[tuple[str, str], Link]:
        """(from, to) -> link."""
        return {(link.sender, link.receiver): link for link in self.links}

    @cached_property
    def device_of(self) -> dict[str, Device]:
        """Name -> device, in the order given."""
        return {device.name: device for device in self.devices}

    def interval_memory(self, first: int, last: int) -> float:
        """Bytes that sub-modules first..last (inclusive) need together, without the device's overhead."""
        return self.memory_of(range(first, last + 1))

    def memory_of(self, indices: Iterable[int]) -> float:
        """Bytes that these sub-modules need on one device, without its overhead; any, but at least one."""
        parts = [self.submodules[j] for j in indices]
        shared = {part.shared.name: part.shared.bytes for part in parts if part.shared}
        return (
            sum(part.memory_bytes for part in parts)
            + max(part.peak_bytes for part in parts)
            + sum(shared.values())
        )

    @classmethod
    def from_json(cls, data: object, file: str = "problem") -> Problem:
        """The problem that parsed JSON describes.

        Raises:
            ConfigError: an unknown key, device or index, or a number that cannot be; names the JSON path.
        """
        return _read(Section(data, file))

    def to_json(self) -> dict[str, object]:
        """The JSON form; `from_json` gives back an equal problem."""
        result: dict[str, object] = {
            "objective": self.objective,
            "source": self.source,
            "devices": [_device_json(device) for device in self.devices],
            "submodules": [_submodule_json(submodule, bool(self.phases)) for submodule in self.submodules],
            "links": [_link_json(link) for link in self.links],
        }
        if self.batch != 1:
            result["batch"] = self.batch
        if self.phases:
            return {**result, "phases": [_phase_json(phase) for phase in self.phases]}
        return {
            **result,
            "edges": [_edge_json(edge) for edge in self.edges],
            "return_bytes": self.return_bytes,
        }


def parse_problem(text: str, file: str = "problem") -> Problem:
    """Reads a problem from JSON text; `file` is its name in messages."""
    try:
        data = json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, file))
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"not valid JSON: {error.msg}", where=f"{file}:{error.lineno}:{error.colno}"
        ) from error
    except ValueError as error:  # numbers of thousands of digits
        raise ConfigError(f"cannot be read: {str(error).partition(';')[0]}", where=file) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", where=file) from error
    return Problem.from_json(data, file)


def _unique(pairs: Iterable[tuple[str, object]], file: str) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise ConfigError(f"the key `{key}` is given twice in one object", where=file)
        result[key] = value
    return result


def _read(top: Section) -> Problem:
    phased = "phases" in top
    single = () if phased else ("edges", "return_bytes")
    top.allow(("objective", "source", "devices", "submodules", "links", "phases", "batch", *single))
    devices = _devices(top)
    names = [device.name for device in devices]
    submodules = tuple(_submodule(section, names, phased) for section in top.sections("submodules"))
    if not submodules:
        raise top.error("there are no sub-modules", "submodules")
    _refuse_unlike_groups(top, submodules)
    return Problem(
        objective=top.choice("objective", OBJECTIVES, "latency"),
        source=_known(top, "source", names),
        devices=devices,
        submodules=submodules,
        links=_links(top, names),
        edges=_edges(top, len(submodules)),
        return_bytes=_number(top, "return_bytes", 0),
        phases=_phases(top, names, len(submodules)),
        batch=top.whole("batch", 1),
    )


def _number(section: Section, key: str, default: float | None = None, *, positive: bool = False) -> float:
    """A number that is not too small to calculate with."""
    value = section.number(key, default, positive=positive)
    if 0 < value < LEAST:
        zero = "" if positive else "zero or "
        raise section.error(f"expected {zero}a number of at least {LEAST:g}, found {value:g}", key)
    return value


def _refuse_unlike_groups(top: Section, submodules: Iterable[Submodule]) -> None:
    """What is shared under one name is one thing and has one size."""
    sizes: dict[str, float] = {}
    for j, part in enumerate(submodules):
        if part.shared and sizes.setdefault(part.shared.name, part.shared.bytes) != part.shared.bytes:
            raise top.error(
                f"the shared group `{part.shared.name}` has two sizes",
                f"submodules[{j}].shared.bytes",
                hint="sub-modules that share a group give the same bytes",
            )


def _known(section: Section, key: str, names: list[str]) -> str:
    section.require(key, f'"{key}": "{names[0]}"')
    name = section.text(key)
    if name not in names:
        raise section.error(
            f"`{name}` is not one of the devices", key, hint=f"the devices are: {', '.join(names)}"
        )
    return name


def _devices(top: Section) -> tuple[Device, ...]:
    devices: dict[str, Device] = {}
    for section in top.sections("devices"):
        section.allow(("name", "memory_bytes", "overhead_bytes"))
        name = section.text("name")
        if name in devices:
            raise section.error(f"a second device `{name}`", "name")
        devices[name] = Device(name, _number(section, "memory_bytes"), _number(section, "overhead_bytes", 0))
    if not devices:
        raise top.error("there are no devices", "devices")
    return tuple(devices.values())


def _submodule(section: Section, names: list[str], phased: bool) -> Submodule:
    section.allow(("memory_bytes", "peak_bytes", "shared", *(() if phased else ("time_s",))))
    shared = section.section("shared") if "shared" in section else None
    if shared:
        shared.allow(("name", "bytes"))
    return Submodule(
        memory_bytes=_number(section, "memory_bytes", 0),
        time_s={} if phased else _times(section, names),
        peak_bytes=_number(section, "peak_bytes", 0),
        shared=Shared(shared.text("name"), _number(shared, "bytes")) if shared else None,
    )


def _times(section: Section, names: list[str]) -> dict[str, float]:
    section.require("time_s", '"time_s": {"A": 0.01}')
    times = section.section("time_s")
    for name in times.data:
        if name not in names:
            raise times.error(
                f"`{name}` is not one of the devices", name, hint=f"the devices are: {', '.join(names)}"
            )
    return {name: _number(times, name) for name in times.data}


def _edges(section: Section, count: int) -> tuple[Edge, ...]:
    edges = []
    sizes: dict[tuple[int, str], float] = {}
    for item in section.sections("edges"):
        item.allow(("from", "to", "bytes", "value"))
        edge = Edge(
            sender=_index(item, "from", count),
            receiver=_index(item, "to", count),
            bytes=_number(item, "bytes"),
            value=item.text("value") if "value" in item else None,
        )
        if edge.sender >= edge.receiver:
            raise item.error(
                f"an edge from {edge.sender} to {edge.receiver} does not go forwards",
                hint="sub-modules are in topological order",
            )
        if edge.value is not None and sizes.setdefault((edge.sender, edge.value), edge.bytes) != edge.bytes:
            raise item.error(
                f"the value `{edge.value}` has two sizes",
                "bytes",
                hint="edges of one value have the same bytes",
            )
        edges.append(edge)
    return tuple(edges)


def _index(section: Section, key: str, count: int) -> int:
    value = section.require(key, f'"{key}": 0')
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise section.error(
            f"expected the index of a sub-module (0 to {count - 1}), found {describe(value)}", key
        )
    return value


def _links(top: Section, names: list[str]) -> tuple[Link, ...]:
    links: dict[tuple[str, str], Link] = {}
    for section in top.sections("links"):
        section.allow(("from", "to", "bandwidth_bytes_per_s", "latency_s"))
        pair = (_known(section, "from", names), _known(section, "to", names))
        if pair[0] == pair[1]:
            raise section.error(f"a link from `{pair[0]}` to itself")
        if pair in links:
            raise section.error(f"a second link from `{pair[0]}` to `{pair[1]}`")
        bandwidth = _number(section, "bandwidth_bytes_per_s", positive=True)
        links[pair] = Link(*pair, bandwidth, _number(section, "latency_s", 0))
    return tuple(links.values())


def _phases(top: Section, names: list[str], count: int) -> tuple[Phase, ...]:
    phases = []
    for section in top.sections("phases"):
        section.allow(("name", "weight", "submodules", "edges", "return_bytes"))
        parts = section.sections("submodules")
        if len(parts) != count:
            raise section.error(f"expected {count} sub-modules, found {len(parts)}", "submodules")
        for part in parts:
            part.allow(("time_s",))
        times = tuple(_times(part, names) for part in parts)
        edges = _edges(section, count)
        phases.append(
            Phase(
                section.text("name"),
                _number(section, "weight"),
                times,
                edges,
                _number(section, "return_bytes", 0),
            )
        )
    if "phases" in top and not any(phase.weight > 0 for phase in phases):
        raise top.error("no phase has a weight above zero", "phases")
    if len({phase.name for phase in phases}) < len(phases):
        raise top.error("two phases have the same name", "phases")
    return tuple(phases)


def _device_json(device: Device) -> dict[str, object]:
    extra = {"overhead_bytes": device.overhead_bytes} if device.overhead_bytes else {}
    return {"name": device.name, "memory_bytes": device.memory_bytes, **extra}


def _submodule_json(submodule: Submodule, phased: bool) -> dict[str, object]:
    result: dict[str, object] = {"memory_bytes": submodule.memory_bytes}
    if not phased:
        result["time_s"] = dict(submodule.time_s)
    if submodule.peak_bytes:
        result["peak_bytes"] = submodule.peak_bytes
    if submodule.shared:
        result["shared"] = {"name": submodule.shared.name, "bytes": submodule.shared.bytes}
    return result


def _edge_json(edge: Edge) -> dict[str, object]:
    value = {"value": edge.value} if edge.value is not None else {}
    return {"from": edge.sender, "to": edge.receiver, "bytes": edge.bytes, **value}


def _link_json(link: Link) -> dict[str, object]:
    figures = {"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s, "latency_s": link.latency_s}
    return {"from": link.sender, "to": link.receiver, **figures}


def _phase_json(phase: Phase) -> dict[str, object]:
    return {
        "name": phase.name,
        "weight": phase.weight,
        "submodules": [{"time_s": dict(times)} for times in phase.time_s],
        "edges": [_edge_json(edge) for edge in phase.edges],
        "return_bytes": phase.return_bytes,
    }
