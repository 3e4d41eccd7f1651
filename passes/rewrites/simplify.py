"""Nodes that change nothing, or do in two steps what takes one: one small function an operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from partc.format.dims import Shape
from partc.ir.edit import substitute
from partc.ir.graph import Constant, Graph, Node, Value
from partc.ir.match import number
from partc.ir.sizes import Inferred
from partc.ir.types import BY_SHORT
from passes.rewrites.fold_weights import FLOATS

RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Operators that keep the elements and their order."""

_MANTISSA = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
_EXPONENT = {"bf16": 8, "f16": 5, "f32": 8, "f64": 11}


def simplify(graph: Graph, inferred: Inferred) -> bool:
    """Apply the table `RULES` to every node once, in order; True if anything changed; O(nodes)."""
    replacement: dict[Value, Value] = {}
    changed = False
    for node in graph.nodes:
        node.inputs = [None if v is None else replacement.get(v, v) for v in node.inputs]
        rule = RULES.get(node.op)
        before = (node.op, list(node.inputs), dict(node.attributes))
        same = rule(node, inferred) if rule else None
        changed |= before != (node.op, node.inputs, node.attributes)
        if same is not None and same is not node.outputs[0]:
            replacement[node.outputs[0]] = replacement.get(same, same)
    ranges = _ranges(graph, inferred)
    return substitute(graph, {**replacement, **ranges}) or changed


def _keeps_shape(node: Node, inferred: Inferred) -> bool:
    """Whether the first output has the size and type of the first operand, whatever the symbols are."""
    first = node.inputs[0]
    before = inferred.facts.get(first) if first is not None else None
    after = inferred.facts.get(node.outputs[0])
    return (
        before is not None
        and after is not None
        and (before.dtype, before.shapes) == (after.dtype, after.shapes)
    )


def _identity(node: Node, inferred: Inferred) -> Value | None:
    return node.inputs[0]


def _dropout(node: Node, inferred: Inferred) -> Value | None:
    """`Dropout` is the identity unless its third operand says that the model is being trained.

    Old exporters write its mask too, which only training reads; a node whose mask is read stays.
    """
    training = node.inputs[2] if len(node.inputs) > 2 else None
    off = training is None or (isinstance(training, Constant) and not np.any(training.array))
    return node.inputs[0] if off else None


