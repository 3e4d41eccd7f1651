"""Changes to a graph that every rewrite needs: replacing values, dropping dead nodes, making names."""

from __future__ import annotations

from collections.abc import Mapping

from partc.ir.effects import updates
from partc.ir.flow import needed
from partc.ir.graph import Graph, Value


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
    changed = any(value in replacement for node in graph.nodes for value in node.operands)
    outputs = graph.outputs
    graph.replace_uses(replacement)
    replaced, graph.outputs = graph.outputs, outputs
    for position, (output, new) in enumerate(zip(outputs, replaced, strict=True)):
        if new is output or new.producer is None or new in graph.outputs:
            continue
        new.name, output.name = output.name, new.name
        graph.outputs[position] = new
        changed = True
    return changed


def drop_dead(graph: Graph) -> bool:
    """Remove nodes whose results nobody reads; True if there were any; O(edges).

    A node that changes a state stays, read or not.
    """
    outputs = set(graph.outputs)
    ends = {node for node in graph.nodes if updates(node) or not outputs.isdisjoint(node.outputs)}
    live = ends | needed(ends, set(graph.nodes))
    changed = len(live) < len(graph.nodes)
    graph.nodes = [node for node in graph.nodes if node in live]
    return changed
