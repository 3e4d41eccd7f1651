"""The sections of a sub-module with a block: what stands before it, its beginning, its inside, its end, what follows.

| section | nodes |
| --- | --- |
| `before` | what the block reads of its sub-module: a norm |
| `enter` | the products that begin the block |
| `inner` | the rest of the block: attention, an activation |
| `leave` | the product that ends it |
| `after` | all other nodes: the bias, a residual sum |
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from partc.ir.flow import needed
from partc.ir.graph import Node, Submodule
from passes.shards.blocks import PRODUCTS, Block


@dataclass(frozen=True)
class Sections:
    """The nodes of a sub-module, in their order."""

    before: tuple[Node, ...]
    enter: tuple[Node, ...]
    inner: tuple[Node, ...]
    leave: tuple[Node, ...]
    after: tuple[Node, ...]


def sections_of(submodule: Submodule, block: Block) -> Sections:
    """The sections of a sub-module that has one block; O(nodes)."""
    inside = {*block.inside}
    enter = {node for node in inside if node.op in PRODUCTS and node.operand(0) not in block.divided}
    leave, others = {block.end}, {*submodule.nodes} - inside - {block.end}
    before = needed(inside, others)
    after, inner = others - before, inside - enter

    def ordered(nodes: Collection[Node]) -> tuple[Node, ...]:
        return tuple(node for node in submodule.nodes if node in nodes)

    return Sections(*map(ordered, (before, enter, inner, leave, after)))
