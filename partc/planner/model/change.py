"""Changes of a problem: faster links and devices, fewer devices, fewer devices for a sub-module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from partc.planner.model.problem import Link, Problem

Times = Mapping[str, float]
"""Device -> seconds of a sub-module."""


def with_times(problem: Problem, change: Callable[[int, Times], Times]) -> Problem:
    """The problem with the times of every sub-module, in every phase, as `change(index, times)` says."""
    submodules = tuple(
        replace(part, time_s=change(index, part.time_s)) for index, part in enumerate(problem.submodules)
    )
    phases = tuple(
        replace(phase, time_s=tuple(change(index, times) for index, times in enumerate(phase.time_s)))
        for phase in problem.phases
    )
    return replace(problem, submodules=submodules, phases=phases)


def with_speeds(problem: Problem, factors: Mapping[str, float]) -> Problem:
    """The problem with all times of some devices divided by a factor."""

    def faster(_: int, times: Times) -> Times:
        return {name: seconds / factors.get(name, 1.0) for name, seconds in times.items()}

    return with_times(problem, faster)


def with_efficiency(problem: Problem, efficiency: float) -> Problem:
    """The problem whose devices compute a part of a block with this part of their speed."""
    parts = (
        replace(part, block=replace(part.block, efficiency=efficiency)) if part.block else part
        for part in problem.submodules
    )
    return replace(problem, submodules=tuple(parts))


def with_links(problem: Problem, change: Callable[[Link], Link]) -> Problem:
    """The problem with every link as `change` makes it."""
    return replace(problem, links=tuple(map(change, problem.links)))


def with_bandwidths(problem: Problem, factors: Mapping[tuple[str, str], float]) -> Problem:
    """The problem with the bandwidths of some links, (from, to), multiplied; latencies stay."""

    def faster(link: Link) -> Link:
        factor = factors.get((link.sender, link.receiver), 1.0)
        return replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)

    return with_links(problem, faster)


def with_devices(problem: Problem, names: Collection[str]) -> Problem:
    """The problem with these devices alone."""
    kept = with_times(
        problem, lambda _, times: {name: seconds for name, seconds in times.items() if name in names}
    )
    return replace(
        kept,
        devices=tuple(device for device in problem.devices if device.name in names),
        links=tuple(link for link in problem.links if link.sender in names and link.receiver in names),
    )
