"""Runs a whole graph with numpy, so that tests can say: the rewritten graph computes what the other did."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np

from partc.format.dims import Shape, evaluate
from partc.ir.evaluate import evaluate_node
from partc.ir.graph import Constant, Graph, Node, State, Value, Weight
from partc.ir.operators import OPERATORS
from partc.ir.types import BY_SHORT
from partc.ir.weights import Array, Leaf, Step, leaves, materialize


class Checkpoint:
    """Random tensors for the leaves of a graph's weights, the same ones for the same key."""

    def __init__(self, graph: Graph) -> None:
        self.shapes: dict[Leaf, tuple[Shape | None, str | None]] = {}
        for weight in graph.weights():
            source, shape = weight.source, weight.shape
            while isinstance(source, Step) and (source.op in ("add", "mul") or source.arguments == (1, 0)):
                shape = tuple(reversed(shape)) if source.op == "transpose" and shape else shape
                source = source.source
            if isinstance(source, Leaf):
                self.shapes[source] = shape, weight.dtype
        missing = {
            leaf for w in graph.weights() if w.source for leaf in leaves(w.source)
        } - self.shapes.keys()
        assert not missing, f"no weight reads {missing} as it is, so their shapes are not known"

    def read(self, leaf: Leaf) -> Array:
        shape, dtype = self.shapes[leaf]
        assert shape is not None
        numbers = np.random.default_rng(zlib.crc32(leaf.key.encode())).normal(size=[int(d) for d in shape])
        return (numbers * 0.3).astype(BY_SHORT[dtype or "f32"].numpy)


def run(
    graph: Graph, feeds: Mapping[str, Array], checkpoint: Checkpoint, states: dict[str, Array] | None = None
) -> list[Array]:
    """The outputs of `graph`; states start as zeros of their sizes for `feeds`, or as they are in `states`.

    `states` has what they are after the step.
    """
    bindings = _bindings(graph, feeds)
    values: dict[Value, Array] = {value: feeds[value.name] for value in graph.inputs}
    for leaf in graph.leaves():
        known = (states or {}).get(leaf.name)
        values[leaf] = _leaf(leaf, checkpoint, bindings) if known is None else known
    for node in graph.nodes:
        operands = [None if v is None else values[v] for v in node.inputs]
        found = _own(node, operands) or evaluate_node(node, operands, graph.opset)
        assert found is not None, f"{node.op} cannot be evaluated: {node.name}"
        values.update(zip(node.outputs, found, strict=True))
        _check_sizes(node, values, bindings)
        if states is not None and node.op in OPERATORS:
            states.update((state.name, values[new]) for state, new in OPERATORS[node.op].updates(node))
    return [values[output] for output in graph.outputs]


def _bindings(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, int]:
    pairs = [(d, n) for v in graph.inputs for d, n in zip(v.shape or (), feeds[v.name].shape, strict=True)]
    return {dim: size for dim, size in pairs if isinstance(dim, str) and dim.isidentifier()}


def _leaf(leaf: Value, checkpoint: Checkpoint, bindings: Mapping[str, int]) -> Array:
    match leaf:
        case Constant(array=array) if array is not None:
            return array
        case Weight(source=source) if source is not None:
            return materialize(source, checkpoint.read)
        case State(dtype=dtype, shape=shape) if dtype and shape:
            return np.zeros([evaluate(d, bindings) for d in shape], BY_SHORT[dtype].numpy)
    raise AssertionError(leaf)


def _check_sizes(node: Node, values: Mapping[Value, Array], bindings: Mapping[str, int]) -> None:
    for output in node.outputs:
        if output.shape is not None:
            expected = tuple(evaluate(d, bindings) for d in output.shape)
            assert expected == values[output].shape, (
                f"{node.op} {node.name}: {output.shape} but {values[output].shape}"
            )
        if output.dtype is not None:
            assert BY_SHORT[output.dtype].numpy == values[output].dtype, f"{node.op} {node.name}"


def _own(node: Node, operands: list[Array | None]) -> list[Array] | None:
    """The operators of the `partc` domain, and those that the reference lacks or limits to small sizes."""
    given = [o for o in operands if o is not None]
    if node.op in OPERATORS:
        return OPERATORS[node.op].evaluate(node, operands)
    if node.op == "Gelu":
        return [_gelu(given[0], str(node.attributes.get("approximate", "none")))]
    if node.op == "GatherElements":
        axis = node.attributes.get("axis", 0)
        assert isinstance(axis, int)
        return [np.take_along_axis(given[0], given[1].astype(np.int64), axis)]
    return None


def _gelu(x: Array, approximate: str) -> Array:
    wide = x.astype(np.float64)
    if approximate == "tanh":
        gate = np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    else:
        gate = np.vectorize(math.erf, otypes=[np.float64])(wide / math.sqrt(2))
    result: Array = (0.5 * wide * (1 + gate)).astype(x.dtype)
    return result
