"""Operators that work element by element, operands broadcast as in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from tvm import relax

from partc.ir.graph import Node
from targets.tvm.builder import Emitter, Expr, FunctionBuilder
from targets.tvm.operators.reading import (
    decimal,
    dtype_of,
    has,
    integer,
    number,
    result_dtype,
    shape_of,
    text,
    unsupported,
)

op = relax.op


def same(function: Any) -> Emitter:
    """An operator that Relax has with the same operands."""
    return lambda b, node, operands: function(*operands)


def formula(write: Callable[..., Expr]) -> Emitter:
    """A function of one operand, written with numbers of its type: `write(b, node, x, n)`, `n` makes a number."""

    def emit(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        dtype = dtype_of(node)
        return write(b, node, operands[0], lambda value: number(value, dtype))

    return emit


def folded(function: Any) -> Emitter:
    """An operator of any number of operands as one of two, from left to right."""

    def emit(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        return reduce(lambda left, right: b.emit(function(left, right)), operands)

    return emit


def _mean(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    total = folded(op.add)(b, node, operands)
    return op.multiply(total, number(1 / len(operands), dtype_of(node)))


def _cast(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """From float to bool is "not zero", as numpy has it; TVM's own cast would cut 0.5 to 0 first."""
    to = result_dtype(node)
    if to == "bool" and dtype_of(node) != "bool":
        return op.not_equal(operands[0], number(0, dtype_of(node)))
    return operands[0] if to == dtype_of(node) else op.astype(operands[0], to)


