"""The order of a profile: bundles, runners, figures of every device, its sub-modules, then every link.

Devices compute one after the other, as they do in a ring with one request, so that several runners on one
machine do not take each other's cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from partc.config.devices import DeviceConfig, DevicesConfig
from partc.errors import RunError, UserError
from partc.ir.graph import Module
from partc.pipeline.contract import Progress
from partc.profiler.bundle import write_profile_bundles
from partc.profiler.client import Fleet
from partc.profiler.graphs import QUICK, ProbeSizes
from partc.profiler.links import LinkFigures, Ring, link_figures, measure_ring
from partc.profiler.timing import (
    DEFAULT_TOUCHED,
    MOST_TOUCHED,
    QUICK_EFFORT,
    Effort,
    Figures,
    SubmoduleTimes,
    figures_of,
    times_of,
)
from partc.profiler.work import Work, load_work, work_of
from partc.runtime.client.launch import launch_local
from partc.runtime.processor import architecture

_STEPS, _REPEATS = 60, 7
_QUICK_STEPS, _QUICK_REPEATS = 8, 2


@dataclass(frozen=True)
class DeviceResult:
    """The measurements of one device."""

    facts: Mapping[str, Any]
    """The machine as its runner reports it: cpu, arch, cores, memory_bytes."""
    figures: Figures
    step_overhead_s: float
    """Seconds that a step costs the device as the source, its own call of the engine included."""
    times: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Digest → an entry of times.json."""
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProfileResult:
    """All measurements of a profile."""

    work: Work
    devices: Mapping[str, DeviceResult]
    links: Mapping[tuple[str, str], LinkFigures]
    """(from, to) → its figures."""
    local: bool
    """Whether the devices were processes of this machine."""
    busy: tuple[str, ...] = ()
    """Devices that other programs took cores from meanwhile: their figures are rough."""


def prepare(
    folder: Path, devices: DevicesConfig, module: Module | None, quick: bool, progress: Progress
) -> Work:
    """Write the bundles that are measured; raises as `write_profile_bundles`."""
    sizes = QUICK if quick else ProbeSizes()
    names = list(devices.devices)
    folder.mkdir(parents=True, exist_ok=True)
    if module is None:
        work = Work(tuple(names), sizes)
        write_profile_bundles(folder, work, devices, None, progress)
        return work
    memory = min(devices.usable_memory(name) for name in names)
    work, graphs = work_of(module, names, sizes, memory)
    write_profile_bundles(folder, work, devices, (module.info, graphs), progress)
    return work


def check_local(devices: DevicesConfig) -> None:
    """Refuse devices that this machine cannot stand for.

    Raises:
        UserError: another architecture.
    """
    for device in devices.devices.values():
        _check_arch(device, architecture(), "this machine is")


def measure(
    folder: Path, devices: DevicesConfig, *, connect: bool, insecure: bool, quick: bool, progress: Progress
) -> ProfileResult:
    """Measure what `prepare` wrote, on local processes or (`connect`) on the devices themselves.

    Raises:
        RunError: a device does not answer, or has another bundle.
        UserError: a device is of another architecture than devices.yaml says.
    """
    work = load_work(folder)
    if set(work.devices) != set(devices.devices):
        hint = "prepare again with these devices: partc profile --prepare"
        raise UserError(
            f"prepared for other devices: {', '.join(work.devices)}", where=str(folder), hint=hint
        )
    opened = _connected(folder, devices, insecure) if connect else _launched(folder, insecure)
    with opened as fleet:
        found = _measure_devices(fleet, work, devices, quick, progress)
        busy = {name for name in found if fleet.is_busy(name)}
        links, alone = _measure_rings(fleet, devices, quick, progress)
        busy |= {name for name in found if fleet.is_busy(name)}
    return replace(_result(work, found, links, alone, local=not connect), busy=tuple(sorted(busy)))


@dataclass(frozen=True)
class _Computing:
    figures: Figures
    submodules: SubmoduleTimes
    facts: Mapping[str, Any]


