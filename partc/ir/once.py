"""What is computed once a request: all that depends on nothing which changes from step to step.

A request brings inputs of two kinds. Those with an axis of tokens (`sequence`) are other ones in every step; a source
that is read before (a text, a picture, a sound) is the same in all of them, and so is what is computed of it and of
weights alone: an encoder, the keys and values of cross-attentions. The first step computes these, later ones read them.
"""

from __future__ import annotations

from partc.format.dims import symbols
from partc.ir.graph import Graph, Input, Node, State, Value

CHANGING = frozenset({"sequence"})
"""Symbols whose values are others in every step."""


def is_of_request(value: Value) -> bool:
    """Whether a value is an input that a request brings once."""
    return isinstance(value, Input) and not value.is_step and not CHANGING & {*(value.shape or ())}


def once_nodes(graph: Graph) -> set[Node]:
    """The nodes that depend on inputs of a request, on weights and on constants alone; O(V + E).

    Nodes that depend on weights, constants and sizes only belong to whoever reads them. A graph without states has one
    step a request, so there are none.
    """
    if not graph.states():
        return set()
    once: dict[Node, bool] = {}
    """Node → whether it depends on a request's inputs; those that depend on a step are left out."""
    for node in graph.nodes:
        behind = [_behind(value, once) for value in node.operands]
        if _is_same_in_all_steps(node):
            once[node] = False
        elif None not in behind:
            once[node] = any(behind)
    return {node for node, depends in once.items() if depends}


def _is_same_in_all_steps(node: Node) -> bool:
    """Whether a node asks for sizes that no step changes: all but those of its tokens."""
    if node.op != "Shape":
        return False
    shape = node.operand(0).shape
    if shape is None:
        return False
    start, end = (node.attributes.get(name, default) for name, default in (("start", 0), ("end", len(shape))))
    assert isinstance(start, int) and isinstance(end, int)
    return not any(CHANGING & symbols(dim) for dim in shape[start:end])


def _behind(value: Value, once: dict[Node, bool]) -> bool | None:
    """Whether it depends on a request's inputs; None where it depends on a step."""
    if value.producer is not None:
        return once.get(value.producer)
    if isinstance(value, State) or (isinstance(value, Input) and not is_of_request(value)):
        return None
    return is_of_request(value)


def once_values(graph: Graph) -> frozenset[Value]:
    """The values that only the first step of a request needs to make or to send."""
    made = {value for node in once_nodes(graph) for value in node.outputs}
    return frozenset(made.union(value for value in graph.inputs if graph.states() and is_of_request(value)))


def common_nodes(graph: Graph) -> set[Node]:
    """Those of `once_nodes` that more than one node of other steps depends on: the encoder, not a layer's keys.

    All of them, where one node alone reads what follows from them. O(V · readers).
    """
    once = once_nodes(graph)
    readers: dict[Node, set[Node]] = {node: set() for node in once}
    users = graph.consumers()
    for node in reversed(graph.nodes):
        if node in once:
            for value in node.outputs:
                for user in users.get(value, ()):
                    readers[node] |= readers[user] if user in once else {user}
    most = max(map(len, readers.values()), default=0)
    return {node for node, found in readers.items() if len(found) > 1 or most <= 1}
