"""The JSON form of a planning problem.

It is a contract with users (`partc plan --problem FILE`) and with plan.json; absent numbers are 0, absent storage is
without a limit.

```
{"objective": "latency", "source": "A", "return_bytes": 8, "results": [{"from", "value", "bytes"}],
 "devices":    [{"name", "memory_bytes", "overhead_bytes", "storage_bytes"}],
 "submodules": [{"memory_bytes", "time_s": {device: seconds}, "peak_bytes", "shared": {"name", "bytes"}, "disk_bytes"}],
 "edges":      [{"from", "to", "bytes", "value"}],
 "links":      [{"from", "to", "bandwidth_bytes_per_s", "latency_s"}],
 "phases":     [{"name", "weight", "submodules": [{"time_s"}], "edges", "return_bytes", "results"}]}
```

A sub-module that several devices may share has a `"block"` too (`partc.planner.model.block_json`).
`return_bytes` are those of the last sub-module's results; `results`, which may be absent, those that others make.
With `phases`, the times, edges, return_bytes and results stand in the phases alone. An optional `"batch": 8` at the top
says that a step makes a token of each of eight sequences; it changes what is said of a plan, never the plan. An
optional `"returns": 0` says how often a plan may return to a device that it has left; absent: any number of times.
`"drafts": {"share": 0.3, "step_tokens": [[2, 1.06], [8, 1.5]]}` says that steps of one token may take guesses, which
share of the tokens comes true from one, and what a step of several tokens costs by one of one; absent: none is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partc.config.section import Section, describe
from partc.errors import ConfigError
from partc.format.json_text import parse_json
from partc.format.plan import OBJECTIVES
from partc.planner.model.block_json import block_json, read_block, read_tiling, tiling_json
from partc.planner.model.drafts_json import drafts_json, read_drafts
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Result, Shared, Submodule

_LEAST = 1e-30
"""No number of a problem is smaller unless it is zero, and `Section` refuses the very large: products and ratios of
a few such numbers are numbers still."""
_EXAMPLE = "a planning problem is a JSON object; plan.json of a build has one under `problem`"


def parse_problem(text: str, file: str = "problem") -> Problem:
    """Reads a problem from JSON text; `file` is its name in messages.

    Raises:
        ConfigError: it is no JSON; or see `read_problem`.
    """
    return read_problem(parse_json(text, file, ConfigError, _EXAMPLE), file)


def read_problem(data: object, file: str = "problem") -> Problem:
    """The problem that parsed JSON describes; `file` is its name in messages.

    Raises:
        ConfigError: an unknown key, device or index, or a number that cannot be; names the JSON path.
    """
    top = Section(data, file)
    phased = "phases" in top
    single = () if phased else ("edges", "return_bytes", "results")
    top.allow(
        (
            "objective",
            "source",
            "devices",
            "submodules",
            "links",
            "phases",
            "batch",
            "returns",
            "drafts",
            *single,
        )
    )
    devices = _devices(top)
    names = [device.name for device in devices]
    submodules = tuple(_submodule(section, names, phased) for section in top.sections("submodules"))
    if not submodules:
        raise top.error("there are no sub-modules", "submodules")
    _refuse_unlike_groups(top, submodules)
    drafts, edges = read_drafts(top), _edges(top, len(submodules))
    phases = _phases(top, names, submodules)
    if drafts is not None and any("results" in section for section in (top, *top.sections("phases"))):
        raise top.error("tokens are guessed of a model whose one result is the token", "drafts")
    return Problem(
        objective=top.choice("objective", OBJECTIVES, "latency"),
        source=_known(top, "source", names),
        devices=devices,
        submodules=submodules,
        links=_links(top, names),
        edges=edges,
        return_bytes=_number(top, "return_bytes", 0),
        results=_results(top, len(submodules), edges),
        phases=phases,
        batch=top.whole("batch", 1),
        returns=top.whole("returns", 0, 0) if "returns" in top else None,
        drafts=drafts,
    )


def problem_json(problem: Problem) -> dict[str, object]:
    """The JSON form; `read_problem` gives back an equal problem."""
    result: dict[str, object] = {
        "objective": problem.objective,
        "source": problem.source,
        "devices": [_device_json(device) for device in problem.devices],
        "submodules": [_submodule_json(submodule, bool(problem.phases)) for submodule in problem.submodules],
        "links": [_link_json(link) for link in problem.links],
    }
    if problem.batch != 1:
        result["batch"] = problem.batch
    if problem.returns is not None:
        result["returns"] = problem.returns
    if problem.drafts is not None:
        result["drafts"] = drafts_json(problem.drafts)
    if problem.phases:
        return {**result, "phases": [_phase_json(phase) for phase in problem.phases]}
    return {
        **result,
        "edges": [_edge_json(edge) for edge in problem.edges],
        "return_bytes": problem.return_bytes,
        **_results_json(problem.results),
    }


def _number(section: Section, key: str, default: float | None = None, *, positive: bool = False) -> float:
    """A number that is not too small to calculate with."""
    value = section.number(key, default, positive=positive)
    if 0 < value < _LEAST:
        zero = "" if positive else "zero or "
        raise section.error(f"expected {zero}a number of at least {_LEAST:g}, found {value:g}", key)
    return value


def _refuse_unlike_groups(top: Section, submodules: Iterable[Submodule]) -> None:
    """A shared weight has one size wherever it is named."""
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
    _refuse_unknown(section, key, name, names)
    return name


def _refuse_unknown(section: Section, key: str, name: str, names: list[str]) -> None:
    if name not in names:
        hint = f"the devices are: {', '.join(names)}"
        raise section.error(f"`{name}` is not one of the devices", key, hint=hint)


def _devices(top: Section) -> tuple[Device, ...]:
    devices: dict[str, Device] = {}
    for section in top.sections("devices"):
        section.allow(("name", "memory_bytes", "overhead_bytes", "storage_bytes"))
        name = section.text("name")
        if name in devices:
            raise section.error(f"a second device `{name}`", "name")
        storage = _number(section, "storage_bytes") if "storage_bytes" in section else None
        devices[name] = Device(
            name, _number(section, "memory_bytes"), _number(section, "overhead_bytes", 0), storage
        )
    if not devices:
        raise top.error("there are no devices", "devices")
    return tuple(devices.values())


def _submodule(section: Section, names: list[str], phased: bool) -> Submodule:
    single = () if phased else ("time_s", "tiling")
    section.allow(("memory_bytes", "peak_bytes", "shared", "disk_bytes", "block", *single))
    shared = section.section("shared") if "shared" in section else None
    if shared:
        shared.allow(("name", "bytes"))
    block = read_block(section)
    return Submodule(
        memory_bytes=_number(section, "memory_bytes", 0),
        time_s={} if phased else _times(section, names),
        peak_bytes=_number(section, "peak_bytes", 0),
        shared=Shared(shared.text("name"), _number(shared, "bytes")) if shared else None,
        disk_bytes=_number(section, "disk_bytes", 0),
        block=block,
        tiling=None if phased else read_tiling(section, needed=block is not None),
    )


def _times(section: Section, names: list[str]) -> dict[str, float]:
    section.require("time_s", '"time_s": {"A": 0.01}')
    times = section.section("time_s")
    for name in times.data:
        _refuse_unknown(times, name, name, names)
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


def _results(section: Section, count: int, edges: Iterable[Edge]) -> tuple[Result, ...]:
    found: list[Result] = []
    sizes = {(edge.sender, edge.value): edge.bytes for edge in edges}
    for item in section.sections("results"):
        item.allow(("from", "value", "bytes"))
        result = Result(_index(item, "from", count), item.text("value"), _number(item, "bytes"))
        if result.maker == count - 1:
            hint = "add its bytes to return_bytes"
            raise item.error("the results of the last sub-module are in return_bytes", "from", hint=hint)
        key = result.maker, result.value
        if sizes.setdefault(key, result.bytes) != result.bytes:
            hint = "edges and results of one value have the same bytes"
            raise item.error(f"the value `{result.value}` has two sizes", "bytes", hint=hint)
        if any((other.maker, other.value) == key for other in found):
            raise item.error(f"`{result.value}` is a result twice", "value")
        found.append(result)
    return tuple(found)


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


def _phases(top: Section, names: list[str], submodules: Sequence[Submodule]) -> tuple[Phase, ...]:
    phases, count = [], len(submodules)
    for section in top.sections("phases"):
        section.allow(("name", "weight", "submodules", "edges", "return_bytes", "results"))
        parts = section.sections("submodules")
        if len(parts) != count:
            raise section.error(f"expected {count} sub-modules, found {len(parts)}", "submodules")
        for part in parts:
            part.allow(("time_s", "tiling"))
        times = tuple(_times(part, names) for part in parts)
        edges = _edges(section, count)
        tilings = tuple(
            read_tiling(part, needed=whole.block is not None)
            for part, whole in zip(parts, submodules, strict=True)
        )
        phases.append(
            Phase(
                section.text("name"),
                _number(section, "weight"),
                times,
                edges,
                _number(section, "return_bytes", 0),
                tilings if any(tilings) else (),
                _results(section, count, edges),
            )
        )
    if "phases" in top and not any(phase.weight > 0 for phase in phases):
        raise top.error("no phase has a weight above zero", "phases")
    if len({phase.name for phase in phases}) < len(phases):
        raise top.error("two phases have the same name", "phases")
    return tuple(phases)


def _device_json(device: Device) -> dict[str, object]:
    extra = {"overhead_bytes": device.overhead_bytes} if device.overhead_bytes else {}
    if device.storage_bytes is not None:
        extra["storage_bytes"] = device.storage_bytes
    return {"name": device.name, "memory_bytes": device.memory_bytes, **extra}


def _submodule_json(submodule: Submodule, phased: bool) -> dict[str, object]:
    result: dict[str, object] = {"memory_bytes": submodule.memory_bytes}
    if not phased:
        result["time_s"] = dict(submodule.time_s)
    if submodule.peak_bytes:
        result["peak_bytes"] = submodule.peak_bytes
    if submodule.shared:
        result["shared"] = {"name": submodule.shared.name, "bytes": submodule.shared.bytes}
    if submodule.disk_bytes:
        result["disk_bytes"] = submodule.disk_bytes
    if submodule.block:
        result["block"] = block_json(submodule.block)
    if submodule.tiling:
        result["tiling"] = tiling_json(submodule.tiling)
    return result


def _edge_json(edge: Edge) -> dict[str, object]:
    value = {"value": edge.value} if edge.value is not None else {}
    return {"from": edge.sender, "to": edge.receiver, "bytes": edge.bytes, **value}


def _results_json(results: Iterable[Result]) -> dict[str, object]:
    listed = [{"from": each.maker, "value": each.value, "bytes": each.bytes} for each in results]
    return {"results": listed} if listed else {}


def _link_json(link: Link) -> dict[str, object]:
    figures = {"bandwidth_bytes_per_s": link.bandwidth_bytes_per_s, "latency_s": link.latency_s}
    return {"from": link.sender, "to": link.receiver, **figures}


def _phase_json(phase: Phase) -> dict[str, object]:
    return {
        "name": phase.name,
        "weight": phase.weight,
        "submodules": _parts_json(phase),
        "edges": [_edge_json(edge) for edge in phase.edges],
        "return_bytes": phase.return_bytes,
        **_results_json(phase.results),
    }


def _parts_json(phase: Phase) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = [{"time_s": dict(times)} for times in phase.time_s]
    for part, tiling in zip(parts, phase.tilings, strict=False):
        if tiling is not None:
            part["tiling"] = tiling_json(tiling)
    return parts
