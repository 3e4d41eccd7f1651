"""A block becomes one sub-graph for each share, and a sum of what they make, in the order of the shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from partc.ir.edit import Names
from partc.ir.graph import Attribute, Constant, Node, State, Value, Weight
from partc.ir.types import BY_SHORT
from passes.shards.blocks import SUM_TYPE, Block, bias_of
from passes.shards.slices import slices
from passes.shards.units import Refusal, sizes_of

Indices = tuple[int, ...]


@dataclass
class Share:
    """The values of one share of a block."""

    block: Block
    units: range
    suffix: str
    names: Names
    made: dict[Value, Value] = field(default_factory=dict)
    """Divided value → the part of this share."""
    extra: list[Node] = field(default_factory=list)
    """Nodes that make shapes for it."""

    def part(self, value: Value) -> Value:
        """The part of a value; of one that is not divided all of it."""
        division = self.block.divided.get(value)
        if division is None:
            return value
        if value not in self.made:
            self.made[value] = self._leaf(value)
        return self.made[value]

    def indices(self, value: Value) -> Indices:
        """The indices along its divided axis that belong to this share."""
        return tuple(i for i, unit in enumerate(self.block.divided[value].units) if unit in self.units)

    def shape(self, value: Value) -> tuple[int | str, ...]:
        """The sizes of a value's part."""
        sizes, axis = list(sizes_of(value)), self.block.divided[value].axis
        sizes[axis] = len(self.indices(value))
        return tuple(sizes)

    def _leaf(self, value: Value) -> Value:
        name, axis, mine = (
            self.names.fresh(value.name + self.suffix),
            self.block.divided[value].axis,
            self.indices(value),
        )
        match value:
            case Weight(source=source) if source is not None:
                return Weight(name, value.dtype, self.shape(value), source=slices(source, axis, mine))
            case State(kind=kind):
                return State(name, value.dtype, self.shape(value), kind=kind)
            case Constant(array=array) if array is not None:
                return Constant(name, value.dtype, self.shape(value), array=array.take(mine, axis))
        raise Refusal(f"{value.name} has no values to divide")

    def clone(self, node: Node) -> Node:
        """The node for this share."""
        inputs = [None if value is None else self.part(value) for value in node.inputs]
        if node.op == "Reshape":
            inputs[1] = self._target(node)
        elif node.op == "Split" and len(inputs) > 1 and self._splits(node):
            counts = [len(self.indices(out)) for out in node.outputs]
            inputs[1] = self.constant(node.name + ".sizes", counts)
        outputs = [
            Value(self.names.fresh(out.name + self.suffix), out.dtype, self.shape(out))
            for out in node.outputs
        ]
        self.made.update(zip(node.outputs, outputs, strict=True))
        return Node(node.op, inputs, outputs, dict(node.attributes), node.scope)

    def _splits(self, node: Node) -> bool:
        """Whether a `Split` is along the axis that is divided."""
        axis = node.attributes.get("axis", 0)
        assert isinstance(axis, int)
        return axis % len(sizes_of(node.operand(0))) == self.block.divided[node.outputs[0]].axis

    def _target(self, node: Node) -> Value:
        """The shape that a `Reshape` makes, with the size of this share."""
        target, output = node.operand(1), node.outputs[0]
        axis, size = self.block.divided[output].axis, len(self.indices(output))
        if isinstance(target, Constant) and target.array is not None:
            sizes = [int(one) for one in target.array]
            if sizes[axis] != -1:
                sizes[axis] = size
            return self.constant(target.name, sizes)
        joined = target.producer
        if joined is None or joined.op != "Concat" or len(joined.inputs) != len(sizes_of(output)):
            raise Refusal(f"{node.place}: its shape is made by no Concat of sizes")
        parts = list(joined.inputs)
        if not isinstance(parts[axis], Constant):
            raise Refusal(f"{node.place}: its shape is not known along the divided axis")
        parts[axis] = self.constant(target.name, [size])
        shape = Value(self.names.fresh(target.name + self.suffix), target.dtype, target.shape)
        self.extra.append(Node("Concat", parts, [shape], dict(joined.attributes), node.scope))
        return shape

    def constant(self, name: str, numbers: Sequence[int]) -> Constant:
        """A list of sizes."""
        array = np.array(numbers, np.int64)
        return Constant(self.names.fresh(name + self.suffix), "i64", (len(numbers),), array=array)


def divide(block: Block, shares: Sequence[int], names: Names) -> list[Node]:
    """The nodes that take the place of a block's; its result stays the same value.

    Args:
        block: of a graph.
        shares: units of each share; one without units has no nodes.
        names: of the graph.

    Raises:
        Refusal: a shape of the block cannot be written for a part of it.
    """
    nodes, partial, first = list[Node](), list[Value](), 0
    for rank, count in enumerate(shares):
        if count:
            share = Share(block, range(first, first + count), f".share{rank}", names)
            inside = [share.clone(node) for node in block.inside]
            end = partial_product(block.end, share)
            nodes += [*share.extra, *inside, *end]
            partial.append(end[-1].outputs[0])
        first += count
    return nodes + _sum(block.end, partial, names)


def partial_product(end: Node, share: Share) -> list[Node]:
    """The last product of a share, without the bias; the last node makes the part of the sum, in `SUM_TYPE`."""
    result = end.outputs[0]
    out = Value(share.names.fresh(result.name + share.suffix), result.dtype, result.shape)
    attributes: dict[str, Attribute] = dict(end.attributes)
    bias = bias_of(end)
    factors = [share.part(value) for value in end.operands if value not in bias]
    product = Node(end.op, [*factors], [out], attributes, end.scope)
    if result.dtype == SUM_TYPE:
        return [product]
    part = Value(share.names.fresh(f"{out.name}.{SUM_TYPE}"), SUM_TYPE, result.shape)
    return [product, _cast(out, part, end)]


def is_sum_alone(end: Node) -> bool:
    """Whether the result of a block is the sum of all parts and nothing more."""
    return end.outputs[0].dtype == SUM_TYPE and not bias_of(end)


def behind_sum(end: Node, total: Value, result: Value, names: Names) -> list[Node]:
    """The nodes that make the result of a block of the sum of all parts: its own type, and the bias."""
    bias = bias_of(end)
    if total.dtype == result.dtype:
        return [Node("Add", [total, *bias], [result], scope=end.scope)]
    if not bias:
        return [_cast(total, result, end)]
    narrow = Value(names.fresh(f"{total.name}.{result.dtype}"), result.dtype, result.shape)
    return [_cast(total, narrow, end), Node("Add", [narrow, *bias], [result], scope=end.scope)]


def _cast(value: Value, out: Value, end: Node) -> Node:
    assert out.dtype is not None
    return Node("Cast", [value], [out], {"to": BY_SHORT[out.dtype].onnx}, end.scope)


def _sum(end: Node, partial: Sequence[Value], names: Names) -> list[Node]:
    """The sum of all parts, from the first to the last, and what stands behind it."""
    result, is_alone = end.outputs[0], is_sum_alone(end)
    nodes, total = list[Node](), partial[0]
    for number, part in enumerate(partial[1:], 1):
        is_last = number == len(partial) - 1
        out = (
            result
            if is_last and is_alone
            else Value(names.fresh(f"{result.name}.sum{number}"), SUM_TYPE, result.shape)
        )
        nodes.append(Node("Add", [total, part], [out], scope=end.scope))
        total = out
    return nodes if is_alone else [*nodes, *behind_sum(end, total, result, names)]
