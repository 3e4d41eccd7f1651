"""Nodes whose results are known at compile time become constants."""

from __future__ import annotations

import math

from partc.ir.edit import substitute
from partc.ir.evaluate import evaluate_node
from partc.ir.graph import Constant, Graph, Node, Value
from partc.ir.sizes import Inferred
from partc.ir.types import BY_NUMPY, BY_SHORT
from partc.ir.weights import Array


def fold_constants(graph: Graph, inferred: Inferred, max_bytes: int) -> bool:
    """Replace what depends on constants and fixed sizes alone; True if anything was; O(nodes).

    A result of more than `max_bytes` stays a node, unless its operands are no smaller. Weights are never
    read.
    """
    replacement: dict[Value, Value] = {}
    for node in graph.nodes:
        node.inputs = [None if v is None else replacement.get(v, v) for v in node.inputs]
        if not set(graph.outputs).isdisjoint(node.outputs):
            continue
        arrays = _known(node, inferred) or _computed(node, inferred, graph.opset, max_bytes)
        for output, array in zip(node.outputs, arrays or (), strict=False):
            replacement[output] = constant(output.name, array)
    return bool(replacement) and substitute(graph, replacement)


def constant(name: str, array: Array) -> Constant:
    """A constant of the IR with these elements."""
    return Constant(name, BY_NUMPY[array.dtype].short, array.shape, array=array)


def _known(node: Node, inferred: Inferred) -> list[Array] | None:
    arrays = [inferred.constant(output) for output in node.outputs]
    return None if any(a is None for a in arrays) else [a for a in arrays if a is not None]


def _computed(node: Node, inferred: Inferred, opset: int, max_bytes: int) -> list[Array] | None:
    if not all(isinstance(value, Constant) for value in node.operands):
        return None
    given = sum(v.array.nbytes for v in node.operands if isinstance(v, Constant) and v.array is not None)
    if any(
        (size := _bytes(output, inferred)) is None or size > max(max_bytes, given) for output in node.outputs
    ):
        return None
    arrays = [v.array if isinstance(v, Constant) else None for v in node.inputs]
    found = evaluate_node(node, arrays, opset)
    fits = found is not None and all(array.dtype in BY_NUMPY for array in found)
    return found if fits else None


def _bytes(value: Value, inferred: Inferred) -> int | None:
    shape, fact = inferred.shape(value), inferred.facts.get(value)
    if shape is None or fact is None or not all(isinstance(dim, int) for dim in shape):
        return None
    return math.prod(int(dim) for dim in shape) * BY_SHORT[fact.dtype].bytes
