"""The strategy `megatron`: tensor parallelism with equal shares, the baseline M-LM of Galaxy's section IV.

Attention by heads and the MLP by columns, in numbers that differ by one at most; behind each of the two the sum goes
to all devices (slices of columns are summed in a ring, then gathered), and only then does each of them compute what
connects the blocks, for all rows. Nothing travels while products are computed. Speeds and memory are not looked at.
"""

from __future__ import annotations

from typing import Final

from partc.format.dims import cut_sizes
from partc.format.plan import Plan, infeasible_plan
from partc.planner.groups.capacity import layers_of
from partc.planner.groups.make import by_units, valued_shares
from partc.planner.model.problem import Problem

METHOD: Final = "equal tensor parallelism"


def plan_megatron(problem: Problem) -> Plan:
    """Equal numbers of heads and of columns for all devices that can run the blocks."""
    layers = layers_of(problem)
    if isinstance(layers, str):
        return infeasible_plan(f"{METHOD}: {layers}", METHOD)
    shares = {kind.share: cut_sizes(kind.units, len(layers.names)) for kind in layers.kinds}
    stages = by_units(problem, layers.names, shares, "ring")
    return valued_shares(problem, {phase.name: stages for phase in problem.steps}, METHOD)
