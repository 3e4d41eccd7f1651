"""The value of a plan: the one place where the meaning of a plan is written down as code.

Every solver is checked against this module, and the predicted timeline of plan.json comes from it. Most
strategies give a device one stage, some let it return and give it several. Per step of a phase:

- A stage starts when all its messages have arrived and its device has finished its stage before; it then
  runs its sub-modules. So a device runs one stage at a time, in their order.
- When it has finished it sends one message to each later stage of another device that is to get values from
  it; messages do not slow each other.
- A value goes once to each device that reads it: to its first stage that does. Later stages of that device
  keep it, and stages of the device that made it have it: neither needs a message.
- What a stage makes of the results goes to the source in one more message, unless it is there; the last stage always
  sends one, unless it is on the source itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from partc.config.units import format_bytes
from partc.format.placement import Stages
from partc.format.plan import DraftedToken, MemoryUse, Message, Predicted, StageRun, Timeline
from partc.planner.model.drafted import SHARES, busiest_s, drafted_token_s
from partc.planner.model.objectives import by_objective, seconds_of
from partc.planner.model.problem import Edge, Link, Phase, Problem
from partc.planner.model.stages import SOURCE, Ends, held, places_of, route

_ROUNDING = 1e-10
"""Busy times that differ by less, relatively, do so since searches add them up in another order."""


@dataclass(frozen=True)
class Evaluation:
    """The value of a plan, or why it cannot be."""

    violations: tuple[str, ...]
    """The constraints that are not met, in words and numbers; empty: feasible."""
    value: float | None = None
    """Seconds (latency) or steps per second (throughput); None where infeasible."""
    phases: tuple[Timeline, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    """One entry for each device in use, all its stages together; in the order of their first stages."""
    busy_s: tuple[tuple[str, float], ...] = ()
    """Weighted busy time per step of each device (`A`) and link (`A->B`) in use."""
    drafted: tuple[DraftedToken, ...] = ()
    """The time of a decoded token where some are guessed; empty where none are."""

    @property
    def feasible(self) -> bool:
        """Whether every constraint is met."""
        return not self.violations

    def free_bytes(self, problem: Problem) -> dict[str, float]:
        """Device → memory that the plan leaves free, of those in use and of others."""
        free = {device.name: device.room_bytes for device in problem.devices}
        return free | {use.device: use.available_bytes - use.needed_bytes for use in self.memory}

    @property
    def predicted(self) -> Predicted:
        """`predicted` of plan.json."""
        return Predicted(self.phases, self.memory, dict(self.busy_s), self.drafted)


def evaluate(problem: Problem, stages: Stages) -> Evaluation:
    """Checks the stages against every constraint and follows one step of each phase.

    A device may have several stages. O(edges + stages^2).
    """
    shape = _check_shape(problem, stages)
    if shape:
        return Evaluation(shape)
    memory = _memory(problem, stages)
    violations = [text for use in memory if (text := memory_violation(use))]
    on_disk = ((name, problem.disk_of(indices)) for name, indices in held(stages).items())
    violations += [*storage_violations(problem, on_disk), *_missing(problem, stages)]
    if violations:
        return Evaluation(tuple(violations), memory=memory)
    phases = tuple(follow_step(problem, phase, stages) for phase in problem.steps)
    if violation := _too_busy(problem, phases):
        return Evaluation((violation,), memory=memory)
    busy = _busy(phases)
    drafted = _drafted(problem, phases)
    value = value_of(problem, phases, busy, drafted)
    return Evaluation((), value, phases, memory, tuple(busy.items()), drafted)


def value_of(
    problem: Problem,
    phases: Sequence[Timeline],
    busy_s: Mapping[str, float],
    drafted: Sequence[DraftedToken] = (),
) -> float:
    """The objective: seconds of the weighed steps, or steps per second of the busiest lane.

    `drafted`: times of tokens of which some are guessed; that of the problem's share among them, where it has one.
    """
    times = {phase.phase: phase.latency_s for phase in phases}
    if problem.drafted and problem.decode is not None:
        token_s = next(each.token_s for each in drafted if each.share == problem.drafted)
        times[problem.steps[problem.decode].name] = token_s
    seconds = by_objective(
        problem.objective,
        latency=sum(timeline.weight * times[timeline.phase] for timeline in phases),
        throughput=max(busy_s.values(), default=0.0),
    )
    # A step that takes no time at all still has a finite rate, so that it can be written as JSON.
    return seconds_of(problem.objective, seconds)


def follow_step(problem: Problem, phase: Phase, stages: Stages) -> Timeline:
    """The timeline of one step; every time and link that it needs must be there."""
    traffic = traffic_between(phase.edges, stages)
    runs: list[StageRun] = []
    messages: list[Message] = []
    free: dict[str, float] = {}
    for k, stage in enumerate(stages):
        incoming = [
            _message(problem.link_of[sender.device, stage.device], sender.finish_s, (i, k), traffic[i, k])
            for i, sender in enumerate(runs)
            if (i, k) in traffic
        ]
        start = max([free.get(stage.device, 0.0), *(message.arrive_s for message in incoming)])
        finish = start + sum(phase.time_s[j][stage.device] for j in stage.indices)
        runs.append(StageRun(stage.device, stage.first, stage.last, start, finish))
        free[stage.device] = finish
        messages += incoming
    back = [
        _message(problem.link_of[runs[i].device, problem.source], runs[i].finish_s, (i, SOURCE), values)
        for i, values in results_sent(phase, stages, problem.source).items()
    ]
    home = _results_home(phase, stages, problem.source, runs, messages) if phase.results else ()
    end = max([runs[-1].finish_s, *(message.arrive_s for message in back), *home])
    return Timeline(phase.name, phase.weight, end, tuple(runs), (*messages, *back))


def _results_home(
    phase: Phase, stages: Stages, source: str, runs: Sequence[StageRun], messages: Iterable[Message]
) -> Iterator[float]:
    """When results are on the source that it makes, or is sent anyway with `messages` of the step."""
    place = places_of(stages)
    results = {(place[result.maker], result.value) for result in phase.results}
    yield from (runs[maker].finish_s for maker, _ in results if runs[maker].device == source)
    for message in messages:
        sent = {(message.from_stage, value) for value in message.values}
        if message.receiver == source and not results.isdisjoint(sent):
            yield message.arrive_s


ValueKey = tuple[int, str, int]
"""Sub-module that makes the value; its name; the number of the edge where the edge has no name, else -1."""


def traffic_between(edges: Sequence[Edge], stages: Stages) -> dict[Ends, dict[ValueKey, float]]:
    """(sending stage, receiving stage) → value → bytes."""
    keys = [value_key(edge, number) for number, edge in enumerate(edges)]
    sizes = {key: edge.bytes for key, edge in zip(keys, edges, strict=True)}
    uses = ((key, edge.sender, edge.receiver) for key, edge in zip(keys, edges, strict=True))
    return {ends: {key: sizes[key] for key in values} for ends, values in route(stages, uses).items()}


def results_sent(phase: Phase, stages: Stages, source: str) -> dict[int, dict[ValueKey, float]]:
    """Stage → the results that it sends back to the source, with their bytes, in the order of the stages.

    Those that the source is sent anyway, since a later stage of it reads them, are not among them.
    """
    found: dict[int, dict[ValueKey, float]] = {}
    if phase.results:
        place = places_of(stages)
        there = values_read(phase.edges, lambda j: stages[place[j]].device == source)
        for result in sorted(phase.results, key=lambda result: result.maker):
            key = result.maker, result.value, -1
            if stages[place[result.maker]].device != source and key not in there:
                found.setdefault(place[result.maker], {})[key] = result.bytes
    if stages[-1].device != source:
        last: ValueKey = (len(phase.time_s) - 1, "return", -1)
        found.setdefault(len(stages) - 1, {})[last] = phase.return_bytes
    return found


def values_read(edges: Sequence[Edge], is_there: Callable[[int], bool]) -> set[ValueKey]:
    """The values that sub-modules at one place read, which therefore are sent there if they are made elsewhere."""
    return {value_key(edge, number) for number, edge in enumerate(edges) if is_there(edge.receiver)}


def value_key(edge: Edge, number: int) -> ValueKey:
    """Tells values apart: edges with the same sender and name carry the same one."""
    if edge.value is not None:
        return edge.sender, edge.value, -1
    return edge.sender, f"{edge.sender}->{edge.receiver}", number


def _message(link: Link, start_s: float, stages: tuple[int, int], values: dict[ValueKey, float]) -> Message:
    """The message of one stage to another; `stages` are their indices."""
    count = sum(values.values())
    names = tuple(name for _, name, _ in values)
    return Message(link.sender, link.receiver, count, start_s, start_s + link.seconds(count), names, *stages)


def _drafted(problem: Problem, phases: Sequence[Timeline]) -> tuple[DraftedToken, ...]:
    """The time of a token at some shares of guessed ones, the problem's own among them."""
    if problem.drafts is None or problem.decode is None:
        return ()
    shares = sorted({*SHARES, *([problem.drafts.share] if problem.drafts.share else [])})
    decode = phases[problem.decode]
    return tuple(DraftedToken(share, drafted_token_s(problem, decode, share)) for share in shares)


