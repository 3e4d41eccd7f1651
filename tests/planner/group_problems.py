"""Problems small enough to try every plan with groups, and that trying: it knows the space of plans, and no bound."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from partc.format.plan import SharedStage, SharedStages
from partc.planner.groups.evaluate import evaluate_shared
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Link, Problem
from tests.planner.shared_problems import layers, with_decode

Slot = tuple[tuple[str, ...], int, int]
"""A group, and the sub-modules from the first to before the second number."""


def draw_small(seed: int) -> Problem:
    """2-3 devices, 1-2 layers, 2-3 heads and 2-3 columns; some links and times are missing."""
    rng = random.Random(seed)
    names = "abc"[: rng.choice([2, 2, 3])]
    count = 1 if len(names) == 3 else rng.choice([1, 2])
    problem = layers(
        {name: 4 ** rng.random() for name in names}, count, rows=rng.choice([1, 2, 4, 7]), heads=rng.choice([2, 3])
    )  # fmt: skip
    columns = rng.choice([2, 3])
    parts = tuple(
        replace(part, block=replace(part.block, units=columns, efficiency=rng.choice([1.0, 0.8])))
        if part.block and part.block.share == "columns"
        else part
        for part in problem.submodules
    )
    whole = 6 + 36.0 * count
    problem = replace(
        problem,
        submodules=parts,
        devices=tuple(Device(name, rng.uniform(0.5, 1.5) * whole + 40, rng.choice([0, 5])) for name in names),
        links=tuple(
            Link(a, b, rng.choice([20.0, 200.0, 2000.0]), rng.choice([0.0, 0.02, 0.3]))
            for a, b in itertools.permutations(names, 2)
            if rng.random() > 0.05
        ),
        objective=rng.choice(["latency", "latency", "latency", "throughput"]),
    )
    problem = with_decode(problem) if len(names) == 2 and rng.random() < 0.4 else problem
    return _without_embedding(problem, names[-1]) if rng.random() < 0.2 else problem


def _without_embedding(problem: Problem, name: str) -> Problem:
    """One device has no time for what it could share with none: it may be a member all the same."""

    def others(times: Mapping[str, float]) -> dict[str, float]:
        return {device: seconds for device, seconds in times.items() if device != name}

    first, *rest = problem.submodules
    phases = tuple(
        replace(phase, time_s=(others(phase.time_s[0]), *phase.time_s[1:])) for phase in problem.phases
    )
    return replace(problem, submodules=(replace(first, time_s=others(first.time_s)), *rest), phases=phases)


def best_by_trying(problem: Problem) -> float | None:
    """The value of the best plan, with groups or without."""
    worth = [value for phases in every_plan(problem) if (value := _value(problem, phases)) is not None]
    return (min if problem.objective == "latency" else max)(worth, default=None)


def _value(problem: Problem, phases: dict[str, SharedStages]) -> float | None:
    stages = next(iter(phases.values()))
    alone = all(len(stage.devices) == 1 for stage in stages)
    return (evaluate(problem, stages) if alone else evaluate_shared(problem, phases)).value


def every_plan(problem: Problem) -> Iterator[dict[str, SharedStages]]:
    """The stages of each phase: shares are the same in all, exchanges are not."""
    for slots in _slots(problem, 0, frozenset()):
        if slots[0][0][0] != problem.source:
            continue
        for shares in itertools.product(*(list(_shares(problem, slot)) for slot in slots)):
            options = list(_exchanged(problem, slots, shares))
            for chosen in itertools.product(options, repeat=len(problem.steps)):
                yield {phase.name: stages for phase, stages in zip(problem.steps, chosen, strict=True)}


def _slots(problem: Problem, begin: int, used: frozenset[str]) -> Iterator[tuple[Slot, ...]]:
    """Ways of giving the sub-modules from `begin` on to groups of unused devices."""
    count = len(problem.submodules)
    if begin == count:
        yield ()
        return
    free = [device.name for device in problem.devices if device.name not in used]
    for size in range(1, len(free) + 1):
        for group in itertools.combinations(free, size):
            for end in range(begin + 1, count + 1):
                if size > 1 and not any(part.block for part in problem.submodules[begin:end]):
                    continue
                for rest in _slots(problem, end, used | {*group}):
                    yield ((group, begin, end), *rest)


def _shares(problem: Problem, slot: Slot) -> Iterator[dict[str, tuple[int, ...]]]:
    group, begin, end = slot
    kinds = {part.block.share: part.block.units for part in problem.submodules[begin:end] if part.block}
    if len(group) == 1:
        yield {}
        return
    each = [
        [parts for parts in itertools.product(range(units + 1), repeat=len(group)) if sum(parts) == units]
        for units in kinds.values()
    ]
    for chosen in itertools.product(*each):
        yield dict(zip(kinds, chosen, strict=True))


def _exchanged(
    problem: Problem, slots: tuple[Slot, ...], shares: tuple[dict[str, tuple[int, ...]], ...]
) -> Iterator[SharedStages]:
    """The stages with every exchange, the same throughout a group."""
    options = [("tiles", "ring", "star") if len(group) > 1 else ("none",) for group, _, _ in slots]
    for chosen in itertools.product(*options):
        stages = list[SharedStage]()
        for (group, begin, end), mine, exchange in zip(slots, shares, chosen, strict=True):
            for j in range(begin, end):
                block = problem.submodules[j].block
                if block is None or len(group) == 1:
                    stages.append(SharedStage((j, j), group[:1]))
                else:
                    kind = block.share
                    stages.append(SharedStage((j, j), group, kind, mine[kind], exchange))  # type: ignore[arg-type]
        yield tuple(stages)
