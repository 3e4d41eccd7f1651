"""Operators that only rearrange or rescale a weight move into its reference: done once, at emission."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from partc.format.dims import Shape
from partc.ir.edit import Names, substitute
from partc.ir.graph import Constant, Graph, Node, Value, Weight
from partc.ir.match import number
from partc.ir.sizes import Inferred
from partc.ir.types import BY_ONNX, BY_SHORT
from partc.ir.weights import Argument, Join, Step, WeightExpr

MAX_COPY_BYTES = 64 * 1024
"""Bytes up to which a changed copy of a weight that is also used as it is costs next to nothing."""

FLOATS = frozenset({"f64", "f32", "f16", "bf16"})


def fold_weights(graph: Graph, inferred: Inferred) -> bool:
    """Move nodes on weights into the references of the weights; True if any were; O(nodes).

    Views (transpose, reshape, slice, …) and casts always move: the checkpoint's tensor is read once more at
    most. Arithmetic and joins move only where the parts have no other reader, or are small.
    """
    readers = graph.consumers()
    names = Names(graph)
    replacement: dict[Value, Value] = {}
    for node in graph.nodes:
        fold = FOLDS.get(node.op)
        if fold is None or not any(isinstance(value, Weight) for value in node.operands):
            continue
        if node.op in _COPIES and not _is_cheap(node, readers):
            continue
        sources = fold(node, inferred)
        if sources is None or any(output in graph.outputs for output in node.outputs):
            continue
        for output, source in zip(node.outputs, sources, strict=True):
            replacement[output] = _weight(output, source, node, readers, names, inferred)
    return bool(replacement) and substitute(graph, replacement)


def _weight(
    output: Value,
    source: WeightExpr,
    node: Node,
    readers: Mapping[Value, list[Node]],
    names: Names,
    inferred: Inferred,
) -> Weight:
    """The folded weight; it takes over the name of one that nobody reads any more."""
    whole = next(value for value in node.operands if isinstance(value, Weight))
    inherits = len(readers[whole]) == 1 and len(node.outputs) == 1
    name = whole.name if inherits else names.fresh(f"{whole.name}.{node.op.lower()}")
    return Weight(name, inferred.facts[output].dtype, inferred.shape(output), source=source)


def append(source: WeightExpr, op: str, *arguments: Argument) -> WeightExpr:
    """`source |> op(arguments)`, with neighbouring transposes and reshapes made one."""
    if isinstance(source, Step) and source.op == op == "transpose":
        order = [source.arguments[int(axis)] for axis in arguments]
        return source.source if order == sorted(order, key=int) else Step(op, tuple(order), source.source)
    if isinstance(source, Step) and source.op == op == "reshape":
        return Step(op, arguments, source.source)
    return Step(op, arguments, source)


def _is_cheap(node: Node, readers: Mapping[Value, list[Node]]) -> bool:
    weights = [value for value in node.operands if isinstance(value, Weight)]
    return all(len(readers[w]) == 1 or (w.shape is not None and _size(w) <= MAX_COPY_BYTES) for w in weights)


def _size(weight: Weight) -> int:
    return math.prod(int(dim) for dim in weight.shape or ()) * BY_SHORT[weight.dtype or "f32"].bytes


def _source(value: Value | None) -> WeightExpr | None:
    return value.source if isinstance(value, Weight) else None


def _fixed(shape: Shape | None) -> tuple[int, ...] | None:
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    return tuple(int(dim) for dim in shape)


def _transpose(node: Node, inferred: Inferred) -> list[WeightExpr] | None:
    source, shape = _source(node.inputs[0]), _fixed(inferred.shape(node.outputs[0]))
    if source is None or shape is None:
        return None
    axes = node.attributes.get("perm", tuple(reversed(range(len(shape)))))
    assert isinstance(axes, tuple)
    return [append(source, "transpose", *(int(axis) for axis in axes))]


def _reshape(node: Node, inferred: Inferred) -> list[WeightExpr] | None:
    source, shape = _source(node.inputs[0]), _fixed(inferred.shape(node.outputs[0]))
    return None if source is None or shape is None else [append(source, "reshape", *shape)]


def _cast(node: Node, inferred: Inferred) -> list[WeightExpr] | None:
    source, kind = _source(node.inputs[0]), BY_ONNX.get(int(node.attributes["to"]))  # type: ignore[arg-type]
    if source is None or kind is None or kind.short not in FLOATS:
        return None
    return [append(source, "cast", kind.short)]


def _slice(node: Node, inferred: Inferred) -> list[WeightExpr] | None:
    source, shape = _source(node.inputs[0]), _fixed(node.inputs[0].shape if node.inputs[0] else None)
    bounds = [None if v is None else inferred.constant(v) for v in node.inputs[1:]]
    if source is None or shape is None or any(b is None for b in bounds) or len(bounds) not in (3, 4):
        return None
    starts, ends, axes, *steps = ([int(i) for i in b.reshape(-1)] for b in bounds if b is not None)
    if steps and any(step != 1 for step in steps[0]):
        return None
    for start, end, axis in zip(starts, ends, axes, strict=True):
        first, last, _ = slice(start, end).indices(shape[axis])
        source = append(source, "slice", axis % len(shape), first, max(first, last))
    return [source]


def _split(node: Node, inferred: Inferred) -> list[WeightExpr] | None:
    source, shapes = _source(node.inputs[0]), [_fixed(inferred.shape(output)) for output in node.outputs]
    if source is None or any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    axis = int(node.attributes.get("axis", 0)) % len(known[0])  # type: ignore[arg-type]
    bounds = np.cumsum([0, *(shape[axis] for shape in known)]).tolist()
    return [append(source, "slice", axis, start, stop) for start, stop in pairwise(bounds)]


def _gather(node: Node, inferred: Inferred) -> list[WeightExpr] | None:
    """One row of a weight: a slice and a reshape."""
    source, shape = _source(node.inputs[0]), _fixed(node.inputs[0].shape if node.inputs[0] else None)
    index = None if node.inputs[1] is None else inferred.constant(node.inputs[1])
    if source is None or shape is None or index is None or index.shape != ():
        return None
    axis = int(node.attributes.get("axis", 0)) % len(shape)  # type: ignore[arg-type]
    row = int(index) % shape[axis]
    return [append(append(source, "slice", axis, row, row + 1), "reshape", *shape[:axis], *shape[axis + 1 :])]


def _concat(node: Node, inferred: Inferred) -> list[WeightExpr] | None:
    sources, shape = [_source(value) for value in node.inputs], inferred.shape(node.outputs[0])
    if shape is None or any(source is None for source in sources):
        return None
    axis = int(node.attributes["axis"]) % len(shape)  # type: ignore[arg-type]
    return [Join("concat", axis, tuple(source for source in sources if source is not None))]


def _arithmetic(node: Node, inferred: Inferred) -> list[WeightExpr] | None:
    """A number added to or multiplied with a weight; a quotient only by powers of two, which is exact."""
    weight = next(value for value in node.operands if isinstance(value, Weight))
    addend = number(next((value for value in node.operands if isinstance(value, Constant)), None))
    swapped = node.inputs[0] is not weight
    if weight.source is None or addend is None or not math.isfinite(addend) or weight.dtype not in FLOATS:
        return None
    if inferred.shape(node.outputs[0]) != weight.shape or (swapped and node.op in ("Sub", "Div")):
        return None
    if node.op == "Div" and abs(math.frexp(addend)[0]) != 0.5:
        return None
    change = {"Add": ("add", addend), "Sub": ("add", -addend), "Mul": ("mul", addend)}
    op, value = change[node.op] if node.op in change else ("mul", 1.0 / addend)
    return [append(weight.source, op, value)]


FOLDS: dict[str, Callable[[Node, Inferred], list[WeightExpr] | None]] = {
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Cast": _cast,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Concat": _concat,
    "Add": _arithmetic,
    "Sub": _arithmetic,
    "Mul": _arithmetic,
    "Div": _arithmetic,
}
"""Operator → the references of its outputs, None where it cannot be moved."""

_COPIES = frozenset({"Concat", "Add", "Sub", "Mul", "Div"})
