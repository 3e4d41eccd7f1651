"""Helpers of every search for a pattern: the operator before a value, its other readers, the change in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from partc.ir.graph import Attribute, Constant, Graph, Node, Value


def number(value: Value | None) -> float | None:
    """The number in a constant of one element."""
    if not isinstance(value, Constant) or value.array is None or value.array.size != 1:
        return None
    return float(value.array.reshape(-1)[0])


class Readers:
    """The readers of each value in one graph, as it was when this was made."""

    def __init__(self, graph: Graph) -> None:
        """Index the graph; O(edges)."""
        self._consumers = graph.consumers()
        self._outputs = set(graph.outputs)

    def only_inside(self, inner: Iterable[Node], anchor: Node) -> bool:
        """Whether only these nodes and `anchor` read what `inner` makes: `anchor` may replace them."""
        nodes = set(inner)
        allowed = {*nodes, anchor}
        return all(
            output not in self._outputs and allowed.issuperset(self._consumers.get(output, ()))
            for node in nodes
            for output in node.outputs
        )


def made_by(value: Value | None, *ops: str) -> Node | None:
    """The node that makes `value`, if its operator is one of `ops`."""
    producer = None if value is None else value.producer
    return producer if producer is not None and producer.op in ops else None


def either_order(node: Node) -> Iterator[tuple[Value, Value]]:
    """Both orders of the two operands of a commutative operator."""
    left, right = node.inputs
    assert left is not None
    assert right is not None
    yield left, right
    yield right, left


def become(node: Node, op: str, inputs: list[Value | None], **attributes: Attribute) -> None:
    """Make `node` compute what it does now with another operator; its outputs stay."""
    node.op, node.inputs, node.attributes = op, inputs, dict(attributes)