def _convolution(node: Node, inferred: Inferred) -> None:
    """A bias of zeros is none: exporters write it where a model has none, and in three dimensions with an axis more."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if isinstance(bias, Constant) and not np.any(bias.array):
        node.inputs = node.inputs[:2]


def _cast(node: Node, inferred: Inferred) -> Value | None:
    """A cast to the type that there is, or back from a wider one."""
    if _keeps_shape(node, inferred):
        return node.inputs[0]
    inner = node.inputs[0].producer if node.inputs[0] else None
    if inner is None or inner.op != "Cast" or inner.inputs[0] is None:
        return None
    origin, middle = inferred.facts.get(inner.inputs[0]), inferred.facts.get(inner.outputs[0])
    after = inferred.facts.get(node.outputs[0])
    if origin is None or middle is None or after is None or origin.dtype != after.dtype:
        return None
    return inner.inputs[0] if _widens(origin.dtype, middle.dtype) else None


def _widens(narrow: str, wide: str) -> bool:
    if not {narrow, wide} <= FLOATS:
        return False
    return _MANTISSA[narrow] <= _MANTISSA[wide] and _EXPONENT[narrow] <= _EXPONENT[wide]


def _cast_like(node: Node, inferred: Inferred) -> Value | None:
    fact = inferred.facts.get(node.outputs[0])
    if fact is not None:
        node.op, node.inputs = "Cast", node.inputs[:1]
        node.attributes = {"to": BY_SHORT[fact.dtype].onnx}
    return None


def _transpose(node: Node, inferred: Inferred) -> Value | None:
    """Two transposes become one, and one that moves nothing none."""
    axes, inner = _axes(node, inferred), node.inputs[0].producer if node.inputs[0] else None
    if axes is None:
        return None
    inner_axes = _axes(inner, inferred) if inner is not None and inner.op == "Transpose" else None
    if inner is not None and inner_axes is not None:
        axes = tuple(inner_axes[axis] for axis in axes)
        node.inputs, node.attributes = list(inner.inputs), {"perm": axes}
    return node.inputs[0] if axes == tuple(range(len(axes))) else None


def _axes(node: Node, inferred: Inferred) -> tuple[int, ...] | None:
    shape = inferred.shape(node.outputs[0])
    if shape is None:
        return None
    perm = node.attributes.get("perm", tuple(reversed(range(len(shape)))))
    return tuple(int(axis) for axis in perm) if isinstance(perm, tuple) else None


def _view(node: Node, inferred: Inferred) -> Value | None:
    """A chain of views that ends where it began is nothing; `Reshape` of a view reads what the view reads."""
    after = inferred.facts.get(node.outputs[0])
    origin = node.inputs[0]
    while after is not None and origin is not None:
        before = inferred.facts.get(origin)
        if before is not None and before.shapes == after.shapes:
            return origin
        if origin.producer is None or origin.producer.op not in RESHAPES:
            break
        origin = origin.producer.inputs[0]
    _skip_view(node, inferred)
    return None


def _skip_view(node: Node, inferred: Inferred) -> None:
    inner = node.inputs[0].producer if node.inputs[0] else None
    target = inferred.constant(node.inputs[1]) if node.op == "Reshape" and node.inputs[1] else None
    if inner is None or inner.op not in RESHAPES or inner.inputs[0] is None or target is None:
        return
    before, after = inferred.shape(inner.inputs[0]), inferred.shape(node.outputs[0])
    copied = [axis for axis, size in enumerate(target.tolist()) if size == 0]
    if before is None or after is None or not all(_same(before, after, axis) for axis in copied):
        return
    node.inputs[0] = inner.inputs[0]


def _same(before: Shape, after: Shape, axis: int) -> bool:
    return axis < len(before) and before[axis] == after[axis]


def _same_shape(node: Node, inferred: Inferred) -> Value | None:
    return node.inputs[0] if _keeps_shape(node, inferred) else None


def _slice(node: Node, inferred: Inferred) -> Value | None:
    """A slice as large as its operand is all of it, if it does not run backwards."""
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    forward = steps is None or (isinstance(steps, Constant) and bool(np.all(np.asarray(steps.array) > 0)))
    return node.inputs[0] if forward and _keeps_shape(node, inferred) else None


def _resize(node: Node, inferred: Inferred) -> Value | None:
    """A Resize to the sizes it was given, if there are any: scales may round to them. Not where a region is cut out."""
    crops = node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    has_sizes = len(node.inputs) > 3 and node.inputs[3] is not None
    return node.inputs[0] if has_sizes and not crops and _keeps_shape(node, inferred) else None


def _concat(node: Node, inferred: Inferred) -> Value | None:
    """Without parts that are empty, and of one part nothing."""
    kept = [value for value in node.inputs if not _is_empty(value, node.attributes.get("axis"), inferred)]
    if kept:
        node.inputs = kept
    return _single(node, inferred)


def _is_empty(value: Value | None, axis: object, inferred: Inferred) -> bool:
    shape = None if value is None else inferred.shape(value)
    return shape is not None and isinstance(axis, int) and shape[axis] == 0


def _scatter(node: Node, inferred: Inferred) -> Value | None:
    """A scatter that writes nothing."""
    updates = None if node.inputs[2] is None else inferred.shape(node.inputs[2])
    return node.inputs[0] if updates is not None and 0 in updates else None


def _single(node: Node, inferred: Inferred) -> Value | None:
    """`Concat` of one, `Split` into one."""
    return node.inputs[0] if len(node.outputs) == 1 and _keeps_shape(node, inferred) else None


def _neutral(element: float, commutes: bool) -> Callable[[Node, Inferred], Value | None]:
    """`x + 0`, `x * 1` and the like, where the constant does not widen `x`."""

    def rule(node: Node, inferred: Inferred) -> Value | None:
        for kept, other in ((0, 1), (1, 0)) if commutes else ((0, 1),):
            value = node.inputs[kept]
            before = inferred.facts.get(value) if value is not None else None
            after = inferred.facts.get(node.outputs[0])
            if (
                before is None
                or after is None
                or (before.dtype, before.shapes) != (after.dtype, after.shapes)
            ):
                continue
            if _is_all(node.inputs[other], element):
                return value
        return None

    return rule


def _is_all(value: Value | None, wanted: float) -> bool:
    return isinstance(value, Constant) and value.array is not None and bool(np.all(value.array == wanted))


def _where(node: Node, inferred: Inferred) -> Value | None:
    """A choice whose condition is known."""
    condition, after = node.inputs[0], inferred.facts.get(node.outputs[0])
    for index, truth in ((1, 1.0), (2, 0.0)):
        value = node.inputs[index]
        before = inferred.facts.get(value) if value is not None else None
        if (
            before is not None
            and after is not None
            and before.shapes == after.shapes
            and _is_all(condition, truth)
        ):
            return value
    return None


def _ranges(graph: Graph, inferred: Inferred) -> dict[Value, Value]:
    """`Range(0, sequence, 1)` is the step input `index`, which every device has."""
    index = next((value for value in graph.inputs if value.name == "index" and value.is_step), None)
    if index is None or index.shape is None or len(index.shape) != 1:
        return {}
    return {node.outputs[0]: index for node in graph.nodes if _is_index(node, inferred, index)}


def _is_index(node: Node, inferred: Inferred, index: Value) -> bool:
    if node.op != "Range" or any(value is None for value in node.inputs):
        return False
    start, limit, delta = (value for value in node.operands)
    fact = inferred.facts.get(node.outputs[0])
    typed = fact is not None and fact.dtype == index.dtype
    return (
        typed
        and number(start) == 0
        and number(delta) == 1
        and inferred.contents(limit) == list(index.shape or ())
    )


RULES: dict[str, Callable[[Node, Inferred], Value | None]] = {
    "Identity": _identity,
    "Conv": _convolution,
    "Dropout": _dropout,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Transpose": _transpose,
    "Reshape": _view,
    "Squeeze": _view,
    "Unsqueeze": _view,
    "Flatten": _view,
    "Expand": _same_shape,
    "Tile": _same_shape,
    "Slice": _slice,
    "Resize": _resize,
    "Concat": _concat,
    "Split": _single,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Add": _neutral(0, commutes=True),
    "Sub": _neutral(0, commutes=False),
    "Mul": _neutral(1, commutes=True),
    "Div": _neutral(1, commutes=False),
    "Pow": _neutral(1, commutes=False),
    "And": _neutral(1, commutes=True),
    "Or": _neutral(0, commutes=True),
    "Where": _where,
}
"""Operator → the value that its first output equals, or None; a rule may also change the node in place."""
