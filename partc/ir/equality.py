"""Equality of graphs, node for node, for passes that say whether they changed something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from partc.ir.graph import Constant, Graph, Input, Node, Part, State, Value, Weight
from partc.ir.sizes import attributes_key


def same_parts(left: Sequence[Part], right: Sequence[Part]) -> bool:
    """Whether devices, targets, programs and graphs are the same."""
    return len(left) == len(right) and all(map(_same_part, left, right))


def _same_part(left: Part, right: Part) -> bool:
    about = [(p.device, p.target, p.programs, p.without, len(p.graphs)) for p in (left, right)]
    return about[0] == about[1] and all(map(same_graph, left.graphs, right.graphs))


def same_graph(left: Graph, right: Graph) -> bool:
    """Whether two graphs print the same text; O(V + E + bytes of constants), and O(1) for one and the same."""
    return left is right or all(a == b for a, b in zip_longest(_facts(left), _facts(right)))


def _facts(graph: Graph) -> Iterator[object]:
    """Everything of a graph that its text shows."""
    yield graph.name, graph.opset
    yield from map(_value, graph.inputs)
    yield from map(_value, graph.leaves())
    yield from map(_node, graph.nodes)
    yield [value.name for value in graph.outputs]


def _node(node: Node) -> object:
    operands = [None if value is None else value.name for value in node.inputs]
    attributes = attributes_key(node.attributes)
    return node.op, operands, [_value(value) for value in node.outputs], attributes, node.scope


def _value(value: Value) -> object:
    about = (type(value), value.name, value.dtype, value.shape)
    match value:
        case Weight(source=source):
            return *about, source
        case Constant(array=array) if array is not None:
            return *about, array.tobytes()
        case Input() | State() | Value():
            return about
