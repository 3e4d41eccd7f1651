"""Operators that take an axis, or several, to one number each, and what is made of them: softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from partc.ir.graph import Node
from targets.tvm.builder import Emitter, Expr, FunctionBuilder
from targets.tvm.operators.reading import (
    axis_of,
    decimal,
    dtype_of,
    has,
    input_shape,
    integer,
    listed,
    number,
    shape_of,
)

op = relax.op


def _reduced(function: Any, before: Callable[[Expr], Expr] | None = None, after: Any = None) -> Emitter:
    """`after(function(before(x)))` over the axes, which are an operand in newer opsets; none: all of them."""

    def emit(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        x = operands[0] if before is None else b.emit(before(operands[0]))
        rank = len(input_shape(node))
        axes = [axis % rank for axis in listed(node, 1, "axes") or ()]
        if axes or not integer(node, "noop_with_empty_axes", 0):
            x = b.emit(function(x, axis=axes or None, keepdims=bool(integer(node, "keepdims", 1))))
        return x if after is None else after(x)

    return emit


def _extreme(function: Any) -> Emitter:
    """The largest or the smallest; of truth values, which TVM does not order, through whole numbers."""
    plain = _reduced(function)

    def emit(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        if dtype_of(node) != "bool":
            return plain(b, node, operands)
        whole = b.emit(op.astype(operands[0], "int8"))
        return op.astype(b.emit(plain(b, node, [whole, *operands[1:]])), "bool")

    return emit


def _mean(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """A reduction of whole numbers to a number of the same type; TVM would make it one of 64 bits."""
    return op.astype(b.emit(_reduced(op.mean)(b, node, operands)), dtype_of(node))


def _log_sum_exp(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """The largest m + log Σ exp(x - m), so that nothing overflows."""
    rank = len(input_shape(node))
    given = listed(node, 1, "axes")
    if not given and integer(node, "noop_with_empty_axes", 0):
        return operands[0]
    axes = [axis % rank for axis in given or range(rank)]
    most = b.emit(op.max(operands[0], axis=axes, keepdims=True))
    total = b.emit(op.sum(b.emit(op.exp(operands[0] - most)), axis=axes, keepdims=True))
    return op.reshape(b.emit(op.log(total) + most), shape_of(node))


def _softmax(function: Any) -> Emitter:
    """Before opset 13 everything from the axis on is one axis."""

    def emit(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        if b.opset >= 13:
            return function(operands[0], axis=axis_of(node, -1))
        rows = math.prod(input_shape(node)[: axis_of(node, 1)])
        flat = b.emit(op.reshape(operands[0], (rows, math.prod(input_shape(node)) // rows)))
        return op.reshape(b.emit(function(flat, axis=-1)), shape_of(node))

    return emit


def _centred(
    b: FunctionBuilder, x: Expr, axes: list[int], epsilon: float, dtype: str
) -> tuple[Expr, Expr, Expr]:
    """(x - mean) · s, the mean, and s = 1 / √(variance + ε); the variance of differences, which keeps digits."""
    mean = b.emit(op.mean(x, axis=axes, keepdims=True))
    apart = b.emit(op.subtract(x, mean))
    variance = b.emit(op.mean(b.emit(op.multiply(apart, apart)), axis=axes, keepdims=True))
    scale = b.emit(op.rsqrt(b.emit(variance + number(epsilon, dtype))))
    return b.emit(op.multiply(apart, scale)), mean, scale


def _layer_normalization(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    axes = list(range(axis_of(node, -1), len(input_shape(node))))
    result, mean, scale = _centred(b, operands[0], axes, decimal(node, "epsilon", 1e-5), dtype_of(node))
    result = b.emit(op.multiply(result, operands[1]))
    return [op.add(result, operands[2]) if has(node, 2) else result, mean, scale][: len(node.outputs)]


def _rms_normalization(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    x, dtype = operands[0], dtype_of(node)
    axes = list(range(axis_of(node, -1), len(input_shape(node))))
    if input_shape(node, 1) == tuple(input_shape(node)[axis] for axis in axes):
        return op.nn.rms_norm(x, operands[1], axes=axes, epsilon=decimal(node, "epsilon", 1e-5))
    square = b.emit(op.mean(b.emit(op.multiply(x, x)), axis=axes, keepdims=True))
    scale = b.emit(op.rsqrt(b.emit(square + number(decimal(node, "epsilon", 1e-5), dtype))))
    return op.multiply(b.emit(op.multiply(x, scale)), operands[1])


def _by_channel(b: FunctionBuilder, node: Node, operand: Expr, channels: int) -> Expr:
    """[channels] beside x [batch, channels, …]."""
    return b.emit(op.reshape(operand, (channels, *(1 for _ in input_shape(node)[2:]))))


def _instance_normalization(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    axes = list(range(2, len(input_shape(node))))
    result, _, _ = _centred(b, operands[0], axes, decimal(node, "epsilon", 1e-5), dtype_of(node))
    weight, bias = (_by_channel(b, node, x, input_shape(node)[1]) for x in operands[1:3])
    return op.add(b.emit(op.multiply(result, weight)), bias)


def _group_normalization(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Weight and bias are per channel since opset 21, per group before."""
    batch, channels, *rest = input_shape(node)
    groups = integer(node, "num_groups", 1)
    apart = b.emit(op.reshape(operands[0], (batch, groups, channels // groups, *rest)))
    axes = list(range(2, 3 + len(rest)))
    result, _, _ = _centred(b, apart, axes, decimal(node, "epsilon", 1e-5), dtype_of(node))
    result = b.emit(op.reshape(result, (batch, channels, *rest)))
    repeats = channels // input_shape(node, 1)[0]
    scaled = [b.emit(op.repeat(x, repeats, axis=0)) if repeats > 1 else x for x in operands[1:3]]
    weight, bias = (_by_channel(b, node, x, channels) for x in scaled)
    return op.add(b.emit(op.multiply(result, weight)), bias)


def _batch_normalization(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """With the statistics of training: (x - mean) · weight / √(variance + ε) + bias."""
    x, *others = operands[:5]
    weight, bias, mean, variance = (_by_channel(b, node, other, input_shape(node)[1]) for other in others)
    scale = b.emit(op.rsqrt(b.emit(variance + number(decimal(node, "epsilon", 1e-5), dtype_of(node)))))
    factor = b.emit(op.multiply(weight, scale))
    return op.add(b.emit(op.multiply(b.emit(op.subtract(x, mean)), factor)), bias)


def _lp_normalization(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Zeros stay zeros."""
    x, axis, dtype = operands[0], axis_of(node, -1), dtype_of(node)
    if integer(node, "p", 2) == 1:
        norm = b.emit(op.sum(b.emit(op.abs(x)), axis=axis, keepdims=True))
    else:
        square = b.emit(op.sum(b.emit(op.multiply(x, x)), axis=axis, keepdims=True))
        norm = b.emit(op.sqrt(square))
    empty = b.emit(op.equal(norm, number(0, dtype)))
    return op.divide(x, b.emit(op.where(empty, number(1, dtype), norm)))


REDUCTIONS: Mapping[str, Emitter] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _softmax(op.nn.log_softmax),
    "LpNormalization": _lp_normalization,
    "RMSNormalization": _rms_normalization,
    "ReduceL1": _reduced(op.sum, op.abs),
    "ReduceL2": _reduced(op.sum, lambda x: op.multiply(x, x), op.sqrt),
    "ReduceLogSum": _reduced(op.sum, None, op.log),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(op.max),
    "ReduceMean": _mean,
    "ReduceMin": _extreme(op.min),
    "ReduceProd": _reduced(op.prod),
    "ReduceSum": _reduced(op.sum),
    "ReduceSumSquare": _reduced(op.sum, lambda x: op.multiply(x, x)),
    "Softmax": _softmax(op.nn.softmax),
}
"""Operator → what writes it."""
