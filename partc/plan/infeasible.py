"""Why no plan is possible, in words and numbers: the first constraint that cannot be met on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from partc.config.units import format_bytes
from partc.plan.problem import Link, Problem


def why_infeasible(problem: Problem, is_feasible: Callable[[Problem], bool]) -> str:
    """Names what cannot be met; `is_feasible` decides problems with one kind of constraint lifted."""
    return (
        _source_cannot_start(problem)
        or _homeless_submodule(problem)
        or _too_little_memory(problem)
        or _lifted(problem, is_feasible)
        or "memory, links and times cannot be met together, although each could be alone"
    )


def _lifted(problem: Problem, is_feasible: Callable[[Problem], bool]) -> str | None:
    """Which kind of constraint, if it were lifted, would make a plan possible; links first."""
    memory = is_feasible(without_memory_limits(problem))
    if is_feasible(with_all_links(problem)):
        missing = [f"{a} to {b}" for a, b in _pairs(problem) if (a, b) not in problem.link_of]
        more = [f"and {len(missing) - 6} more"] if len(missing) > 6 else []
        shown = ", ".join(missing[:6] + more)
        remedy = "; more memory on the linked devices would do, too" if memory else ""
        return f"links: the only plans need a missing link; missing: {shown}{remedy}"
    if memory:
        need, have = format_bytes(_total_need(problem)), format_bytes(_total_memory(problem))
        return (
            f"memory: {need} are needed and {have} available in all, but no cut into consecutive intervals "
            "fits; more memory on one device or finer sub-modules would help"
        )
    if not is_feasible(with_all_links(without_memory_limits(problem))):
        return (
            "times: with one interval of consecutive sub-modules for each device, some sub-module is always left "
            "to a device that has no time for it"
        )
    return None


def without_memory_limits(problem: Problem) -> Problem:
    """The problem with devices that hold anything."""
    unlimited = tuple(replace(device, memory_bytes=1e300, overhead_bytes=0) for device in problem.devices)
    return replace(problem, devices=unlimited)


def with_all_links(problem: Problem) -> Problem:
    """The problem with every missing link added."""
    added = tuple(Link(a, b, 1e9, 0.0) for a, b in _pairs(problem) if (a, b) not in problem.link_of)
    return replace(problem, links=problem.links + added)


def _source_cannot_start(problem: Problem) -> str | None:
    device = problem.device_of[problem.source]
    if not all(problem.source in phase.time_s[0] for phase in problem.steps):
        return f"source: sub-module 0 must be on {problem.source}, which has no time for it"
    need = device.overhead_bytes + problem.interval_memory(0, 0)
    if need > device.memory_bytes:
        return (
            f"memory: the source {problem.source} must hold sub-module 0, which needs {_exact(need)} "
            f"(overhead included), and has {_exact(device.memory_bytes)}"
        )
    return None


def _homeless_submodule(problem: Problem) -> str | None:
    """A sub-module that no device can run, or that fits on none of those that can."""
    for j in range(len(problem.submodules)):
        able = [d for d in problem.devices if all(d.name in phase.time_s[j] for phase in problem.steps)]
        if not able:
            return f"times: no device can run sub-module {j}"
        need = problem.interval_memory(j, j)
        room, name = max((d.memory_bytes - d.overhead_bytes, d.name) for d in able)
        if need > room:
            return (
                f"memory: sub-module {j} needs {_exact(need)}; the most that a device can give is "
                f"{_exact(max(room, 0))} ({name})"
            )
    return None


def _too_little_memory(problem: Problem) -> str | None:
    need, have = _total_need(problem), _total_memory(problem)
    if need <= have:
        return None
    return (
        f"memory: the model needs {_exact(need)}; all devices have {_exact(have)} together, overhead deducted"
    )


def _total_need(problem: Problem) -> float:
    """Weights, states and every shared group once: what is needed however the model is cut."""
    shared = {part.shared.name: part.shared.bytes for part in problem.submodules if part.shared}
    return sum(part.memory_bytes for part in problem.submodules) + sum(shared.values())


def _total_memory(problem: Problem) -> float:
    return sum(max(0.0, device.memory_bytes - device.overhead_bytes) for device in problem.devices)


def _pairs(problem: Problem) -> list[tuple[str, str]]:
    names = list(problem.device_of)
    return [(a, b) for a in names for b in names if a != b]


def _exact(count: float) -> str:
    """A size for people and, since two sizes may round alike, to the byte."""
    return f"{format_bytes(count)} ({count:.0f} B)"
