"""The paper's models and boards as planning problems with blocks.

A time is operations / speed. What connects the blocks is memory traffic: six passes over an activation (a residual sum
and a normalisation) at the bandwidth of the board's data sheet. Activations travel in float32, with a latency of 1 ms,
which the paper does not name. Weights take what Table I says, two bytes for each parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from examples.papers.galaxy.paper import BUDGETS, ENVIRONMENTS, EQUAL_BUDGET, FREQUENCY_MHZ, MODELS, Model
from partc.planner.model.problem import Block, BlockUnits, Device, Edge, Link, Problem, Submodule, Tiling

BYTES = 4
"""Size of a number on a link."""
LATENCY_S = 0.001
MBIT_BYTES = 125_000.0
"""Bytes per second."""
BANDWIDTH = 25.6e9
"""Bytes per second of a Nano's memory: targets/profiles."""
PASSES = 6
"""Over an activation, in a residual sum (read two, write one) and a normalisation (read twice, write once)."""


@dataclass(frozen=True)
class Fit:
    """The two numbers that are fitted."""

    flops_per_s: float
    """Speed of a Nano-M."""
    efficiency: float
    """Part of that speed which a part of a block reaches."""


def flops(model: Model, rows: int) -> dict[str, float]:
    """Operations of one layer."""
    product = 2.0 * model.hidden**2 * rows
    attention = 4.0 * rows**2 * model.hidden
    return {"qkv": 3 * product, "inner": attention, "out": product, "up": 4 * product, "down": 4 * product}


def problem_of(
    model: Model,
    boards: str,
    fit: Fit,
    *,
    rows: int,
    mbit: float,
    layers: int | None = None,
    memory: bool = True,
) -> Problem:
    """One inference of `rows` positions on these boards; the first of them is the source.

    Args:
        model: a row of Table IV.
        boards: a letter of `FREQUENCY_MHZ` for each.
        fit: speeds.
        rows: length of the input.
        mbit: bandwidth of every link, Mbit/s.
        layers: as many of the model's; all by default.
        memory: whether budgets count.
    """
    count = layers or model.layers
    names = [f"{board}{number}" for number, board in enumerate(boards)]
    speeds = {name: fit.flops_per_s * FREQUENCY_MHZ[name[0]] / FREQUENCY_MHZ["m"] for name in names}
    budgets = {name: _budget(name[0], boards) if memory else 1e18 for name in names}
    blocks = _blocks(model, fit, speeds, rows)
    activation = float(rows * model.hidden * BYTES)
    return Problem(
        objective="latency",
        source=names[0],
        returns=0,
        devices=tuple(Device(name, budgets[name]) for name in names),
        submodules=(
            Submodule(0, dict.fromkeys(names, 0.0)),
            *(block for _ in range(count) for block in blocks),
        ),
        links=tuple(Link(a, b, mbit * MBIT_BYTES, LATENCY_S) for a, b in permutations(names, 2)),
        edges=tuple(Edge(j, j + 1, activation, f"hidden{j}") for j in range(2 * count)),
        return_bytes=activation,
    )


def _budget(board: str, boards: str) -> float:
    return EQUAL_BUDGET if set(boards) == {"m"} else BUDGETS[board]


def _blocks(model: Model, fit: Fit, speeds: dict[str, float], rows: int) -> tuple[Submodule, Submodule]:
    """The attention and the MLP of a layer: a third and two thirds of its weights."""
    work, activation = flops(model, rows), float(rows * model.hidden * BYTES)
    connect_s = PASSES * activation / BANDWIDTH
    layer_bytes = model.memory_bytes / model.layers

    def block(
        share: BlockUnits, units: int, part: float, steps: tuple[str, str, str], keys: float
    ) -> Submodule:
        operations = sum(work.get(step, 0.0) for step in steps)
        times = {name: operations / speed + connect_s for name, speed in speeds.items()}
        # One tiling for all boards: of a slower one a smaller part connects, of a time that is thousandths.
        whole = operations / fit.flops_per_s + connect_s
        enter, leave = (work.get(step, 0.0) / fit.flops_per_s / whole for step in (steps[0], steps[2]))
        memory = layer_bytes * part
        return Submodule(
            memory,
            times,
            block=Block(share, units, memory, fit.efficiency),
            tiling=Tiling(rows, activation, enter, leave, connect_s / whole, keys),
        )

    return (
        block("heads", model.heads, 1 / 3, ("qkv", "inner", "out"), 2 * activation),
        block("columns", 4 * model.hidden, 2 / 3, ("up", "", "down"), 0.0),
    )


def table_iv_problem(model: str, environment: str, fit: Fit, *, rows: int, mbit: float) -> Problem:
    """A model of Table IV in an environment of Table III."""
    return problem_of(MODELS[model], ENVIRONMENTS[environment], fit, rows=rows, mbit=mbit)
