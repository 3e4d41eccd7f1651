"""EdgeShard's testbed (Table III) with a model of the shape of Llama-2-70B, built by hand."""

from __future__ import annotations

from partc.format.plan import Objective
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Submodule
from tests.bench.random_problems import MBIT

GIB = 2.0**30
BOARDS = {
    "agx": (12, 32 * GIB, 204.8e9, 3.33e12),
    "nx": (2, 16 * GIB, 102.4e9, 1.88e12),
    "cloud": (1, 24 * GIB, 936e9, 36e12),
}
"""Kind -> number, memory, bytes per second, FLOP per second."""
HIDDEN, MLP, CACHED, VOCABULARY, LAYERS = 8192, 28672, 1024, 32000, 80
PROMPT, GENERATED, SEQUENCE = 32, 96, 512


def edgeshard_testbed(objective: Objective, submodules: int) -> Problem:
    """An embedding and `submodules` - 1 equal pieces of the layers, the head in the last one; no plan returns."""
    kinds = {f"{kind}{i:02d}": figures for kind, figures in BOARDS.items() for i in range(figures[0])}
    weights = _weights(submodules)
    return Problem(
        objective=objective,
        source="agx00",
        devices=tuple(Device(name, 0.9 * memory) for name, (_, memory, _, _) in kinds.items()),
        submodules=tuple(Submodule(size, {}, 8.0 * SEQUENCE * HIDDEN) for size in weights),
        links=tuple(_link(a, b) for a in kinds for b in kinds if a != b),
        phases=(
            _phase("prefill", 1 / GENERATED, PROMPT, kinds, weights),
            _phase("decode", (GENERATED - 1) / GENERATED, 1, kinds, weights),
        ),
        returns=0,
    )


def _weights(submodules: int) -> list[float]:
    """Bytes in fp32, caches included, spread evenly over `submodules` - 1 pieces of the stack of layers."""
    layer = 4.0 * (2 * HIDDEN**2 + 2 * HIDDEN * CACHED + 3 * HIDDEN * MLP) + 8.0 * SEQUENCE * CACHED
    stack = [LAYERS * layer / (submodules - 1)] * (submodules - 1)
    stack[-1] += 4.0 * VOCABULARY * HIDDEN
    return [4.0 * VOCABULARY * HIDDEN, *stack]


def _link(a: str, b: str) -> Link:
    """1 Mbit/s between the source and the cloud, 50 Mbit/s elsewhere."""
    slow = {a, b} == {"agx00", "cloud00"}
    return Link(a, b, (1 if slow else 50) * MBIT, 0.001)


def _phase(
    name: str,
    weight: float,
    tokens: int,
    kinds: dict[str, tuple[int, float, float, float]],
    weights: list[float],
) -> Phase:
    times = tuple(
        {
            device: max(size / bandwidth, size / 2 * tokens / flops) + 1e-4
            for device, (_, _, bandwidth, flops) in kinds.items()
        }
        for size in weights
    )
    edges = tuple(Edge(j, j + 1, 4.0 * HIDDEN * tokens, f"v{j}") for j in range(len(weights) - 1))
    return Phase(name, weight, times, edges, 8.0)
