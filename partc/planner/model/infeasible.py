"""The reason why no plan is possible: the first constraint that cannot be met on its own.

A reason begins with the kind of the constraint and a colon: memory, storage, links, times or source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from partc.config.units import format_bytes
from partc.planner.model.problem import Link, Problem

IsFeasible = Callable[[Problem], bool | None]
"""Whether there is a plan; None where neither was shown."""


def why_infeasible(problem: Problem, is_feasible: IsFeasible) -> str:
    """Names what cannot be met; `is_feasible` decides problems with one kind of constraint lifted."""
    return (
        _source_cannot_start(problem)
        or _homeless_submodule(problem)
        or _too_little_memory(problem)
        or _too_little_storage(problem, is_feasible)
        or _lifted(problem, is_feasible)
    )


def kind_of(reason: str) -> str:
    """The kind of the constraint that a reason names."""
    return reason.partition(":")[0]


def _lifted(problem: Problem, is_feasible: IsFeasible) -> str:
    """The kind of constraint that, if it were lifted, would make a plan possible; links first."""
    memory, links = is_feasible(without_memory_limits(problem)), is_feasible(with_all_links(problem))
    if links:
        missing = [f"{a} to {b}" for a, b in _pairs(problem) if (a, b) not in problem.link_of]
        more = [f"and {len(missing) - 6} more"] if len(missing) > 6 else []
        shown = ", ".join(missing[:6] + more)
        remedy = "; more memory on the linked devices would do, too" if memory else ""
        return f"links: the only plans need a missing link; missing: {shown}{remedy}"
    if memory:
        need, have = format_bytes(_total_need(problem)), format_bytes(_total_memory(problem))
        ways = {None: "no way of giving out the sub-modules", 0: "no cut into consecutive intervals"}
        way = ways.get(problem.returns, f"no plan that returns to a device {problem.returns} times at most")
        return (
            f"memory: {need} are needed and {have} available in all, but {way} fits; "
            "more memory on one device or finer sub-modules would help"
        )
    both = is_feasible(with_all_links(without_memory_limits(problem)))
    if both is False:
        return (
            "times: where devices are returned to no more often than `returns` allows, some sub-module is always "
            "left to a device that has no time for it"
        )
    if both and memory is False and links is False:
        return (
            "memory and links: neither more memory alone nor every link alone would do, both together would"
        )
    return "memory, links and times cannot be met together; which of them would have to give was not found"


def _too_little_storage(problem: Problem, is_feasible: IsFeasible) -> str | None:
    """Storage, where there would be a plan without its limits."""
    limits = [
        (device.storage_bytes, device.name) for device in problem.devices if device.storage_bytes is not None
    ]
    if not limits or not is_feasible(without_storage_limits(problem)):
        return None
    least, name = min(limits)
    weights = format_bytes(problem.disk_of(range(len(problem.submodules))))
    return f"storage: the weights, {weights} in all, do not fit the disks; the least is {format_bytes(least)} ({name})"


def without_storage_limits(problem: Problem) -> Problem:
    """The problem with disks that hold anything."""
    return replace(problem, devices=tuple(replace(device, storage_bytes=None) for device in problem.devices))


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
        needs, has = _two_sizes(need, device.memory_bytes)
        return (
            f"memory: the source {problem.source} must hold sub-module 0, which needs {needs} "
            f"(overhead included), and has {has}"
        )
    return None


def _homeless_submodule(problem: Problem) -> str | None:
    """A sub-module that no device can run, or that fits on none of those that can."""
    for j in range(len(problem.submodules)):
        able = [d for d in problem.devices if all(d.name in phase.time_s[j] for phase in problem.steps)]
        if not able:
            return f"times: no device can run sub-module {j}"
        need = problem.interval_memory(j, j)
        room, name = max((d.room_bytes, d.name) for d in able)
        if need > room:
            needs, most = _two_sizes(need, max(room, 0.0))
            return f"memory: sub-module {j} needs {needs}; the most that a device can give is {most} ({name})"
    return None


def _too_little_memory(problem: Problem) -> str | None:
    need, have = _total_need(problem), _total_memory(problem)
    if need <= have:
        return None
    needs, all_have = _two_sizes(need, have)
    return f"memory: the model needs {needs}; all devices have {all_have} together, overhead deducted"


def _total_need(problem: Problem) -> float:
    """Weights, states and every shared group once: what is needed however the model is cut."""
    shared = {part.shared.name: part.shared.bytes for part in problem.submodules if part.shared}
    return sum(part.memory_bytes for part in problem.submodules) + sum(shared.values())


def _total_memory(problem: Problem) -> float:
    """Memory of the devices that can run anything."""
    able = (device for device in problem.devices if device.name in problem.able)
    return sum(max(0.0, device.room_bytes) for device in able)


def _pairs(problem: Problem) -> list[tuple[str, str]]:
    names = list(problem.device_of)
    return [(a, b) for a in names for b in names if a != b]


def _two_sizes(a: float, b: float) -> tuple[str, str]:
    """Two unlike sizes for people, and to the byte where they round alike."""
    if format_bytes(a) != format_bytes(b):
        return format_bytes(a), format_bytes(b)
    return f"{format_bytes(a)} ({a:.15g} B)", f"{format_bytes(b)} ({b:.15g} B)"
