"""`separate-blocks`: no sub-module has two blocks, so that every block can be shared by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from partc.ir.flow import free_nodes
from partc.ir.graph import Graph, Module, Node, Submodule
from partc.pipeline.contract import Context, Pass
from passes.form_submodules import arrange
from passes.shards.blocks import Block, find_blocks


@dataclass(frozen=True)
class SeparateBlocks(Pass):
    """Cut between an attention and an MLP that stand side by side (Phi, GPT-NeoX), or that one sub-module holds.

    More values cross such a cut than others: it is for strategies whose devices share blocks, and keep them.
    """

    name: ClassVar[str] = "separate-blocks"
    requires: ClassVar[str | None] = "formed"
    ensures: ClassVar[str | None] = "formed"

    def apply(self, module: Module, context: Context) -> bool:
        """Divide sub-modules of `module.submodules`."""
        before = module.submodules or []
        separated = separate_blocks(module.graph, before, find_blocks(module.graph)[0])
        if len(separated) == len(before):
            return False
        module.submodules = list(separated)
        return True


def separate_blocks(
    graph: Graph, submodules: Sequence[Submodule], blocks: Sequence[Block]
) -> Sequence[Submodule]:
    """The sub-modules, cut behind each block of theirs but the last; `graph.nodes` follows. O(V + E).

    A node that is in no block stands as early as its operands allow.
    """
    free = free_nodes(graph)
    places = [_places(submodule, blocks) for submodule in submodules]
    if all(max(place.values(), default=0) == 0 for place in places):
        return submodules
    level: dict[Node, int] = {}
    first = 0
    for submodule, place in zip(submodules, places, strict=True):
        for node in submodule.nodes:
            makers = (value.producer for value in node.operands)
            behind = max((level[maker] for maker in makers if maker in level), default=first)
            if node not in free:
                level[node] = first + place[node] if node in place else max(first, behind)
        first = 1 + max((level[node] for node in submodule.nodes if node in level), default=first)
    return arrange(graph, level)


def _places(submodule: Submodule, blocks: Sequence[Block]) -> dict[Node, int]:
    """The nodes of blocks of a sub-module, each with the number of its block there, from 0."""
    mine = {*submodule.nodes}
    inside = [block for block in blocks if block.end in mine]
    return {node: number for number, block in enumerate(inside) for node in (*block.inside, block.end)}
