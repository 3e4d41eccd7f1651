"""Values that are certainly equal become one: same operator on same operands, same weight, same constant."""

from __future__ import annotations

from partc.ir.edit import substitute
from partc.ir.effects import is_random, updates
from partc.ir.graph import Constant, Graph, Node, Value, Weight
from partc.ir.sizes import attributes_key


def merge_duplicates(graph: Graph) -> bool:
    """Keep the first of equal weights, constants and nodes; True if any were merged; O(nodes)."""
    changed = _merge_leaves(graph)
    firsts: dict[object, Node] = {}
    replacement: dict[Value, Value] = {}
    for node in graph.nodes:
        node.inputs = [None if v is None else replacement.get(v, v) for v in node.inputs]
        if is_random(node) or updates(node):
            continue
        key = (node.op, *map(id, node.inputs), len(node.outputs), attributes_key(node.attributes))
        first = firsts.setdefault(key, node)
        if first is not node:
            replacement.update(zip(node.outputs, first.outputs, strict=True))
    substitute(graph, replacement)
    replaced = {value.producer for value in replacement if value not in graph.outputs}
    before = len(graph.nodes)
    graph.nodes = [
        n for n in graph.nodes if n not in replaced or not set(graph.outputs).isdisjoint(n.outputs)
    ]
    return changed or len(graph.nodes) != before


def _merge_leaves(graph: Graph) -> bool:
    firsts: dict[object, Value] = {}
    replacement: dict[Value, Value] = {}
    for value in graph.leaves():
        match value:
            case Constant(array=array) if array is not None:
                key: object = (str(array.dtype), array.shape, array.tobytes())
            case Weight(source=source):
                key = (source, value.dtype, value.shape)
            case _:
                continue
        first = firsts.setdefault(key, value)
        if first is not value:
            replacement[value] = first
    return bool(replacement) and substitute(graph, replacement)