def _equal(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """LLVM compares no single bits."""
    if dtype_of(node) == "bool":
        return op.logical_not(b.emit(op.logical_xor(*operands)))
    return op.equal(*operands)


def _mod(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`fmod=1` has the sign of the dividend, else the result has the sign of the divisor.

    In float64, where the quotient of two float32 loses no digit before the point.
    """
    left, right = operands
    if not integer(node, "fmod", 0):
        return op.floor_mod(left, right)
    if dtype_of(node).startswith("float"):
        left, right = (b.emit(op.astype(x, "float64")) for x in operands)
        quotient = b.emit(op.trunc(b.emit(op.divide(left, right))))
        rest = b.emit(op.subtract(left, b.emit(op.multiply(quotient, right))))
        return op.astype(rest, dtype_of(node))
    return op.mod(left, right)


def _pow(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """The exponent may have a type of its own; whole numbers go through float64; squares are products."""
    base, exponent = operands
    known = getattr(node.inputs[1], "array", None)
    if known is not None and known.size == 1 and float(known.reshape(-1)[0]) == 2.0:
        squared = b.emit(op.multiply(base, base))
        return op.broadcast_to(squared, shape_of(node))
    dtype = dtype_of(node)
    inner = dtype if dtype.startswith(("float", "bfloat")) else "float64"
    base, exponent = (b.emit(op.astype(x, inner)) for x in (base, exponent))
    powered = b.emit(op.power(base, exponent))
    return powered if inner == dtype else op.astype(powered, dtype)


def _clip(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Bounds are operands since opset 11, attributes before."""
    result, dtype = operands[0], dtype_of(node)
    for place, name, function in ((1, "min", op.maximum), (2, "max", op.minimum)):
        if has(node, place):
            result = b.emit(function(result, operands[place]))
        elif name in node.attributes:
            result = b.emit(function(result, number(decimal(node, name, 0.0), dtype)))
    return result


def _gelu(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    if text(node, "approximate", "none") == "tanh":
        cube = b.emit(x * x * x)
        inner = b.emit((x + cube * n(0.044715)) * n(math.sqrt(2 / math.pi)))
        return x * n(0.5) * (n(1) + b.emit(op.tanh(inner)))
    return x * n(0.5) * (n(1) + b.emit(op.erf(b.emit(x * n(math.sqrt(0.5))))))


def _swish(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    alpha = decimal(node, "alpha", 1.0)
    scaled = x if alpha == 1.0 else b.emit(x * n(alpha))
    return op.multiply(x, b.emit(op.sigmoid(scaled)))


def _elu(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    below = b.emit((op.exp(x) - n(1)) * n(decimal(node, "alpha", 1.0)))
    return op.where(op.greater(x, n(0)), x, below)


def _selu(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    below = b.emit((op.exp(x) - n(1)) * n(decimal(node, "alpha", 1.67326319217681884765625)))
    return op.where(op.greater(x, n(0)), x, below) * n(decimal(node, "gamma", 1.05070102214813232421875))


def _leaky_relu(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    return op.where(op.less(x, n(0)), x * n(decimal(node, "alpha", 0.01)), x)


def _hard_sigmoid(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    line = x * n(decimal(node, "alpha", 0.2)) + n(decimal(node, "beta", 0.5))
    return op.minimum(op.maximum(line, n(0)), n(1))


def _hard_swish(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    return x * op.minimum(op.maximum(x * n(1 / 6) + n(0.5), n(0)), n(1))


def _softplus(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    """log(1 + eˣ) = max(x, 0) + log(1 + e^-|x|), which does not overflow."""
    return op.maximum(x, n(0)) + op.log(n(1) + op.exp(op.negative(op.abs(x))))


def _mish(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    return x * op.tanh(b.emit(_softplus(b, node, x, n)))


def _round(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    """Halves go to the even neighbour: the nearest whole number, less 1 where a half was rounded up to an odd one.

    Whole numbers are left alone: for large ones x + 1/2 is not exact.
    """
    up = b.emit(op.floor(b.emit(x + n(0.5))))
    half = b.emit(op.equal(b.emit(up - x), n(0.5)))
    odd = b.emit(op.not_equal(b.emit(op.floor(up * n(0.5)) * n(2)), up))
    nearest = b.emit(op.where(b.emit(op.logical_and(half, odd)), up - n(1), up))
    return op.where(b.emit(op.equal(op.floor(x), x)), x, nearest)


def _is_inf(b: FunctionBuilder, node: Node, x: Expr, n: Callable[[float], Expr]) -> Expr:
    up, down = (integer(node, f"detect_{side}", 1) for side in ("positive", "negative"))
    if up and down:
        return op.isinf(x)
    if not up and not down:
        raise unsupported(node, "that detects nothing")
    return op.equal(x, n(math.inf if up else -math.inf))


def _shift(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    return (op.left_shift if text(node, "direction", "") == "LEFT" else op.right_shift)(*operands)


def _prelu(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    x, slope = operands
    return op.where(op.less(x, number(0, dtype_of(node))), x * slope, x)


ELEMENTWISE: Mapping[str, Emitter] = {
    "Abs": same(op.abs),
    "Acos": same(op.acos),
    "Add": same(op.add),
    "And": same(op.logical_and),
    "Asin": same(op.asin),
    "Atan": same(op.atan),
    "BitShift": _shift,
    "BitwiseAnd": same(op.bitwise_and),
    "BitwiseNot": same(op.bitwise_not),
    "BitwiseOr": same(op.bitwise_or),
    "BitwiseXor": same(op.bitwise_xor),
    "Cast": _cast,
    "CastLike": _cast,
    "Ceil": same(op.ceil),
    "Clip": _clip,
    "Cos": same(op.cos),
    "Cosh": same(op.cosh),
    "Div": same(op.divide),
    "Elu": formula(_elu),
    "Equal": _equal,
    "Erf": same(op.erf),
    "Exp": same(op.exp),
    "Floor": same(op.floor),
    "Gelu": formula(_gelu),
    "Greater": same(op.greater),
    "GreaterOrEqual": same(op.greater_equal),
    "HardSigmoid": formula(_hard_sigmoid),
    "HardSwish": formula(_hard_swish),
    "Identity": same(lambda x: x),
    "IsInf": formula(_is_inf),
    "IsNaN": same(op.isnan),
    "LeakyRelu": formula(_leaky_relu),
    "Less": same(op.less),
    "LessOrEqual": same(op.less_equal),
    "Log": same(op.log),
    "Max": folded(op.maximum),
    "Mean": _mean,
    "Min": folded(op.minimum),
    "Mish": formula(_mish),
    "Mod": _mod,
    "Mul": same(op.multiply),
    "Neg": same(op.negative),
    "Not": same(op.logical_not),
    "Or": same(op.logical_or),
    "PRelu": _prelu,
    "Pow": _pow,
    "Reciprocal": formula(lambda b, node, x, n: op.divide(n(1), x)),
    "Relu": same(op.nn.relu),
    "Round": formula(_round),
    "Selu": formula(_selu),
    "Sigmoid": same(op.sigmoid),
    "Sign": same(op.sign),
    "Sin": same(op.sin),
    "Sinh": same(op.sinh),
    "Softplus": formula(_softplus),
    "Softsign": formula(lambda b, node, x, n: op.divide(x, n(1) + op.abs(x))),
    "Sqrt": same(op.sqrt),
    "Sub": same(op.subtract),
    "Sum": folded(op.add),
    "Swish": formula(_swish),
    "Tan": same(op.tan),
    "Tanh": same(op.tanh),
    "Where": same(op.where),
    "Xor": same(op.logical_xor),
}
"""Operator → what writes it."""
