"""Random problems so small that all their assignments can be looked at."""

from __future__ import annotations

import itertools
import random

from partc.format.plan import Objective
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Shared, Submodule


def draw_small(seed: int, objective: Objective, residuals: bool) -> Problem:
    """2-3 devices, 3-6 sub-modules, two phases, tied weights, peaks, little memory, absent links and times."""
    rng = random.Random(f"{seed}{objective}{residuals}")
    names = "abc"[: rng.randint(2, 3)]
    count = rng.randint(3, 6)
    parts = tuple(
        Submodule(
            rng.randint(0, 4), {}, rng.choice([0, 0, 3]), Shared("embed", 2) if rng.random() < 0.3 else None
        )
        for _ in range(count)
    )
    need = sum(part.memory_bytes for part in parts)
    devices = tuple(Device(name, rng.randint(3, int(need) + 6), rng.choice([0, 1])) for name in names)
    links = tuple(
        Link(a, b, rng.choice([1.0, 4.0]), rng.choice([0.0, 0.5]))
        for a, b in itertools.permutations(names, 2)
        if rng.random() < 0.9
    )

    def phase(name: str, weight: float) -> Phase:
        times = tuple({d: rng.uniform(0.2, 4) for d in names if rng.random() < 0.95} for _ in parts)
        edges = [Edge(j, j + 1, rng.choice([0, 1, 3]), f"v{j}") for j in range(count - 1)]
        if residuals:
            sizes = {edge.sender: edge.bytes for edge in edges}
            later = [(i, k) for i in range(count) for k in range(i + 2, count) if rng.random() < 0.3]
            edges += [
                Edge(i, k, sizes[i], f"v{i}") if rng.random() < 0.5 else Edge(i, k, 2) for i, k in later
            ]
        return Phase(name, weight, times, tuple(edges), rng.randint(0, 2))

    phases = phase("prefill", 0.25), phase("decode", 0.75)
    return Problem(objective, names[0], devices, parts, links, phases=phases)
