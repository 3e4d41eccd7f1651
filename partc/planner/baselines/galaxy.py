"""The strategy `galaxy`: Galaxy's hybrid of tensor and sequence parallelism, its shares by Algorithm 1 as published.

All devices that can run the blocks share every one of them: attention by heads, the MLP by columns, what connects them
by equal tiles of rows; tiles travel while products are computed (`partc.planner.groups`). The paper has one kind of
step. In a phase with fewer rows than devices (decode) tiles are empty: there the exchange is the one of tiles, ring and
star that is priced lowest.

The gaps of the algorithm are listed in `partc.planner.groups.algorithm1`. The value of the plan, and whether it fits,
is that of the simulated step with all that Eq. 5 leaves out: links, embeddings and head on the source, peaks, buffers.
"""

from __future__ import annotations

from typing import Final

from partc.format.plan import Plan, SharedStages, infeasible_plan
from partc.planner.groups.algorithm1 import algorithm1
from partc.planner.groups.capacity import layers_of
from partc.planner.groups.chains import EXCHANGES
from partc.planner.groups.eq5 import best_shares
from partc.planner.groups.make import by_units, choose_exchange, rows_of, valued_shares
from partc.planner.model.problem import Phase, Problem

METHOD: Final = "Galaxy's Algorithm 1"


def plan_galaxy(problem: Problem) -> Plan:
    """Algorithm 1's shares; it minimises a latency whatever the objective of the problem is."""
    layers = layers_of(problem)
    if isinstance(layers, str):
        return infeasible_plan(f"{METHOD}: {layers}", METHOD)
    shares = algorithm1(layers)
    if shares is None:
        there = "though there are shares that fit" if best_shares(layers) else "and no shares would"
        return infeasible_plan(f"{METHOD} ends with devices over their budgets, {there}", METHOD)
    by_kind = {kind.share: mine for kind, mine in zip(layers.kinds, shares, strict=True)}

    def stages(phase: Phase) -> SharedStages:
        choices = EXCHANGES if rows_of(phase) < len(layers.names) else ("tiles",)
        return choose_exchange(
            problem, phase, lambda exchange: by_units(problem, layers.names, by_kind, exchange), choices
        )

    return valued_shares(problem, {phase.name: stages(phase) for phase in problem.steps}, METHOD)
