"""Attention in plain operators, for what no single operator of onnxruntime computes."""

from __future__ import annotations

from typing import cast

import numpy as np

from partc.errors import InternalError
from partc.ir.graph import Node, Value
from partc.ir.operators.attention import rule_of
from partc.ir.types import BY_SHORT
from targets.rewrite import Rewriter


def write_plain_attention(
    r: Rewriter, node: Node, query: Value, key: Value, value: Value, mask: Value | None, sinks: Value
) -> None:
    """Write drop_last(softmax([softcap(scale · q·kᵀ) + mask, sinks])) · v, key heads repeated.

    query [batch, heads, rows, d], key and value [batch, kv_heads, keys, d], mask bool or additive,
    sinks [heads].
    """
    heads, kv_heads = (cast("int", (operand.shape or (0, 0))[1]) for operand in (query, key))
    dtype = query.dtype
    key, value = (_repeat(r, operand, heads // kv_heads) for operand in (key, value))
    turned = r.op("Transpose", [key], dtype, None, "keys", perm=(0, 1, 3, 2))
    logits = r.op("MatMul", [query, turned], dtype, None, "logits")
    rule = rule_of(node)
    logits = _scale(r, logits, dtype, rule.scale)
    if rule.softcap:
        logits = r.op("Tanh", [_scale(r, logits, dtype, 1 / rule.softcap)], dtype, None, "capped")
        logits = _scale(r, logits, dtype, rule.softcap)
    logits = _hide(r, logits, mask)
    logits = r.op("Concat", [logits, _sink_column(r, query, sinks, heads)], dtype, None, "logits", axis=-1)
    weights = r.op("Softmax", [logits], dtype, None, "weights", axis=-1)
    kept = r.op("Slice", [weights, r.integers(0), r.integers(-1), r.integers(3)], dtype, None, "weights")
    r.emit("MatMul", [kept, value], node.outputs, {}, node.scope)


def _scale(r: Rewriter, value: Value, dtype: str | None, factor: float) -> Value:
    number = r.constant(np.array(factor, BY_SHORT[dtype or "f32"].numpy), "factor")
    return r.op("Mul", [value, number], dtype, value.shape, "scaled")


def _repeat(r: Rewriter, value: Value, times: int) -> Value:
    """[batch, kv_heads, keys, d] → [batch, kv_heads × times, keys, d], each head `times` times in a row."""
    if times == 1:
        return value
    shape = value.shape or ()
    if len(shape) != 4 or not isinstance(shape[1], int) or not isinstance(shape[3], int):
        raise InternalError(f"%{value.name} is not [batch, heads, keys, d]")
    apart = r.op("Unsqueeze", [value, r.integers(2)], value.dtype, None, "heads")
    many = r.op("Expand", [apart, r.integers(1, 1, times, 1, 1)], value.dtype, None, "heads")
    return r.op("Reshape", [many, r.integers(0, shape[1] * times, -1, shape[3])], value.dtype, None, "heads")


def _hide(r: Rewriter, logits: Value, mask: Value | None) -> Value:
    if mask is None:
        return logits
    if mask.dtype != "bool":
        return r.op("Add", [logits, mask], logits.dtype, None, "logits")
    hidden = r.constant(np.array(-np.inf, BY_SHORT[logits.dtype or "f32"].numpy), "hidden")
    return r.op("Where", [mask, logits, hidden], logits.dtype, None, "logits")


def _sink_column(r: Rewriter, query: Value, sinks: Value, heads: int) -> Value:
    """[heads] as [batch, heads, rows, 1]."""
    column = r.op("Reshape", [sinks, r.integers(1, heads, 1, 1)], sinks.dtype, None, "sinks")
    sizes = r.op("Shape", [query], "i64", (3,), "sizes", start=0, end=3)
    target = r.op("Concat", [sizes, r.integers(1)], "i64", (4,), "sizes", axis=0)
    return r.op("Expand", [column, target], sinks.dtype, None, "sinks")
