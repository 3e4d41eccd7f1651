"""Arithmetic on sizes, rebuilt in its shortest form: constants where possible, else from the step inputs.

A size that the exporter reads off an activation (`Shape(%hidden)`) would have to be sent from device to
device. Every device has the step inputs, so `batch` is the shape of `%position` and `sequence` that of
`%index`; sizes made of these stand at the beginning of the graph, each once.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np

from partc.format.dims import Dim, Shape, symbols
from partc.ir.edit import Names
from partc.ir.graph import STEP_INPUTS, Constant, Graph, Node, Value
from partc.ir.sizes import Inferred, attributes_key
from partc.ir.types import BY_SHORT
from partc.ir.weights import Array
from passes.rewrites.fold_constants import constant

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.FloorDiv: "Div",
}
_PROLOGUE = frozenset({"Shape", "Concat", "Squeeze", "Cast", *_ARITHMETIC.values()})


def rebuild_sizes(graph: Graph, inferred: Inferred) -> bool:
    """Rebuild operands that are sizes, of nodes that make something else; True if any changed; O(edges)."""
    builder = _Builder(graph)
    changed = False
    for node in graph.nodes:
        if all(inferred.contents(output) is not None for output in node.outputs):
            continue
        for position, value in enumerate(node.inputs):
            new = _rebuilt(node, position, value, inferred, builder)
            if new is not None and new is not value:
                node.inputs[position] = new
                changed = True
    graph.nodes[builder.start : builder.start] = builder.nodes
    return changed


def _rebuilt(
    node: Node, position: int, value: Value | None, inferred: Inferred, builder: _Builder
) -> Value | None:
    contents = None if value is None else inferred.contents(value)
    fact = inferred.facts.get(value) if value is not None else None
    if value is None or value.producer is None or contents is None or fact is None or len(fact.shapes[0]) > 1:
        return None
    shape = inferred.shape(node.outputs[0])
    if position != 1 or node.op not in _TARGETS or shape is None or 0 in shape:
        return builder.build(contents, fact.dtype, is_scalar=fact.shapes[0] == ())
    target = _TARGETS[node.op](shape, inferred.shape(node.inputs[0]) if node.inputs[0] else None)
    new = builder.build(target, fact.dtype, is_scalar=False)
    if new is not None:
        node.attributes.pop("allowzero", None)
    return new


def reshape_target(target: Sequence[Dim], shape: Shape | None) -> list[Dim]:
    """The target of a Reshape with 0 for sizes that are copied and -1 for one that can be computed.

    `[batch, sequence, 4, 16]` is `[0, 0, 4, 16]` for an operand `[batch, sequence, 64]`.
    """
    known = shape or ()
    dims: list[Dim] = [
        0 if isinstance(dim, str) and axis < len(known) and known[axis] == dim else dim
        for axis, dim in enumerate(target)
    ]
    unknown = [axis for axis, dim in enumerate(dims) if isinstance(dim, str)]
    if unknown:
        # the most complicated size is the one worth leaving to the operator
        dims[max(unknown, key=lambda axis: (not str(dims[axis]).isidentifier(), -axis))] = -1
    return dims


def expand_target(target: Sequence[Dim], shape: Shape | None) -> list[Dim]:
    """The target of an Expand with 1 for sizes that the operand has already."""
    known = shape or ()
    behind = len(target) - len(known)
    return [
        1 if isinstance(dim, str) and axis >= behind and known[axis - behind] == dim else dim
        for axis, dim in enumerate(target)
    ]


_TARGETS = {"Reshape": reshape_target, "Expand": expand_target}


class _Builder:
    """Makes nodes that compute sizes from step inputs, at the beginning of the graph, each once."""

    def __init__(self, graph: Graph) -> None:
        self._names = Names(graph)
        self._sources = _sources(graph)
        self._made: dict[object, Value] = {}
        self.nodes: list[Node] = []
        self.start = self._remember_prologue(graph)

    def _remember_prologue(self, graph: Graph) -> int:
        """Sizes that an earlier sweep has put at the beginning of the graph are found, not made again."""
        own = set(self._sources.values())
        for count, node in enumerate(graph.nodes):
            if node.op not in _PROLOGUE or any(
                v not in own and not isinstance(v, Constant) for v in node.operands
            ):
                return count
            self._made[_key(node.op, node.inputs, node)] = node.outputs[0]
            own.update(node.outputs)
        return len(graph.nodes)

    def build(self, contents: Sequence[Dim], dtype: str, *, is_scalar: bool) -> Value | None:
        """A value with these elements; None where a symbol is not to be had from a step input."""
        if not all(symbols(dim) <= self._sources.keys() for dim in contents):
            return None
        if all(isinstance(dim, int) for dim in contents):
            array = np.array(contents, BY_SHORT[dtype].numpy)
            return self._constant(array.reshape(()) if is_scalar else array)
        vector = self._vector(contents)
        if is_scalar:
            vector = self._node(
                "Squeeze", [vector, self._constant(np.zeros(1, np.int64))], (), str(contents[0])
            )
        return vector if dtype == "i64" else self._cast(vector, dtype)

    def _cast(self, value: Value, dtype: str) -> Value:
        return self._node("Cast", [value], value.shape or (), value.name, dtype, to=BY_SHORT[dtype].onnx)

    def _vector(self, contents: Sequence[Dim]) -> Value:
        pieces: list[Value] = []
        run: list[int] = []
        for dim in (*contents, ""):
            if isinstance(dim, int):
                run.append(dim)
                continue
            if run:
                pieces.append(self._constant(np.array(run, np.int64)))
                run = []
            if dim:
                pieces.append(self._size(ast.parse(dim, mode="eval").body))
        if len(pieces) == 1:
            return pieces[0]
        return self._node("Concat", pieces, (len(contents),), "shape", axis=0)

    def _size(self, expr: ast.expr) -> Value:
        """The size as i64[1]."""
        match expr:
            case ast.Name(id=name):
                return self._node("Shape", [self._sources[name]], (1,), name)
            case ast.Constant(value=int(number)):
                return self._constant(np.array([number], np.int64))
            case ast.UnaryOp(operand=operand):
                return self._node(
                    "Mul", [self._size(operand), self._constant(np.array([-1], np.int64))], (1,), "size"
                )
            case ast.BinOp(left=left, op=op, right=right):
                return self._node(_ARITHMETIC[type(op)], [self._size(left), self._size(right)], (1,), "size")
            case _:
                raise AssertionError(ast.dump(expr))

    def _constant(self, array: Array) -> Value:
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = constant(self._names.fresh("const"), array)
        return self._made[key]

    def _node(
        self, op: str, inputs: list[Value], shape: Shape, base: str, dtype: str = "i64", **attributes: int
    ) -> Value:
        node = Node(op, [*inputs], [Value("", dtype, shape)], {**attributes})
        made = self._made.get(_key(op, node.inputs, node))
        if made is not None:
            return made
        plain = base if base.isidentifier() else "size"
        node.outputs[0].name = self._names.fresh(
            f"size.{plain}" if op != "Squeeze" else f"size.{plain}.scalar"
        )
        self._made[_key(op, node.inputs, node)] = node.outputs[0]
        self.nodes.append(node)
        return node.outputs[0]


def _key(op: str, inputs: Sequence[Value | None], node: Node) -> object:
    """Equal for nodes that make the same; constants count by their contents."""
    operands = [
        (str(v.array.dtype), v.array.shape, v.array.tobytes())
        if isinstance(v, Constant) and v.array is not None
        else id(v)
        for v in inputs
    ]
    return (op, *operands, attributes_key(node.attributes))


def _sources(graph: Graph) -> dict[str, Value]:
    """Symbol → the step input whose shape it is."""
    found: dict[str, Value] = {}
    steps = sorted((v for v in graph.inputs if v.is_step), key=lambda v: STEP_INPUTS.index(v.name))
    for value in steps:
        match value.shape:
            case (str(symbol),) if symbol.isidentifier():
                found.setdefault(symbol, value)
    return found