def _too_busy(problem: Problem, phases: Sequence[Timeline]) -> str | None:
    """The limit of busy times in decode that is not kept, in words."""
    if problem.most_busy_s is None or problem.decode is None:
        return None
    busy_s = busiest_s(problem, phases[problem.decode])
    if busy_s <= problem.most_busy_s * (1 + _ROUNDING):
        return None
    return f"a device or link is busy for {busy_s:.4g} s, longer than {problem.most_busy_s:.4g} s"


def _check_shape(problem: Problem, stages: Stages) -> tuple[str, ...]:
    count = stages[-1].last + 1 if stages else 0
    if count != len(problem.submodules):
        return (f"{count} devices are named for {len(problem.submodules)} sub-modules",)
    if unknown := sorted({stage.device for stage in stages} - set(problem.device_of)):
        return (f"unknown device {unknown[0]}",)
    if stages[0].device != problem.source:
        return (f"sub-module 0 is on {stages[0].device}, but must be on the source {problem.source}",)
    return ()


def _memory(problem: Problem, stages: Stages) -> tuple[MemoryUse, ...]:
    """The memory of each device in use: its overhead and the needs of all its sub-modules together."""
    devices = ((problem.device_of[name], indices) for name, indices in held(stages).items())
    return tuple(
        MemoryUse(device.name, device.overhead_bytes + problem.memory_of(indices), device.memory_bytes)
        for device, indices in devices
    )


