"""Small problems with blocks that several devices may share."""

from __future__ import annotations

import itertools
import random

from partc.planner.model.problem import Block, Device, Edge, Link, Phase, Problem, Submodule, Tiling


def layers(
    speeds: dict[str, float],
    count: int = 2,
    *,
    memory: float = 1000,
    rows: int = 8,
    bandwidth: float = 100,
    latency: float = 0.0,
    heads: int = 4,
) -> Problem:
    """An embedding, then so many attentions and MLPs of 12 and 24 bytes; `speeds`: device → speed, the source first.

    On a device of speed 1 an attention takes 3 s and an MLP 4 s; an activation has 10 bytes a row.
    """
    attention = Submodule(
        12,
        {name: 3 / speed for name, speed in speeds.items()},
        block=Block("heads", heads, 12),
        tiling=Tiling(rows, 10 * rows, 0.5, 0.25, 0.05, keys_bytes=20 * rows),
    )
    mlp = Submodule(
        24,
        {name: 4 / speed for name, speed in speeds.items()},
        block=Block("columns", 16, 24),
        tiling=Tiling(rows, 10 * rows, 0.5, 0.4, 0.05),
    )
    embedding = Submodule(6, dict.fromkeys(speeds, 0.25))
    return Problem(
        objective="latency",
        source=next(iter(speeds)),
        devices=tuple(Device(name, memory) for name in speeds),
        submodules=(embedding, *(part for _ in range(count) for part in (attention, mlp))),
        links=tuple(Link(a, b, bandwidth, latency) for a, b in itertools.permutations(speeds, 2)),
        edges=tuple(Edge(j, j + 1, 10 * rows, f"h{j}") for j in range(2 * count)),
        return_bytes=10,
    )


def with_decode(problem: Problem) -> Problem:
    """The problem with a prefill as its step is, and a decode of one row that takes an eighth of the time."""
    (step,) = problem.steps
    rows = problem.submodules[1].tiling
    assert rows is not None
    times = tuple({name: s / rows.rows for name, s in part.items()} for part in step.time_s)
    one = tuple(
        part and Tiling(1, part.activation_bytes / part.rows, part.enter, part.leave, part.connect)
        for part in step.tilings
    )
    edges = tuple(Edge(edge.sender, edge.receiver, edge.bytes / rows.rows, edge.value) for edge in step.edges)
    plain = tuple(Submodule(part.memory_bytes, {}, block=part.block) for part in problem.submodules)
    phases = (
        Phase("prefill", 0.25, step.time_s, step.edges, 10, step.tilings),
        Phase("decode", 0.75, times, edges, 10, one),
    )
    return Problem(problem.objective, problem.source, problem.devices, plain, problem.links, phases=phases)


def draw_shared(seed: int) -> Problem:
    """2-4 devices within a factor of 6 in speed, with little memory."""
    rng = random.Random(seed)
    names = "abcd"[: rng.randint(2, 4)]
    count = rng.randint(1, 3)
    problem = layers(
        {name: 6 ** rng.random() for name in names},
        count,
        memory=rng.uniform(1.1, 2.5) * (6 + 36 * count) / len(names) + 100,
        rows=rng.randint(2, 12),
        bandwidth=rng.choice([20, 100, 1000]),
        latency=rng.choice([0.0, 0.1]),
        heads=rng.choice([4, 6]),
    )
    return with_decode(problem) if rng.random() < 0.5 else problem
