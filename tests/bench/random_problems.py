"""Random planning problems like those of real fleets: unlike devices and links, layers of a language model."""

from __future__ import annotations

import random
from dataclasses import dataclass

from partc.format.plan import Objective
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Submodule

MBIT = 125_000.0
"""Bytes per second."""


@dataclass(frozen=True)
class Family:
    """The sizes that random problems share."""

    devices: int
    submodules: int
    objective: Objective = "latency"
    memory: float = 2.0
    """Memory of all devices together, as a multiple of what the model needs."""
    spread: float = 30.0
    """Largest over smallest memory of a device."""
    residual: float = 0.0
    """Part of the sub-modules whose output is also used some layers later."""
    links: str = "pairs"
    """`pairs`: every pair on its own; `sites`: the slower of two connections decides."""


def draw_problem(family: Family, seed: int) -> Problem:
    """A problem of the family, for plans with one interval per device; the same for the same seed."""
    rng = random.Random(f"{family}-{seed}")
    names = [f"d{i:02d}" for i in range(family.devices)]
    hidden = rng.choice([2048, 4096, 8192])
    weights = _weights(rng, family.submodules, hidden)
    devices = _devices(rng, family, names, sum(weights))
    return Problem(
        objective=family.objective,
        source=rng.choice([device.name for device in devices if device.memory_bytes > 2 * weights[0]]),
        devices=devices,
        submodules=tuple(Submodule(size, {}, 64.0 * hidden) for size in weights),
        links=_links(rng, family, names),
        phases=_phases(rng, family, names, weights, hidden),
        returns=0,
    )


def _weights(rng: random.Random, count: int, hidden: int) -> list[float]:
    """Attention and MLP by turns in 16 bit; an embedding before them, a head behind."""
    ratio = rng.choice([2.7, 3.5, 4.0])
    grouped = rng.choice([2.25, 4.0])
    layers = [grouped if j % 2 else 3 * ratio for j in range(count)]
    layers[0] = layers[-1] = 32000 / hidden
    return [2.0 * hidden * hidden * size for size in layers]


def _devices(rng: random.Random, family: Family, names: list[str], need: float) -> tuple[Device, ...]:
    shares = [family.spread ** rng.random() for _ in names]
    unit = family.memory * need / sum(shares)
    return tuple(Device(name, round(unit * share)) for name, share in zip(names, shares, strict=True))


def _links(rng: random.Random, family: Family, names: list[str]) -> tuple[Link, ...]:
    """10 to 1000 Mbit/s, log-uniform, half a millisecond to five."""
    speed = {name: 10 * 100 ** rng.random() for name in names}
    links = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            rate = min(speed[a], speed[b]) if family.links == "sites" else 10 * 100 ** rng.random()
            latency = 0.0005 * 10 ** rng.random()
            links += [Link(a, b, rate * MBIT, latency), Link(b, a, rate * MBIT, latency)]
    return tuple(links)


def _phases(
    rng: random.Random, family: Family, names: list[str], weights: list[float], hidden: int
) -> tuple[Phase, ...]:
    """A prompt of 32 tokens and 96 more; the roofline of devices within a factor of 20."""
    bandwidth = {name: 10e9 * 20 ** rng.random() for name in names}
    flops = {name: bandwidth[name] * rng.uniform(20, 100) for name in names}
    later = [(j, min(family.submodules - 1, j + rng.randint(2, 12))) for j in range(family.submodules - 2)]
    extra = [pair for pair in later if rng.random() < family.residual]

    def phase(name: str, weight: float, tokens: int) -> Phase:
        times = tuple(
            {d: max(size / bandwidth[d], size * tokens / flops[d]) + 2e-5 for d in names} for size in weights
        )
        pairs = [(j, j + 1) for j in range(family.submodules - 1)] + extra
        edges = tuple(Edge(a, b, 2.0 * hidden * tokens, f"v{a}") for a, b in pairs)
        return Phase(name, weight, times, edges, 8.0)

    return phase("prefill", 1 / 96, 32), phase("decode", 95 / 96, 1)
