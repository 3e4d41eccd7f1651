"""Effects of nodes: the states that they change, and chance. Nodes without effects may be merged and dropped."""

from __future__ import annotations

from collections.abc import Mapping

from partc.ir.graph import Graph, Node, State, Value
from partc.ir.operators import OPERATORS
from partc.ir.operators.operator import StateWrite

RANDOM_OPERATORS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Two nodes of these are never equal, and their results are never known."""

STATE_WRITES: Mapping[str, tuple[StateWrite, ...]] = {
    **{operator.name: operator.writes for operator in OPERATORS.values() if operator.writes},
    "TensorScatter": (StateWrite(operand=0, result=0),),
    "com.microsoft.LinearAttention": (StateWrite(operand=3, result=1),),
    "com.microsoft.GroupQueryAttention": (StateWrite(operand=3, result=1), StateWrite(operand=4, result=2)),
}
"""Operator → what it changes where that operand is a state; those of other domains are what targets lower ours to."""


def updates(node: Node) -> dict[State, Value]:
    """The states that a node changes, each with the value that is its new contents."""
    found: dict[State, Value] = {}
    for write in STATE_WRITES.get(node.op, ()):
        state = node.inputs[write.operand] if write.operand < len(node.inputs) else None
        if isinstance(state, State):
            found[state] = node.outputs[write.result]
    return found


def updated_states(graph: Graph) -> dict[State, Value]:
    """The states that a graph changes, in the order of their first use, each with its new contents; O(nodes)."""
    made = {state: value for node in graph.nodes for state, value in updates(node).items()}
    return {state: made[state] for state in graph.states() if state in made}


def is_random(node: Node) -> bool:
    """Whether a node makes something else each time."""
    return node.op in RANDOM_OPERATORS


def is_buffer(value: Value) -> bool:
    """Whether a value is a whole pre-allocated state, before or after a node has changed it."""
    if isinstance(value, State):
        return True
    return value.producer is not None and value in updates(value.producer).values()
