"""Blocks of a graph that devices can share, found by their operators.

A block ends in a product with a weight, whose rows are divided: then every share has a part of the sum. Its rows are
divided as the columns of the value before it are; from there the division is followed back through the operators
(`passes.shards.rules`) to the products that begin the block, whose columns are divided and whose rows are whole. What
must stay together becomes one unit: the columns of an MLP are units themselves, heads of attention become groups with
keys of their own. So no name of a model, a layer or a weight is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from partc.ir.graph import Constant, Graph, Node, State, Value, Weight
from partc.ir.operators import ATTENTION, QUANTIZED_ATTENTION, QUANTIZED_MATMUL
from partc.ir.operators.quantized import block_of
from partc.ir.stored_integers import blocks_together
from partc.planner.model.problem import BlockUnits
from passes.shards.rules import operands_of
from passes.shards.units import Division, Refusal, Units, known, sizes_of

PRODUCTS = ("MatMul", "Gemm", QUANTIZED_MATMUL.name)
ATTENTIONS = (ATTENTION.name, QUANTIZED_ATTENTION.name)
SUM_TYPE = "f32"
"""The type of sums over shares, whatever that of the products: parts of 16 bits lose nothing more when they meet."""


@dataclass(frozen=True)
class Block:
    """A part of a graph that is a sum over units."""

    kind: BlockUnits
    """`heads` where attention is in it, else `columns`."""
    end: Node
    """The product that makes the sum."""
    inside: tuple[Node, ...]
    """The nodes before it that are divided, in their order."""
    divided: dict[Value, Division]
    """All values that are divided, leaves too; units are numbered from 0, in the order of the rows of the end."""
    units: int


@dataclass(frozen=True)
class Whole:
    """A product with a weight that ends no block."""

    end: Node
    reason: str


def find_blocks(graph: Graph) -> tuple[list[Block], list[Whole]]:
    """The blocks of a graph, each node in one at most, and the other products with the reason. O(nodes · depth)."""
    blocks, others, taken = list[Block](), list[Whole](), set[Node]()
    readers = graph.consumers()
    for end in graph.nodes:
        if end.op not in PRODUCTS or not isinstance(end.inputs[1], Weight):
            continue
        try:
            block = _block(graph, end, readers)
            if not taken.isdisjoint((block.end, *block.inside)):
                raise Refusal("what comes before it is in a block")
        except Refusal as refusal:
            others.append(Whole(end, str(refusal)))
        else:
            blocks.append(block)
            taken.update((block.end, *block.inside))
    return blocks, others


def _block(graph: Graph, end: Node, readers: dict[Value, list[Node]]) -> Block:
    units, divided = _end(end)
    inside = list[Node]()
    for node in reversed(graph.nodes[: graph.nodes.index(end)]):
        results = {place: divided[out] for place, out in enumerate(node.outputs) if out in divided}
        if not results:
            continue
        inside.insert(0, node)
        try:
            for place, division in operands_of(node, results, units).items():
                operand = node.operand(place)
                if operand in divided:
                    units.agree(divided[operand], division)
                divided[operand] = division
        except Refusal as refusal:
            raise Refusal(f"{node.place}: {refusal}") from None
    _check(graph, end, inside, divided, readers)
    order = dict.fromkeys(units.find(unit) for unit in divided[end.operand(0)].units)
    if len(order) < 2:
        raise Refusal("all of it belongs together")
    number = {unit: place for place, unit in enumerate(order)}
    numbered = {
        value: Division(division.axis, tuple(number[units.find(unit)] for unit in division.units))
        for value, division in divided.items()
    }
    kind: BlockUnits = "heads" if any(node.op in ATTENTIONS for node in inside) else "columns"
    return Block(kind, end, tuple(inside), numbered, len(order))


def bias_of(end: Node) -> list[Value]:
    """What is added to the last product of a block."""
    return [] if end.op == QUANTIZED_MATMUL.name else [value for value in end.inputs[2:] if value is not None]


def _end(end: Node) -> tuple[Units, dict[Value, Division]]:
    """The division of the last product: the columns of its left operand, the rows of its weight."""
    left, weight = end.operand(0), end.operand(1)
    attributes = end.attributes
    if attributes.get("transA") or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
        raise Refusal("it is scaled or turned")
    sizes, count = sizes_of(left), known(sizes_of(left)[-1])
    units, columns = Units(count), Division(len(sizes) - 1, tuple(range(count)))
    if end.op == QUANTIZED_MATMUL.name:
        return units, {left: columns, **_quantised(end, units, columns)}
    rows = Division(1 if attributes.get("transB") else 0, columns.units)
    return units, {left: columns, weight: rows}


def _quantised(end: Node, units: Units, columns: Division) -> dict[Value, Division]:
    """The division of quantised weights [N, K] along K: where scales are of whole rows that of the data.

    Where a block has one, whole blocks, with their scales: the columns of a block become one unit. So the numbers of a
    share are those of the whole matrix, and where activations are rounded block by block, theirs are, too.
    """
    _, *stored = end.operands
    block = block_of(end)
    if not block:
        return {stored[0]: Division(1, columns.units)}
    data = stored[0]
    together = blocks_together(data.source if isinstance(data, Weight) else None)
    wide = block * together
    merged = [
        units.merge(*columns.units[first : first + wide]) for first in range(0, len(columns.units), wide)
    ]
    blocks = tuple(unit for unit in merged for _ in range(together))
    return dict.fromkeys(stored, Division(1, blocks))


def _check(
    graph: Graph,
    end: Node,
    inside: list[Node],
    divided: dict[Value, Division],
    readers: dict[Value, list[Node]],
) -> None:
    """Refuse a block without a product at its beginning, and one whose values somebody else reads or makes."""
    if not any(node.op in PRODUCTS for node in inside):
        raise Refusal("there is no product before it")
    nodes = {end, *inside}
    for value in divided:
        if value.producer is None and not isinstance(value, Weight | State | Constant):
            raise Refusal(f"{value.name} is an input of the graph")
        if value in graph.outputs:
            raise Refusal(f"{value.name} is a result of the graph")
        # A weight may have other readers: each slice is a reference of its own.
        if not isinstance(value, Weight | Constant) and (odd := list(_others(readers, value, nodes))):
            raise Refusal(f"{odd[0].place} reads {value.name}, too")


def _others(readers: dict[Value, list[Node]], value: Value, nodes: set[Node]) -> Iterator[Node]:
    return (node for node in readers.get(value, ()) if node not in nodes)
