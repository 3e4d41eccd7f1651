"""The strategy `sequence-parallel`: each device computes all blocks for its rows; Galaxy's baseline SP.

Rows are divided equally. Within an attention keys and values are gathered, in a ring and one after the other; an MLP
needs no message. Every device holds all weights, which is why it is often out of memory. Behind a phase that
is shared, the source computes one with fewer rows than devices (decode) alone: it has all weights, and the keys and
values of all rows.
"""

from __future__ import annotations

from typing import Final

from partc.format.dims import cut_sizes
from partc.format.plan import Plan, SharedStage, SharedStages, infeasible_plan
from partc.planner.groups.capacity import able_devices, layers_of
from partc.planner.groups.make import by_rows, rows_of, stages_by, valued_shares
from partc.planner.model.problem import Phase, Problem

METHOD: Final = "sequence parallelism"


def plan_sequence_parallel(problem: Problem) -> Plan:
    """Equal numbers of rows for all devices that can run the blocks."""
    layers = layers_of(problem)
    if isinstance(layers, str):
        return infeasible_plan(f"{METHOD}: {layers}", METHOD)
    names, most = able_devices(problem), max(map(rows_of, problem.steps))

    def stages(phase: Phase) -> SharedStages:
        rows = rows_of(phase)
        if rows < len(names) <= most and names[0] == problem.source:
            return stages_by(problem, lambda j, _: SharedStage((j, j), (problem.source,)))
        return by_rows(problem, names, cut_sizes(rows, len(names)))

    return valued_shares(problem, {phase.name: stages(phase) for phase in problem.steps}, METHOD)
