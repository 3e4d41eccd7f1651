"""Changes to a graph that every rewrite needs: replace values, drop what nobody reads, make names."""

from __future__ import annotations

from collections.abc import Mapping

from partc.ir.graph import Constant, Graph, Node, Value

KEPT_OPERATORS = frozenset({"partc.UpdateState"})
"""Nodes that change a state: they stay even where nobody reads what they return, and are never merged."""


def number(value: Value | None) -> float | None:
    """The number in a constant of one element."""
    if not isinstance(value, Constant) or value.array is None or value.array.size != 1:
        return None
    return float(value.array.reshape(-1)[0])


class Names:
    """Hands out names that no value of the graph has; O(1) each, the same ones for the same graph."""

    def __init__(self, graph: Graph) -> None:
        """Take the names of all values of `graph`."""
        self._taken = {value.name for value in graph.values()}

    def fresh(self, base: str) -> str:
        """`base`, or `base` with the first number behind it that makes it new."""
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


def substitute(graph: Graph, replacement: Mapping[Value, Value]) -> bool:
    """Let readers of a key read its value instead; chains are followed; True if there were any; O(edges).

    The outputs of the graph keep their names: an output becomes the replacement, under the output's name,
    where a node makes that and it is no output yet; else it stays as it is.
    """

    def final(value: Value) -> Value:
        while value in replacement:
            value = replacement[value]
        return value

    changed = False
    for node in graph.nodes:
        inputs = [None if value is None else final(value) for value in node.inputs]
        changed |= inputs != node.inputs
        node.inputs = inputs
    for position, output in enumerate(graph.outputs):
        new = final(output)
        if new is output or new.producer is None or new in graph.outputs:
            continue
        new.name, output.name = output.name, new.name
        graph.outputs[position] = new
        changed = True
    return changed


def drop_dead(graph: Graph) -> bool:
    """Remove nodes whose results nobody reads; True if there were any; O(nodes)."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op in KEPT_OPERATORS or not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(node.operands)
    changed = len(kept) != len(graph.nodes)
    graph.nodes = kept[::-1]
    return changed
