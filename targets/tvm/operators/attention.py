"""Attention and caches in plain operators: every form of the contract, on every machine.

The operators are those of `partc.ir.operators`. A hidden key has the lowest finite score, so that a row of padding,
which may see nothing at all, stays finite.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from partc.ir.operators import ATTENTION, QUANTIZE_ROWS, QUANTIZED_ATTENTION, UPDATE_STATE
from partc.ir.operators.attention import rule_of
from partc.ir.operators.quantize_rows import LEAST
from targets.tvm.builder import Emitter, Expr, FunctionBuilder, type_of
from targets.tvm.operators.reading import (
    array,
    dtype_of,
    has,
    input_shape,
    lowest,
    number,
    operand,
    result_dtype,
)

op = relax.op


def plain_attention(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`partc.Attention`, with keys and values in the type of the queries: a cache may be in half precision."""
    query, key, value, *others = operands
    return _attended(b, node, [query, *_like_queries(b, node, [key, value], (1, 2)), *others])


def _like_queries(
    b: FunctionBuilder, node: Node, operands: list[Expr], places: tuple[int, ...]
) -> list[Expr]:
    dtype = dtype_of(node)
    return [
        found if dtype_of(node, place) == dtype else b.emit(op.astype(found, dtype))
        for found, place in zip(operands, places, strict=True)
    ]


def _attended(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Attention over all rows of the cache: 4 · batch · heads · rows · keys · d operations."""
    batch, heads, rows, _ = input_shape(node)
    keys, dtype = input_shape(node, 1)[2], dtype_of(node)
    logits = _scores(b, node, operands)
    seen = _visible(b, node, operands)
    if has(node, 4):
        if operand(node, 4).dtype == "bool":
            seen = operands[4] if seen is None else b.emit(op.logical_and(seen, operands[4]))
        else:
            logits = b.emit(op.add(logits, operands[4]))
    if seen is not None:
        logits = b.emit(op.where(seen, logits, lowest(dtype)))
    if has(node, 5):
        column = b.emit(op.reshape(operands[5], (1, heads, 1, 1)))
        column = b.emit(op.broadcast_to(column, (batch, heads, rows, 1)))
        logits = b.emit(op.concat([logits, column], axis=-1))
    weights = b.emit(op.nn.softmax(logits, axis=-1))
    if has(node, 5):
        weights = b.emit(op.strided_slice(weights, [3], [0], [keys]))
    kv_heads, size = input_shape(node, 2)[1], input_shape(node, 2)[3]
    grouped = b.emit(op.reshape(weights, (batch, kv_heads, heads // kv_heads * rows, keys)))
    found = b.emit(op.matmul(grouped, operands[2]))
    return op.reshape(found, (batch, heads, rows, size))


def _scores(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """softcap(scale · q·kᵀ) [batch, heads, rows, keys]; the heads that share keys are rows of one product."""
    batch, heads, rows, size = input_shape(node)
    kv_heads, keys = input_shape(node, 1)[1:3]
    dtype, rule = dtype_of(node), rule_of(node)
    scaled = b.emit(operands[0] * number(rule.scale, dtype))
    grouped = b.emit(op.reshape(scaled, (batch, kv_heads, heads // kv_heads * rows, size)))
    turned = b.emit(op.permute_dims(operands[1], [0, 1, 3, 2]))
    logits = b.emit(op.matmul(grouped, turned))
    if rule.softcap:
        capped = b.emit(op.tanh(b.emit(logits * number(1 / rule.softcap, dtype))))
        logits = b.emit(capped * number(rule.softcap, dtype))
    return b.emit(op.reshape(logits, (batch, heads, rows, keys)))


def _visible(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr | None:
    """Bool [batch or 1, 1, rows, keys] by the rule; None: everything is seen."""
    rule = rule_of(node).visibility
    if not rule.hides:
        return None
    rows, keys = input_shape(node)[2], input_shape(node, 1)[2]
    j = array(np.arange(keys, dtype=np.int64).reshape(1, 1, 1, keys))
    i = array(np.arange(rows, dtype=np.int64).reshape(1, 1, rows, 1))
    if has(node, 3):
        i = b.emit(op.reshape(operands[3], (*input_shape(node, 3), 1, 1, 1)) + i)
    seen = b.emit(op.less_equal(j, i))
    if rule.window:
        seen = b.emit(op.logical_and(seen, j > i - number(rule.window, "int64")))
    if rule.chunk:
        size = number(rule.chunk, "int64")
        same = b.emit(op.equal(op.floor_divide(j, size), op.floor_divide(i, size)))
        seen = b.emit(op.logical_and(seen, same))
    return seen


def plain_quantized_attention(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`partc.QuantizedAttention`: plain attention over the numbers that the whole cache stands for."""
    key, value, *scales = _like_queries(b, node, operands[1:5], (1, 2, 3, 4))
    key, value = (b.emit(op.multiply(data, scale)) for data, scale in zip((key, value), scales, strict=True))
    result = replace(node.outputs[0], producer=None)
    inner = Node(ATTENTION.name, [*node.inputs[:3], *node.inputs[5:]], [result], node.attributes, node.scope)
    return _attended(b, inner, [operands[0], key, value, *operands[5:]])


def plain_quantize_rows(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """`partc.QuantizeRows` of x [..., d]: whole numbers and a scale for every row."""
    dtype = dtype_of(node)
    largest = b.emit(op.max(b.emit(op.abs(operands[0])), axis=[-1], keepdims=True))
    usable = b.emit(op.greater_equal(largest, number(LEAST, dtype)))
    divisor = b.emit(op.where(usable, largest, number(1.0, dtype)))
    inverse = b.emit(op.where(usable, b.emit(number(127.0, dtype) / divisor), number(0.0, dtype)))
    rounded = b.emit(op.round(b.emit(op.multiply(operands[0], inverse))))
    return [op.astype(rounded, "int8"), op.multiply(largest, number(1 / 127, dtype))]


def update_state(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """State [batch, heads, max_sequence, d], new [batch, heads, rows, d], position [batch] → state, in place."""
    sizes = (*input_shape(node, 0), input_shape(node, 1)[2], result_dtype(node), dtype_of(node, 1))
    return b.update(write_rows, operands, type_of(node.outputs[0]), *sizes)


def write_rows(B: int, H: int, T_MAX: int, D: int, S: int, dtype: str, new_dtype: str) -> Any:
    """New rows to their places, in the type of the state; rows of padding behind its end are not written."""

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        state: T.Buffer((B, H, T_MAX, D), dtype),
        new: T.Buffer((B, H, S, D), new_dtype),
        position: T.Buffer((B,), "int64"),
    ):
        for b, h, s, d in T.grid(B, H, S, D):
            with T.sblock("rows"):
                vb, vh, vs, vd = T.axis.remap("SSSS", [b, h, s, d])
                if T.And(position[vb] >= T.int64(0), position[vb] < T.int64(T_MAX) - vs):
                    state[vb, vh, position[vb] + vs, vd] = (
                        new[vb, vh, vs, vd] if new_dtype == dtype else T.Cast(dtype, new[vb, vh, vs, vd])
                    )

    return kernel


EMITTERS: Mapping[str, Emitter] = {
    ATTENTION.name: plain_attention,
    QUANTIZED_ATTENTION.name: plain_quantized_attention,
    QUANTIZE_ROWS.name: plain_quantize_rows,
    UPDATE_STATE.name: update_state,
}
"""Operator → what writes it."""
