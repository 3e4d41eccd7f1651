"""What if: a problem with a faster link or a faster device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from partc.plan.problem import Link, Problem


def scale_links(problem: Problem, factors: Mapping[tuple[str, str], float]) -> Problem:
    """The problem with the bandwidths of some links, (from, to), multiplied; latencies stay."""
    links = tuple(_scaled(link, factors.get((link.sender, link.receiver), 1.0)) for link in problem.links)
    return replace(problem, links=links)


def scale_devices(problem: Problem, factors: Mapping[str, float]) -> Problem:
    """The problem with all times of some devices divided by a factor."""

    def scaled(times: Mapping[str, float]) -> dict[str, float]:
        return {name: seconds / factors.get(name, 1.0) for name, seconds in times.items()}

    submodules = tuple(replace(part, time_s=scaled(part.time_s)) for part in problem.submodules)
    phases = tuple(replace(phase, time_s=tuple(map(scaled, phase.time_s))) for phase in problem.phases)
    return replace(problem, submodules=submodules, phases=phases)


def _scaled(link: Link, factor: float) -> Link:
    return replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)
