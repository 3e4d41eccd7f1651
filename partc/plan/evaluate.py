"""What an assignment is worth: the one place where the meaning of a plan is written down as code.

Every solver is checked against this module, and the predicted timeline of plan.json comes from it. Every
interval of consecutive sub-modules on one device is a stage; most strategies give a device one, some let it
return and give it several. Per step of a phase:

- A stage starts when all its messages have arrived and its device has finished its stage before; it then
  runs its sub-modules. So a device runs one stage at a time, in their order.
- When it has finished it sends one message to each later stage of another device that is to get values from
  it; messages do not slow each other.
- A value goes once to each device that reads it: to its first stage that does. Later stages of that device
  keep it, and stages of the device that made it have it: neither needs a message.
- The last stage sends one more message back to the source, unless it is on the source itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from partc.config.units import format_bytes
from partc.plan.problem import Edge, Link, Phase, Problem


@dataclass(frozen=True)
class Interval:
    """Consecutive sub-modules on one device."""

    device: str
    first: int
    last: int
    """Inclusive."""


@dataclass(frozen=True)
class Stage:
    """One interval's run in one step."""

    device: str
    first: int
    last: int
    """Inclusive."""
    start_s: float
    finish_s: float


@dataclass(frozen=True)
class Message:
    """Everything that one stage sends to another in one step."""

    sender: str
    receiver: str
    bytes: float
    start_s: float
    arrive_s: float
    values: tuple[str, ...]
    """Names of the values; `2->5` for an edge without a name, `return` for the message back to the source."""
    from_stage: int
    """Index of the sending stage in the timeline."""
    to_stage: int
    """Index of the receiving stage; 0 for the message back to the source."""


