"""The strategy `sequence-parallel`: each device computes all blocks for its rows; Galaxy's baseline SP.

Rows are divided equally. Within an attention keys and values are gathered, in a ring and one after the other; an MLP
needs no message. Every device holds all weights, which is why it is often out of memory. In a step of one row one
device computes, and sends the others what their caches miss.
"""

from __future__ import annotations

from typing import Final

from partc.ir.plan import Plan, infeasible_plan
from partc.plan.problem import Problem
from partc.plan.shared.capacity import able_devices, layers_of
from partc.plan.shared.collectives import tile_rows
from partc.plan.shared.make import by_rows, rows_of, valued_shares

METHOD: Final = "sequence parallelism"


def plan_sequence_parallel(problem: Problem) -> Plan:
    """Equal numbers of rows for all devices that can run the blocks."""
    layers = layers_of(problem)
    if isinstance(layers, str):
        return infeasible_plan(f"{METHOD}: {layers}", METHOD)
    names = able_devices(problem)
    phases = {
        phase.name: by_rows(problem, names, tile_rows(rows_of(phase), len(names))) for phase in problem.steps
    }
    return valued_shares(problem, phases, METHOD)
