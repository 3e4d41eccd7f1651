"""The sections of a sub-module with a block: what stands before it, its beginning, its inside, its end, what follows.

| section | nodes |
| --- | --- |
| `before` | what the block reads of its sub-module: a norm |
| `enter` | the products that begin the block |
| `inner` | the rest of the block: attention, an activation |
| `leave` | the product that ends it |
| `after` | all other nodes: the bias, a residual sum |

Values that lie in one axis with others (`batch*sequence`, for a `Gemm`) cannot be divided by rows. They stay within a
section: what makes them, or takes them apart, is on the same side of the border.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from partc.ir.flow import needed
from partc.ir.graph import Node, Submodule, Value
from partc.plan.shared.work import ROWS
from passes.shards.blocks import PRODUCTS, Block
from passes.shards.units import sizes_of


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
    for node in block.inside:
        if any(value.producer in enter and not has_rows_apart(value) for value in node.operands):
            enter.add(node)
    leave, others = {block.end}, {*submodule.nodes} - inside - {block.end}
    leave |= _makers(leave, inside - enter)
    enter |= _makers(enter, others)
    before = needed((*enter, *inside), others - enter)
    after, inner = others - enter - before, inside - enter - leave

    def ordered(nodes: Collection[Node]) -> tuple[Node, ...]:
        return tuple(node for node in submodule.nodes if node in nodes)

    return Sections(*map(ordered, (before, enter, inner, leave, after)))


def has_rows_apart(value: Value) -> bool:
    """Whether the rows of a value have an axis to themselves, or there are none."""
    sizes = sizes_of(value)
    return ROWS in sizes or not any(ROWS in str(size) for size in sizes)


def _makers(nodes: Iterable[Node], among: Collection[Node]) -> set[Node]:
    """The nodes that make what these read and whose rows have no axis to themselves, and so on."""
    found = {
        value.producer
        for node in nodes
        for value in node.operands
        if value.producer in among and value.producer is not None and not has_rows_apart(value)
    }
    return found | (_makers(found, among) if found else set())
