"""A plan for when everything else has failed: each device takes as much as it can hold, one after the other."""

from __future__ import annotations

from partc.format.placement import Stage, Stages
from partc.planner.model.problem import Problem


def place_greedily(problem: Problem) -> Stages | None:
    """Stages in the order of the devices, or None where these are used up before the end. O(D n^2)."""
    count, begin = len(problem.submodules), 0
    names = [problem.source, *(name for name in problem.device_of if name != problem.source)]
    stages: list[Stage] = []
    for name in names:
        if stages and (stages[-1].device, name) not in problem.link_of:
            continue
        end = _reach(problem, name, begin)
        if end == count and name != problem.source and (name, problem.source) not in problem.link_of:
            continue
        if end > begin:
            stages.append(Stage((begin, end - 1), (name,)))
        begin = end
        if begin in (0, count):
            break
    return tuple(stages) if begin == count else None


def _reach(problem: Problem, name: str, begin: int) -> int:
    """The farthest end of an interval from `begin` that the device can hold and run."""
    device, end = problem.device_of[name], begin
    while end < len(problem.submodules):
        if any(name not in phase.time_s[end] for phase in problem.steps):
            break
        if device.overhead_bytes + problem.interval_memory(begin, end) > device.memory_bytes:
            break
        if device.storage_bytes is not None and problem.disk_of(range(begin, end + 1)) > device.storage_bytes:
            break
        end += 1
    return end
