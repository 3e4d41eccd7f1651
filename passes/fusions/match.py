"""Helpers of fusions besides `partc.ir.match`: numbers, axes, sums of squares."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from partc.ir.graph import Constant, Node, Value, Weight
from partc.ir.match import either_order, made_by, number


def is_number(value: Value | None, wanted: float, tolerance: float = 1e-6) -> bool:
    """Whether `value` is a constant of this number, up to the rounding of its element type."""
    found = number(value)
    return found is not None and abs(found - wanted) <= tolerance * max(1.0, abs(wanted))


def integers(value: Value | None) -> tuple[int, ...] | None:
    """The elements of a constant of integers, flat."""
    if not isinstance(value, Constant) or value.array is None or value.array.dtype.kind != "i":
        return None
    return tuple(int(item) for item in value.array.reshape(-1))


def with_number(node: Node | None) -> tuple[Value, float] | None:
    """(x, c) of a commutative node whose other operand is the number c."""
    if node is None:
        return None
    return next(((x, c) for x, other in either_order(node) if (c := number(other)) is not None), None)


def rank(value: Value) -> int:
    """Number of dimensions of a value whose size was inferred."""
    assert value.shape is not None
    return len(value.shape)


def is_last_axis(axes: tuple[int, ...] | None, value: Value) -> bool:
    """Whether `axes` is the last axis of `value` alone."""
    return axes is not None and len(axes) == 1 and axes[0] in (-1, rank(value) - 1)


def reduce_axes(node: Node) -> tuple[int, ...] | None:
    """The axes of a reduction, which are an operand since opset 18 and an attribute before."""
    if len(node.inputs) > 1:
        return integers(node.inputs[1])
    axes = node.attributes.get("axes")
    return tuple(int(axis) for axis in axes) if isinstance(axes, tuple) else None


def is_scale(value: Value, size: object) -> bool:
    """Whether `value` is a vector of the model's own, `[size]`."""
    return isinstance(value, Weight | Constant) and value.shape == (size,)


def mean_of_square(value: Value | None) -> tuple[Value, list[Node]] | None:
    """(x, nodes) of mean(x², last axis, keepdims)."""
    mean = made_by(value, "ReduceMean")
    square = made_by(mean.inputs[0], "Pow", "Mul") if mean else None
    if mean is None or square is None or square.inputs[0] is None:
        return None
    squares = is_number(square.inputs[1], 2.0) if square.op == "Pow" else square.inputs[0] is square.inputs[1]
    keeps = mean.attributes.get("keepdims", 1) == 1
    if not squares or not keeps or not is_last_axis(reduce_axes(mean), square.outputs[0]):
        return None
    return square.inputs[0], [mean, square]


def root_of(value: Value | None) -> tuple[Value, float, list[Node]] | None:
    """(v, epsilon, nodes) of sqrt(v + epsilon)."""
    root = made_by(value, "Sqrt")
    shift = made_by(root.inputs[0], "Add") if root else None
    found = with_number(shift)
    if root is None or shift is None or found is None:
        return None
    return found[0], found[1], [root, shift]


def divided(node: Node) -> Iterator[tuple[Value, Value, list[Node]]]:
    """(x, d, nodes) of x / d, also where it is written x * reciprocal(d) or x * (1 / d)."""
    left, right = node.inputs[0], node.inputs[1]
    if node.op == "Div" and left is not None and right is not None:
        yield left, right, []
    if node.op != "Mul":
        return
    for x, inverse in either_order(node):
        reciprocal = made_by(inverse, "Reciprocal", "Div")
        if reciprocal is None:
            continue
        denominator = reciprocal.inputs[-1]
        if denominator is not None and (
            reciprocal.op == "Reciprocal" or is_number(reciprocal.inputs[0], 1.0)
        ):
            yield x, denominator, [reciprocal]


def slice_of_last(value: Value | None) -> tuple[Value, int, int, Node] | None:
    """(x, start, stop, node) of x[..., start:stop], as a Slice or as one output of a Split."""
    node = made_by(value, "Slice", "Split")
    source = node.inputs[0] if node else None
    if node is None or value is None or source is None or source.shape is None:
        return None
    size = source.shape[-1]
    if not isinstance(size, int):
        return None
    bounds = (
        _slice_bounds(node, size, rank(source))
        if node.op == "Slice"
        else _split_bounds(node, value, rank(source))
    )
    return None if bounds is None else (source, *bounds, node)


def _slice_bounds(node: Node, size: int, dimensions: int) -> tuple[int, int] | None:
    operands = [integers(value) for value in node.inputs[1:]]
    if len(operands) not in (3, 4) or any(o is None or len(o) != 1 for o in operands):
        return None
    start, stop, axis, *step = (o[0] for o in operands if o is not None)
    if axis not in (-1, dimensions - 1) or step not in ([], [1]):
        return None
    first, last, _ = slice(start, stop).indices(size)
    return first, last


def _split_bounds(node: Node, value: Value, dimensions: int) -> tuple[int, int] | None:
    sizes = [output.shape[-1] for output in node.outputs if output.shape]
    if node.attributes.get("axis", 0) not in (-1, dimensions - 1) or not all(
        isinstance(s, int) for s in sizes
    ):
        return None
    bounds = [0]
    for size in sizes:
        bounds.append(bounds[-1] + int(size))
    return dict(zip(node.outputs, pairwise(bounds), strict=True))[value]
