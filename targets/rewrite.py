"""Tools of lowerings: a copy of a graph to work on, and a writer of new nodes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from partc.format.dims import Shape
from partc.ir.edit import Names
from partc.ir.graph import Attribute, Constant, Graph, Node, State, Value
from partc.ir.types import BY_NUMPY
from partc.ir.weights import Array

_T = TypeVar("_T")


class Rewriter:
    """Writes the nodes of a graph anew, in order; values that are asked for twice are made once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.users = graph.consumers()
        """Readers of every value before the rewrite."""
        self.nodes: list[Node] = []
        self._names = Names(graph)
        self._made: dict[Hashable, object] = {}

    def emit(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: list[Value],
        attributes: Mapping[str, Attribute] | None = None,
        scope: str = "",
    ) -> Node:
        """Append a node that makes these values."""
        node = Node(op, list(inputs), outputs, dict(attributes or {}), scope)
        self.nodes.append(node)
        return node

    def op(self, op: str, inputs: Sequence[Value | None], dtype: str | None, shape: Shape | None, base: str,
           **attributes: Attribute) -> Value:  # fmt: skip
        """Append a node with one new output, named after `base`."""
        output = self.value(base, dtype, shape)
        self.emit(op, inputs, [output], attributes)
        return output

    def value(self, base: str, dtype: str | None, shape: Shape | None) -> Value:
        """A new value whose name nothing else has."""
        return Value(self.name(base), dtype, shape)

    def name(self, base: str) -> str:
        """A new name."""
        return self._names.fresh(base)

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """The result of the first call of `make` with this key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[return-value]

    def constant(self, array: Array, base: str = "constant") -> Constant:
        """A constant with these values; equal ones are one."""
        key = ("constant", array.dtype.str, array.shape, array.tobytes())
        dtype = BY_NUMPY[array.dtype].short
        return self.once(key, lambda: Constant(self.name(base), dtype, tuple(array.shape), array=array))

    def integers(self, *numbers: int) -> Constant:
        """A constant i64 vector."""
        return self.constant(np.array(numbers, np.int64), "integers")

    def integer(self, number: int) -> Constant:
        """A constant i64 scalar."""
        return self.constant(np.array(number, np.int64), "integer")

    def name_state_output(self, value: Value, state: State) -> None:
        """Call the value that holds the new contents of state `s` `s.out`."""
        value.name = self.name(f"{state.name}.out")


Lowering = Callable[[Node, Rewriter], bool]
"""Writes what a node becomes; False: the node stays as it is."""


def rewrite(graph: Graph, lowerings: Mapping[str, Lowering]) -> None:
    """Let the lowering of its operator write each node anew, in place; O(nodes)."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        lower = lowerings.get(node.op)
        if lower is None or not lower(node, rewriter):
            rewriter.nodes.append(node)
    graph.nodes = rewriter.nodes


def clone(graph: Graph) -> Graph:
    """A copy that shares nothing with `graph` but the values of constants."""
    twins: dict[Value, Value] = {}
    for value in graph.values():
        twins[value] = copy.copy(value)
    nodes = []
    for node in graph.nodes:
        operands = [None if value is None else twins[value] for value in node.inputs]
        results = [twins[value] for value in node.outputs]
        nodes.append(Node(node.op, operands, results, dict(node.attributes), node.scope))
    inputs = [twins[value] for value in graph.inputs]
    outputs = [twins.setdefault(value, copy.copy(value)) for value in graph.outputs]
    return Graph(graph.name, inputs, outputs, nodes, graph.opset)  # type: ignore[arg-type]
