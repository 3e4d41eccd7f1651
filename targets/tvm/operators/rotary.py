"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

from partc.ir.graph import Node
from targets.tvm.builder import Emitter, Expr, FunctionBuilder
from targets.tvm.operators.reading import has, input_shape, integer, shape_of

op = relax.op


def _rotary_embedding(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """X [batch, heads, rows, d], or [batch, rows, heads · d], turned by cos, sin [batch, rows, r / 2].

    The first r numbers of a head are turned, pair by pair: the two halves of r, or neighbours where `interleaved`.
    With position numbers as the fourth operand, the tables are [positions, r / 2] and rows are taken from them.
    """
    tables = [_table(b, node, operands, place) for place in (1, 2)]
    x, sizes = _by_head(b, node, operands[0])
    size = sizes[-1]
    turned = integer(node, "rotary_embedding_dim", 0) or size
    head = x if turned == size else b.emit(op.strided_slice(x, [3], [0], [turned]))
    left, right = _pairs(b, node, head, (*sizes[:3], turned))
    cos, sin = tables
    pairs = [b.emit(left * cos - right * sin), b.emit(right * cos + left * sin)]
    if integer(node, "interleaved", 0):
        result = b.emit(op.reshape(b.emit(op.stack(pairs, axis=-1)), (*sizes[:3], turned)))
    else:
        result = b.emit(op.concat(pairs, axis=-1))
    if turned < size:
        result = b.emit(op.concat([result, b.emit(op.strided_slice(x, [3], [turned], [size]))], axis=-1))
    if len(input_shape(node)) == 4:
        return result
    return op.reshape(b.emit(op.permute_dims(result, [0, 2, 1, 3])), shape_of(node))


def _by_head(b: FunctionBuilder, node: Node, x: Expr) -> tuple[Expr, tuple[int, int, int, int]]:
    """X as [batch, heads, rows, d], and these sizes."""
    sizes = input_shape(node)
    if len(sizes) == 4:
        return x, (sizes[0], sizes[1], sizes[2], sizes[3])
    batch, rows, width = sizes
    heads = integer(node, "num_heads", 1)
    apart = b.emit(op.reshape(x, (batch, rows, heads, width // heads)))
    return b.emit(op.permute_dims(apart, [0, 2, 1, 3])), (batch, heads, rows, width // heads)


def _table(b: FunctionBuilder, node: Node, operands: list[Expr], place: int) -> Expr:
    """Cos or sin as [batch, 1, rows, r / 2]."""
    table, half = operands[place], input_shape(node, place)[-1]
    if has(node, 3):
        flat = b.emit(op.reshape(operands[3], (-1,)))
        table = b.emit(op.take(table, flat, axis=0, mode="clip"))
        batch, rows = input_shape(node, 3)
    else:
        batch, rows = input_shape(node, place)[:2]
    return b.emit(op.reshape(table, (batch, 1, rows, half)))


def _pairs(b: FunctionBuilder, node: Node, x: Expr, sizes: tuple[int, ...]) -> tuple[Expr, Expr]:
    if integer(node, "interleaved", 0):
        apart = b.emit(op.reshape(x, (*sizes[:-1], sizes[-1] // 2, 2)))
        halves = b.emit(op.split(apart, 2, axis=-1))
        left, right = (b.emit(relax.TupleGetItem(halves, half)) for half in (0, 1))
        shape = (*sizes[:-1], sizes[-1] // 2)
        return b.emit(op.reshape(left, shape)), b.emit(op.reshape(right, shape))
    halves = b.emit(op.split(x, 2, axis=-1))
    left, right = (b.emit(relax.TupleGetItem(halves, half)) for half in (0, 1))
    return left, right


ROTARY: Mapping[str, Emitter] = {"RotaryEmbedding": _rotary_embedding}
"""Operator → what writes it."""
