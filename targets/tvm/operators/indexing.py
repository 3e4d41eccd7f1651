"""Operators that read or write at places which are computed.

ONNX counts a negative place from the end. A place that is too large, which only padding makes, reads or writes the last
row instead of foreign memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from partc.ir.graph import Constant, Node
from targets.tvm.builder import Emitter, Expr, FunctionBuilder
from targets.tvm.operators.reading import (
    array,
    axis_of,
    constant,
    dtype_of,
    input_shape,
    integer,
    number,
    shape_of,
    text,
    unsupported,
)

op = relax.op


def counted_from_front(b: FunctionBuilder, node: Node, place: int, expression: Expr, size: int) -> Expr:
    """Indices of an axis of `size`, none negative and none too large."""
    value = node.inputs[place]
    if isinstance(value, Constant) and value.array is not None:
        found = value.array.astype(np.int64)
        return array(np.clip(np.where(found < 0, found + size, found), 0, size - 1))
    dtype = dtype_of(node, place)
    turned = b.emit(op.where(expression < number(0, dtype), expression + number(size, dtype), expression))
    return b.emit(op.minimum(op.maximum(turned, number(0, dtype)), number(size - 1, dtype)))


def _gather(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Rows by number."""
    axis = axis_of(node, 0)
    places = counted_from_front(b, node, 1, operands[1], input_shape(node)[axis])
    flat = b.emit(op.reshape(places, (-1,)))
    return op.reshape(b.emit(op.take(operands[0], flat, axis=axis, mode="clip")), shape_of(node))


def _gather_elements(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    axis = axis_of(node, 0)
    places = counted_from_front(b, node, 1, operands[1], input_shape(node)[axis])
    return op.gather_elements(operands[0], places, axis=axis)


def _gather_nd(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    first = integer(node, "batch_dims", 0)
    places = _tuples(b, node, operands[1], input_shape(node)[first:])
    return op.gather_nd(operands[0], places, batch_dims=first)


def _tuples(b: FunctionBuilder, node: Node, expression: Expr, sizes: tuple[int, ...]) -> Expr:
    """Indices [..., n] of several axes, each counted from the front of its own."""
    many = input_shape(node, 1)[-1]
    dtype = dtype_of(node, 1)
    limits = relax.const(np.array(sizes[:many]), dtype)
    zero = number(0, dtype)
    turned = b.emit(op.where(expression < zero, expression + limits, expression))
    return b.emit(op.minimum(op.maximum(turned, zero), limits - number(1, dtype)))


def _scatter_elements(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    axis = axis_of(node, 0)
    places = counted_from_front(b, node, 1, operands[1], input_shape(node)[axis])
    how = _reduction(node)
    return op.scatter_elements(operands[0], places, operands[2], axis=axis, reduction=how)


def _scatter_nd(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    places = _tuples(b, node, operands[1], input_shape(node))
    return op.scatter_nd(operands[0], places, operands[2], reduction=_reduction(node))


def _reduction(node: Node) -> str:
    return {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}[
        text(node, "reduction", "none")
    ]


def _one_hot(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Indices beside the last axis of a comparison with 0, 1, …; indices out of range give rows of the off value."""
    rank = len(shape_of(node))
    axis = integer(node, "axis", -1) % rank
    depth = shape_of(node)[axis]
    apart = [*input_shape(node)[:axis], 1, *input_shape(node)[axis:]]
    steps = [depth if at == axis else 1 for at in range(rank)]
    dtype = dtype_of(node)
    places = b.emit(op.reshape(operands[0], apart))
    turned = b.emit(op.where(places < number(0, dtype), places + number(depth, dtype), places))
    counted = relax.const(np.arange(depth).reshape(steps), dtype)
    off, on = (b.emit(op.take(operands[2], relax.const(at, "int64"), axis=0)) for at in (0, 1))
    return op.where(b.emit(op.equal(turned, counted)), on, off)


def _arg(best: str) -> Emitter:
    """The place of the largest or the smallest; of equal ones the first, or the last."""

    def emit(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        axis, x = axis_of(node, 0), operands[0]
        last = integer(node, "select_last_index", 0)
        if last:
            x = b.emit(op.flip(x, axis))
        found = getattr(op, f"arg{best}")(x, axis=axis, keepdims=bool(integer(node, "keepdims", 1)))
        if last:
            return number(input_shape(node)[axis] - 1, "int64") - found
        return found

    return emit


def _compress(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    if "axis" not in node.attributes:
        raise unsupported(node, "without an axis")
    kept = np.flatnonzero(constant(node, 1))
    return op.take(operands[0], array(kept), axis=axis_of(node, 0), mode="clip")


INDEXING: Mapping[str, Emitter] = {
    "ArgMax": _arg("max"),
    "ArgMin": _arg("min"),
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
"""Operator → what writes it."""
