"""Equal layers of a graph, so that each distinct one is compiled once.

A block is a run of nodes that come from one numbered layer of the source model (`model.layers.3…`). Two blocks are
equal if their nodes are, up to the names of values and to which weights and states they read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from partc.ir.graph import Attribute, Constant, Graph, Node, State, Value, Weight


@dataclass(frozen=True)
class Block:
    """Consecutive nodes, and what goes in and out of them."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    """Everything made elsewhere, constants excepted, in the order of first use."""
    outputs: tuple[Value, ...]
    """The values that other blocks read, or the graph returns."""
    signature: Hashable
    """Equal for equal blocks: their values take each other's places in order."""


def blocks_of(graph: Graph) -> list[Block]:
    """The blocks of a static graph, in order; together they hold every node. O(nodes + operands)."""
    readers = graph.consumers()
    runs = [tuple(nodes) for _, nodes in groupby(graph.nodes, key=lambda node: layer_of(node.scope))]
    return [_block(nodes, graph, readers) for nodes in runs]


def layer_of(scope: str) -> str:
    """The scope up to its first number: `model.layers.3.mlp` → `model.layers.3`; empty where there is none."""
    parts = scope.split(".")
    place = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return "" if place is None else ".".join(parts[: place + 1])


def _block(nodes: tuple[Node, ...], graph: Graph, readers: dict[Value, list[Node]]) -> Block:
    inside = set(nodes)
    made = [value for node in nodes for value in node.outputs]
    own = set(made)
    read = dict.fromkeys(v for node in nodes for v in node.operands)
    inputs = tuple(v for v in read if v not in own and not isinstance(v, Constant))
    given = set(graph.outputs)
    outputs = tuple(v for v in made if v in given or any(n not in inside for n in readers.get(v, ())))
    return Block(nodes, inputs, outputs, _signature(nodes, inputs, outputs))


def _signature(nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value]) -> Hashable:
    place = {value: number for number, value in enumerate(inputs)}
    lines: list[Hashable] = [tuple(_kind(value) for value in inputs)]
    for node in nodes:
        operands = tuple(_operand(value, place) for value in node.inputs)
        lines.append((node.op, _attributes(node), operands, tuple(_kind(value) for value in node.outputs)))
        place.update({value: len(place) + number for number, value in enumerate(node.outputs)})
    return (*lines, tuple(place[value] for value in outputs))


def _operand(value: Value | None, place: dict[Value, int]) -> Hashable:
    if isinstance(value, Constant) and value.array is not None:
        return _plain(value.array)
    return None if value is None else place[value]


def _attributes(node: Node) -> Hashable:
    return tuple(sorted((name, _plain(value)) for name, value in node.attributes.items()))


def _plain(value: Attribute) -> str:
    """Text that is equal for equal values; that of NumPy leaves numbers out of the middle of large arrays."""
    return (
        f"{value.dtype.str} {value.shape} {value.tobytes().hex()}"
        if isinstance(value, np.ndarray)
        else repr(value)
    )


def _kind(value: Value) -> Hashable:
    what = "weight" if isinstance(value, Weight) else "state" if isinstance(value, State) else "value"
    return (what, value.dtype, value.shape)
