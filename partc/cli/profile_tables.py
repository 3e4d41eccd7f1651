"""The results of a profile, as tables and as data for --json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partc.cli.tables import show, table
from partc.config.units import format_bytes, format_seconds
from partc.profiler.learn import Learnt, Overheads
from partc.profiler.links import LinkFigures
from partc.profiler.measurement import DeviceResult, ProfileResult
from partc.profiler.observed import Observed


def profile_json(result: ProfileResult) -> dict[str, Any]:
    """Devices, links, and how many times were measured."""
    return {
        "model": result.work.model,
        "submodules": result.work.submodules,
        "busy": list(result.busy),
        "devices": {name: figures_json(found) for name, found in result.devices.items()},
        "links": _links_json(result.links),
    }


def figures_json(found: DeviceResult) -> dict[str, Any]:
    """The figures of one device."""
    return {
        "machine": {key: found.facts.get(key) for key in ("cpu", "arch", "cores", "memory_bytes")},
        "flops_per_s": found.figures.flops_per_s,
        "memory_bandwidth_bytes_per_s": found.figures.memory_bandwidth_bytes_per_s,
        "call_overhead_s": found.figures.call_overhead_s,
        "step_overhead_s": found.step_overhead_s,
        "times": dict(found.times),
        "failures": list(found.failures),
    }


def _links_json(links: Mapping[tuple[str, str], LinkFigures]) -> dict[str, dict[str, float]]:
    return {
        f"{a}->{b}": {"latency_s": link.latency_s, "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s}
        for (a, b), link in links.items()
    }


def learnt_json(learnt: Learnt) -> dict[str, Any]:
    """The costs that runs showed."""
    return {
        "runs": learnt.runs,
        "requests": learnt.requests,
        "devices": {
            name: {
                "call_overhead_s": overheads.call_s,
                "runner_s": overheads.own_s,
                "observed": [_observed_json(item) for item in learnt.observed if item.device == name],
                "times": dict(learnt.times[name]),
            }
            for name, overheads in learnt.overheads.items()
        },
        "links": _links_json(learnt.links),
        "drafted": {
            "tokens": learnt.guesses.tokens,
            "guessed": learnt.guesses.guessed,
            "right": learnt.guesses.right,
            "share": learnt.guesses.share,
            "rows_per_token": learnt.guesses.rows_per_token,
        },
        "notes": list(learnt.notes),
    }


def _observed_json(item: Observed) -> dict[str, Any]:
    return {
        "phase": item.phase,
        "submodules": [[stage.first, stage.last] for stage in item.stages],
        "priced_s": item.priced_s,
        "computed_s": item.seconds,
        "share": item.share,
        "steps": item.steps,
    }


def print_learnt(learnt: Learnt) -> None:
    """Tables of devices and links, and what did not count."""
    rows = [_observed_row(item, learnt.overheads[item.device]) for item in learnt.observed]
    columns = ("device", "sub-modules", "phase", "steps", "priced", "took", "call", "runner")
    requests = f"{learnt.requests} request{'s' * (learnt.requests != 1)}"
    title = f"Devices in {requests} of {learnt.runs} run{'s' * (learnt.runs != 1)}, one step"
    links = [_links(learnt.links)] if learnt.links else []
    notes = [f"note: {note}" for note in learnt.notes]
    show(table(title, columns, rows, right=columns[3:]), _LEARNT_LEGEND, *links, *_guesses(learnt), *notes)


def _guesses(learnt: Learnt) -> list[str]:
    """A line about the share of tokens that came true from guesses, as model.yaml takes it."""
    if not learnt.guesses.guessed:
        return []
    share = f"{learnt.guesses.share:.2g}"
    return [f"{learnt.guesses}: in model.yaml that is `workload: {{drafted: {share}}}`"]


def _observed_row(item: Observed, overheads: Overheads) -> list[str]:
    ran = ", ".join(f"{stage.first}-{stage.last}" for stage in item.stages)
    seconds = (item.priced_s, item.seconds, overheads.call_s, overheads.own_s)
    return [item.device, ran, item.phase, f"{item.steps}", *map(format_seconds, seconds)]


def print_profile(result: ProfileResult) -> None:
    """Tables of devices, links and sub-modules."""
    blocks = [_devices(result), _LEGEND]
    if result.links:
        blocks.append(_links(result.links))
    if result.work.tasks:
        blocks.append(_times(result))
    failures = [f"{name}: {text}" for name, one in result.devices.items() for text in one.failures]
    if result.busy:
        names = ", ".join(result.busy)
        failures.append(
            f"rough: {names} had other programs to run meanwhile; measure again in a quiet moment"
        )
    show(*blocks, *failures)


def print_host(found: DeviceResult) -> None:
    """The figures of this machine."""
    show(table("This machine", _COLUMNS[1:], [_figures(found)], right=_COLUMNS[1:]), _LEGEND)


_COLUMNS = ("device", "compute", "memory bandwidth", "free memory", "call", "step")
_LEGEND = (
    "call: what a call of the engine takes by itself; "
    "step: what a step takes on the source besides sub-modules and messages, its call included\n"
)

_LEARNT_LEGEND = (
    "priced: its sub-modules by the prices before; took: computing, over the steps of middle length; "
    "call: of the engine, within it; runner: its own time besides\n"
)


def _devices(result: ProfileResult) -> Any:
    rows = [[name, *_figures(found)] for name, found in result.devices.items()]
    return table("Devices", _COLUMNS, rows, right=_COLUMNS[1:])


def _figures(found: DeviceResult) -> list[str]:
    figures = found.figures
    return [
        f"{figures.flops_per_s / 1e9:.3g} GFLOP/s",
        f"{figures.memory_bandwidth_bytes_per_s / 1e9:.3g} GB/s",
        format_bytes(int(found.facts.get("memory_bytes") or 0)),
        format_seconds(figures.call_overhead_s),
        format_seconds(found.step_overhead_s),
    ]


def _links(links: Mapping[tuple[str, str], LinkFigures]) -> Any:
    rows = [
        [a, b, format_seconds(link.latency_s), f"{link.bandwidth_bytes_per_s * 8 / 1e6:.4g} Mbit/s"]
        for (a, b), link in links.items()
    ]
    return table("Links", ("from", "to", "latency", "bandwidth"), rows, right=("latency", "bandwidth"))


def _times(result: ProfileResult) -> Any:
    names = list(result.devices)
    rows = []
    for task in sorted(result.work.tasks, key=lambda task: (task.submodules, task.phase != "prefill")):
        found = [result.devices[name].times.get(task.digest) for name in names]
        cells = ["–" if one is None else format_seconds(float(str(one["seconds"]))) for one in found]
        rows.append([f"{task.submodules[0]}", f"{len(task.submodules)}", task.phase, *cells])
    columns = ("sub-module", "alike", "phase", *names)
    return table("Sub-modules (each distinct one once)", columns, rows, right=("alike", *names))