def memory_violation(use: MemoryUse) -> str | None:
    """What a device lacks, in words; None where it has room."""
    if use.needed_bytes <= use.available_bytes:
        return None
    return f"{use.device} needs {format_bytes(use.needed_bytes)} and has {format_bytes(use.available_bytes)}"


def storage_violations(problem: Problem, on_disk: Iterable[tuple[str, float]]) -> Iterator[str]:
    """Devices whose weights, `(name, bytes)`, are more than may lie on their disks, in words."""
    for name, needed in on_disk:
        storage = problem.device_of[name].storage_bytes
        if storage is not None and needed > storage:
            yield f"the weights on {name} take {format_bytes(needed)} of {format_bytes(storage)} of storage"


def _missing(problem: Problem, stages: Stages) -> list[str]:
    """Times and links that the plan needs and the problem does not give."""
    missing = [
        f"{stage.device} cannot run sub-module {j}"
        for stage in stages
        for j in stage.indices
        if any(stage.device not in phase.time_s[j] for phase in problem.steps)
    ]
    used = {ends for phase in problem.steps for ends in traffic_between(phase.edges, stages)}
    pairs = [(stages[a].device, stages[b].device) for a, b in sorted(used)]
    back = {i for phase in problem.steps for i in results_sent(phase, stages, problem.source)}
    pairs += [(stages[i].device, problem.source) for i in sorted(back)]
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
