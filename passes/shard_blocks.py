"""`shard-blocks`: every attention and MLP becomes a sum of shares, one for each of several devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from partc.errors import PlanError
from partc.ir.edit import Names
from partc.ir.graph import Graph, Module
from partc.pipeline.contract import Context, Pass
from partc.planner.groups.algorithm1 import apportion
from passes.shards.blocks import find_blocks
from passes.shards.divide import divide
from passes.shards.units import Refusal


@dataclass(frozen=True)
class ShardBlocks(Pass):
    """Divide blocks by groups of heads and by columns (Galaxy, Eq. 1 and 2); what cannot be divided stays as it is.

    Weights become slices of references, caches hold the heads of their share. Sums are made in the order of the
    shares. All shares stay in one graph, to be looked at and compared (`partc opt`): it stands in no pipeline, where
    `split-graph` gives the shares of a plan to their devices (`passes.parts.sections`).
    """

    name: ClassVar[str] = "shard-blocks"
    requires: ClassVar[str | None] = "sized"
    ensures: ClassVar[str | None] = "sized"

    shares: str = "1:1"
    """Whole numbers, `3:2:1`: units are divided in proportion to them, in whole units."""

    def apply(self, module: Module, context: Context) -> bool:
        """Rewrite the graph; whether anything was divided.

        Raises:
            PlanError: `shares` is no list of numbers, or no block can be divided.
        """
        if not re.fullmatch(r"\d+(:\d+)+", self.shares) or not any(map(int, self.shares.split(":"))):
            raise PlanError(f"{self.shares!r} is no list of shares", hint="write shard-blocks{shares=3:2:1}")
        return shard_blocks(module.graph, [int(part) for part in self.shares.split(":")]) > 0


def shard_blocks(graph: Graph, weights: Sequence[int]) -> int:
    """Divide every block of a graph in place, in proportion to the weights; the number of blocks.

    Raises:
        PlanError: none can be divided; names the reasons.
    """
    blocks, others = find_blocks(graph)
    names, done, reasons = Names(graph), 0, [f"{one.end.place}: {one.reason}" for one in others]
    for block in blocks:
        shares = apportion(block.units, weights)
        if sum(share > 0 for share in shares) < 2:
            continue
        try:
            nodes = divide(block, shares, names)
        except Refusal as refusal:
            reasons.append(f"{block.end.place}: {refusal}")
            continue
        place = graph.nodes.index(block.end)
        graph.nodes[place : place + 1] = nodes
        graph.nodes = [node for node in graph.nodes if node not in block.inside]
        done += 1
    if not blocks or len(reasons) == len(others) + len(blocks):
        raise PlanError(
            f"no block can be shared: {'; '.join(reasons) or 'there is no product with a weight'}",
            where=f"graph {graph.name}",
            hint="run canonicalize, infer-sizes and fuse-operators before",
        )
    return done