def _measure_devices(
    fleet: Fleet, work: Work, devices: DevicesConfig, quick: bool, progress: Progress
) -> dict[str, _Computing]:
    effort = QUICK_EFFORT if quick else Effort()
    touched = min(MOST_TOUCHED, work.model_bytes) if work.tasks else DEFAULT_TOUCHED
    found = {}
    for name in work.devices:
        steps = 1 + len(work.tasks)
        progress(f"measure {name}", 0, steps)
        with fleet.probe(name) as probe:
            facts = fleet.facts[name]
            _check_arch(devices.devices[name], str(facts.get("arch")), f"the runner of {name} is on")
            figures = figures_of(probe, work.sizes, effort, touched)
            done = _Counter(progress, f"measure {name}", steps)
            times = times_of(probe, work, effort, figures.call_overhead_s, done)
        figures = replace(figures, call_overhead_s=times.call_overhead_s)
        found[name] = _Computing(figures, times, facts)
    return found


class _Counter:
    """Called after every part of some work."""

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress, self._what, self._total, self._done = progress, what, total, 1

    def __call__(self) -> None:
        self._progress(self._what, self._done, self._total)
        self._done += 1


def _measure_rings(
    fleet: Fleet, devices: DevicesConfig, quick: bool, progress: Progress
) -> tuple[dict[tuple[str, str], tuple[Ring, Ring]], dict[str, float]]:
    """Both rings of every pair, but of those that cannot exchange, and what a step costs each device alone."""
    names = list(devices.devices)
    cut = {pair for pair, link in devices.links.items() if link is None}
    pairs = [(a, b) for a in names for b in names if a < b and not {(a, b), (b, a)} & cut]
    wanted = [(name,) for name in names] + [pair for a, b in pairs for pair in ((a, b), (b, a))]
    steps, repeats = (_QUICK_STEPS, _QUICK_REPEATS) if quick else (_STEPS, _REPEATS)
    rings: dict[tuple[str, ...], Ring] = {}
    for number, ring in enumerate(wanted):
        progress("measure links", number, len(wanted))
        rings[ring] = measure_ring(fleet, ring, steps, repeats)
    progress("measure links", len(wanted), len(wanted))
    both = {(a, b): (rings[a, b], rings[b, a]) for pair in pairs for a, b in (pair, pair[::-1])}
    return both, {name: rings[name,].step_s for name in names}


def _result(
    work: Work,
    found: Mapping[str, _Computing],
    rings: Mapping[tuple[str, str], tuple[Ring, Ring]],
    alone: Mapping[str, float],
    *,
    local: bool,
) -> ProfileResult:
    links = {pair: link_figures(there, back, alone) for pair, (there, back) in rings.items()}
    devices = {
        name: DeviceResult(
            one.facts,
            one.figures,
            alone[name] + one.figures.call_overhead_s,
            one.submodules.times,
            one.submodules.failures,
        )
        for name, one in found.items()
    }
    return ProfileResult(work, devices, links, local)


def _check_arch(device: DeviceConfig, found: str, who: str) -> None:
    if device.arch != found:
        raise UserError(
            f"{device.name} is {device.arch} in devices.yaml, but {who} {found}",
            where=f"devices.{device.name}",
            hint="measure it there: partc profile --prepare, partc-runner --measure, partc profile --connect",
        )


@contextmanager
def _launched(folder: Path, insecure: bool) -> Iterator[Fleet]:
    with launch_local(folder, insecure=insecure, measure=True) as ring:
        try:
            yield Fleet(folder, ring.addresses, insecure)
        except RunError as error:
            raise ring.killed() or ring.explain(error) from None


@contextmanager
def _connected(folder: Path, devices: DevicesConfig, insecure: bool) -> Iterator[Fleet]:
    addresses = {}
    for name, device in devices.devices.items():
        if device.address is None:
            hint = f"add `address: HOST:PORT` to {name}, where its partc-runner --measure listens"
            raise RunError(f"the address of {name} is not known", where=f"devices.{name}", hint=hint)
        addresses[name] = device.address
    yield Fleet(folder, addresses, insecure)