@dataclass(frozen=True)
class Timeline:
    """One step of a phase, from the first start to the end."""

    phase: str
    weight: float
    latency_s: float
    stages: tuple[Stage, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a device in use."""

    device: str
    needed_bytes: float
    """Overhead included."""
    available_bytes: float


@dataclass(frozen=True)
class Evaluation:
    """An assignment's worth, or why it cannot be."""

    violations: tuple[str, ...]
    """What is not met, in words and numbers; empty: feasible."""
    value: float | None = None
    """Seconds (latency) or steps per second (throughput); None where infeasible."""
    phases: tuple[Timeline, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    """Of every device in use, all its stages together; in the order of their first stages."""
    busy_s: tuple[tuple[str, float], ...] = ()
    """Weighted busy time per step of each device (`A`) and link (`A->B`) in use."""

    @property
    def feasible(self) -> bool:
        """Whether every constraint is met."""
        return not self.violations

    def to_json(self) -> dict[str, object]:
        """The `predicted` part of plan.json."""
        return {
            "phases": [_timeline_json(timeline) for timeline in self.phases],
            "memory": [
                {
                    "device": use.device,
                    "needed_bytes": use.needed_bytes,
                    "available_bytes": use.available_bytes,
                }
                for use in self.memory
            ],
            "busy_s": dict(self.busy_s),
        }


def intervals_of(assignment: Sequence[str]) -> tuple[Interval, ...]:
    """The runs of equal devices, in order."""
    starts = [i for i, name in enumerate(assignment) if i == 0 or assignment[i - 1] != name]
    ends = [*starts[1:], len(assignment)]
    return tuple(Interval(assignment[a], a, b - 1) for a, b in zip(starts, ends, strict=True))


def evaluate(problem: Problem, assignment: Sequence[str]) -> Evaluation:
    """Checks an assignment against every constraint and follows one step of each phase.

    A device may have several intervals. O(edges + stages^2).
    """
    shape = _check_shape(problem, assignment)
    if shape:
        return Evaluation(shape)
    intervals = intervals_of(assignment)
    memory = _memory(problem, assignment)
    violations = [text for use in memory if (text := _memory_violation(use))]
    violations += _missing(problem, intervals)
    if violations:
        return Evaluation(tuple(violations), memory=memory)
    phases = tuple(follow_step(problem, phase, intervals) for phase in problem.steps)
    busy = _busy(phases)
    if problem.objective == "latency":
        value = sum(timeline.weight * timeline.latency_s for timeline in phases)
    else:
        # A step that takes no time at all still has a finite rate, so that it can be written as JSON.
        value = 1.0 / max(*busy.values(), sys.float_info.min)
    return Evaluation((), value, phases, memory, tuple(busy.items()))


def follow_step(problem: Problem, phase: Phase, intervals: Sequence[Interval]) -> Timeline:
    """The timeline of one step; every time and link that it needs must be there."""
    traffic = traffic_between(phase.edges, intervals)
    stages: list[Stage] = []
    messages: list[Message] = []
    free: dict[str, float] = {}
    for k, interval in enumerate(intervals):
        incoming = [
            _message(problem.link_of[sender.device, interval.device], sender.finish_s, (i, k), traffic[i, k])
            for i, sender in enumerate(stages)
            if (i, k) in traffic
        ]
        start = max([free.get(interval.device, 0.0), *(message.arrive_s for message in incoming)])
        busy = sum(phase.time_s[j][interval.device] for j in range(interval.first, interval.last + 1))
        stages.append(Stage(interval.device, interval.first, interval.last, start, start + busy))
        free[interval.device] = start + busy
        messages += incoming
    end = stages[-1].finish_s
    if intervals[-1].device != problem.source:
        link = problem.link_of[intervals[-1].device, problem.source]
        value: dict[ValueKey, float] = {(len(phase.time_s) - 1, "return", -1): phase.return_bytes}
        back = _message(link, end, (len(stages) - 1, 0), value)
        messages.append(back)
        end = back.arrive_s
    return Timeline(phase.name, phase.weight, end, tuple(stages), tuple(messages))


ValueKey = tuple[int, str, int]
"""Sub-module that makes the value; its name; the number of the edge where the edge has no name, else -1."""


def traffic_between(
    edges: Sequence[Edge], intervals: Sequence[Interval]
) -> dict[tuple[int, int], dict[ValueKey, float]]:
    """(sending stage, receiving stage) -> value -> bytes; a value goes once to each device, when first read."""
    where = [k for k, interval in enumerate(intervals) for _ in range(interval.first, interval.last + 1)]
    first_reader: dict[tuple[ValueKey, str], int] = {}
    sizes: dict[ValueKey, float] = {}
    for number, edge in enumerate(edges):
        device, reader = intervals[where[edge.receiver]].device, where[edge.receiver]
        if device != intervals[where[edge.sender]].device:
            key = value_key(edge, number)
            sizes[key] = edge.bytes
            first_reader[key, device] = min(first_reader.get((key, device), reader), reader)
    traffic: dict[tuple[int, int], dict[ValueKey, float]] = {}
    for (key, _), reader in first_reader.items():
        traffic.setdefault((where[key[0]], reader), {})[key] = sizes[key]
    return traffic


def value_key(edge: Edge, number: int) -> ValueKey:
    """Tells values apart: edges with the same sender and name carry the same one."""
    if edge.value is not None:
        return edge.sender, edge.value, -1
    return edge.sender, f"{edge.sender}->{edge.receiver}", number


def _message(link: Link, start_s: float, stages: tuple[int, int], values: dict[ValueKey, float]) -> Message:
    """What one stage sends to another; `stages` are their indices."""
    count = sum(values.values())
    names = tuple(name for _, name, _ in values)
    return Message(link.sender, link.receiver, count, start_s, start_s + link.seconds(count), names, *stages)


def _check_shape(problem: Problem, assignment: Sequence[str]) -> tuple[str, ...]:
    if len(assignment) != len(problem.submodules):
        return (f"{len(assignment)} devices are named for {len(problem.submodules)} sub-modules",)
    if unknown := sorted(set(assignment) - set(problem.device_of)):
        return (f"unknown device {unknown[0]}",)
    if assignment[0] != problem.source:
        return (f"sub-module 0 is on {assignment[0]}, but must be on the source {problem.source}",)
    return ()


def _memory(problem: Problem, assignment: Sequence[str]) -> tuple[MemoryUse, ...]:
    """Of each device in use: its overhead and what all its sub-modules need together."""
    held: dict[str, list[int]] = {}
    for j, name in enumerate(assignment):
        held.setdefault(name, []).append(j)
    devices = ((problem.device_of[name], indices) for name, indices in held.items())
    return tuple(
        MemoryUse(device.name, device.overhead_bytes + problem.memory_of(indices), device.memory_bytes)
        for device, indices in devices
    )


def _memory_violation(use: MemoryUse) -> str | None:
    if use.needed_bytes <= use.available_bytes:
        return None
    return f"{use.device} needs {format_bytes(use.needed_bytes)} and has {format_bytes(use.available_bytes)}"


def _missing(problem: Problem, intervals: Sequence[Interval]) -> list[str]:
    """Times and links that the plan needs and the problem does not give."""
    missing = [
        f"{interval.device} cannot run sub-module {j}"
        for interval in intervals
        for j in range(interval.first, interval.last + 1)
        if any(interval.device not in phase.time_s[j] for phase in problem.steps)
    ]
    used = {pair for phase in problem.steps for pair in traffic_between(phase.edges, intervals)}
    pairs = [(intervals[a].device, intervals[b].device) for a, b in sorted(used)]
    if intervals[-1].device != problem.source:
        pairs.append((intervals[-1].device, problem.source))
    absent = dict.fromkeys(pair for pair in pairs if pair not in problem.link_of)
    return missing + [f"there is no link from {a} to {b}" for a, b in absent]


def _busy(phases: Sequence[Timeline]) -> dict[str, float]:
    """Weighted busy seconds per step of every device and link in use."""
    busy: dict[str, float] = {}
    for timeline in phases:
        spans = [(stage.device, stage.finish_s - stage.start_s) for stage in timeline.stages]
        spans += [(f"{m.sender}->{m.receiver}", m.arrive_s - m.start_s) for m in timeline.messages]
        for name, seconds in spans:
            busy[name] = busy.get(name, 0.0) + timeline.weight * seconds
    return busy


def _timeline_json(timeline: Timeline) -> dict[str, object]:
    return {
        "phase": timeline.phase,
        "weight": timeline.weight,
        "latency_s": timeline.latency_s,
        "stages": [
            {
                "device": s.device, "first": s.first, "last": s.last,
                "start_s": s.start_s, "finish_s": s.finish_s,
            }
            for s in timeline.stages
        ],
        "messages": [
            {
                "from": m.sender, "to": m.receiver,
                "from_stage": m.from_stage, "to_stage": m.to_stage, "bytes": m.bytes,
                "start_s": m.start_s, "arrive_s": m.arrive_s, "values": list(m.values),
            }
            for m in timeline.messages
        ],
    }  # fmt: skip
