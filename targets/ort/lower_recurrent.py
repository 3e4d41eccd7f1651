"""partc.CausalConv and partc.LinearAttention → operators that onnxruntime has; states in the buffers of the runner."""

from __future__ import annotations

import numpy as np

from partc.errors import InternalError
from partc.format.dims import element_count
from partc.ir.graph import Node, State, Value
from partc.ir.operators import LINEAR_ATTENTION
from targets.ort.steps import axis_length, counting
from targets.rewrite import Rewriter


def lower_causal_conv(node: Node, r: Rewriter) -> bool:
    """Lower `CausalConv(state, x, weight, length, bias?) -> out, last` to a sum over the columns of the weight.

    seen = Concat(state, x) along the rows; out = bias + Σ_k Slice(seen, k, k + rows) · weight[:, k]. Few channels or
    many, one row or a prompt: that is as fast as `Conv` with a group a channel, and needs no transposes. The new state
    is the rows of `seen` from `length` on, written over the old one by `TensorScatter`.
    """
    state, x, weight, length, *rest = node.inputs
    assert isinstance(state, State) and x is not None and weight is not None and length is not None
    bias = rest[0] if rest else None
    assert weight.shape is not None and state.shape is not None
    columns, kept, dtype = int(weight.shape[1]), int(state.shape[1]), x.dtype
    rows, each = (
        axis_length(r, x, 1),
        r.op("Transpose", [weight], dtype, weight.shape[::-1], "columns", perm=(1, 0)),
    )
    seen = r.op("Concat", [state, x], dtype, None, "seen", axis=1)
    terms = [] if bias is None else [bias]
    for k in range(columns):
        end = r.op("Add", [rows, r.integers(k)], "i64", (1,), "end") if k else rows
        part = r.op("Slice", [seen, r.integers(k), end, r.integers(1)], dtype, x.shape, "part")
        column = r.op("Gather", [each, r.integer(k)], dtype, x.shape and x.shape[-1:], "column", axis=0)
        terms.append(r.op("Mul", [part, column], dtype, x.shape, "term"))
    out, last = node.outputs
    r.emit("Sum", terms, [out], {}, node.scope)
    _overwrite(r, node, state, last, r.op("GatherND", [seen, _last_rows(r, length, kept)], dtype, state.shape,
                                          "last", batch_dims=1))  # fmt: skip
    return True


def _last_rows(r: Rewriter, length: Value, kept: int) -> Value:
    """length, …, length + kept - 1 for each sequence, i64[batch, kept, 1]."""

    def make() -> Value:
        first = r.op("Unsqueeze", [length, r.integers(1, 2)], "i64", None, "first")
        offsets = r.constant(np.arange(kept, dtype=np.int64)[None, :, None], "offsets")
        return r.op("Add", [first, offsets], "i64", None, "last_rows")

    return r.once(("last_rows", length, kept), make)


def _overwrite(r: Rewriter, node: Node, state: State, last: Value, new: Value) -> None:
    """Write `new` over all of a state [batch, rows, channels]."""
    r.name_state_output(last, state)
    r.emit("TensorScatter", [state, new], [last], {"axis": -2, "mode": "linear"}, node.scope)


def lower_linear_attention(node: Node, r: Rewriter) -> bool:
    """Lower `LinearAttention` to `com.microsoft::LinearAttention`, which computes in place and knows no `length`.

    Rows from `length` on leave the state alone because nothing decays and nothing comes in: their decay, and their
    beta or else their value, are zero. The heads of its operands lie in the last axis.
    """
    state, query, key, value, decay, length, *rest = node.inputs
    if not isinstance(state, State):
        raise InternalError("LinearAttention works on a state alone", where=node.place)
    assert query is not None and key is not None and value is not None and decay is not None
    beta = rest[0] if rest else None
    assert length is not None
    valid = _valid(r, length, axis_length(r, value, 1))
    decay = _only(r, valid, decay, 2)
    if beta is None:
        value = _only(r, valid, value, 2)
    else:
        beta = _only(r, valid, beta, 1)
    assert key.shape is not None and value.shape is not None
    flat = [_joined(r, each) for each in (query, key, value)]
    operands = [*flat, state, _joined(r, decay), *([beta] if beta is not None else [])]
    out, last = node.outputs
    r.name_state_output(last, state)
    joined = r.value("read", "f32", None)
    attributes = {
        "q_num_heads": int(key.shape[2]),
        "kv_num_heads": int(value.shape[2]),
        "scale": float(LINEAR_ATTENTION.numbers(node.attributes)["scale"]),
        "update_rule": "gated" if beta is None else "gated_delta",
    }
    r.emit("com.microsoft.LinearAttention", operands, [joined, last], attributes, node.scope)
    shape = r.integers(0, 0, int(value.shape[2]), int(value.shape[3]))
    r.emit("Reshape", [joined, shape], [out], {}, node.scope)
    return True


def _valid(r: Rewriter, length: Value, rows: Value) -> Value:
    """Whether each row of the step is valid, bool[batch, rows]."""

    def make() -> Value:
        ends = r.op("Unsqueeze", [length, r.integers(1)], "i64", None, "ends")
        return r.op("Less", [counting(r, rows), ends], "bool", None, "valid")

    return r.once(("valid", length, rows), make)


def _only(r: Rewriter, valid: Value, value: Value, more: int) -> Value:
    """`value` [batch, rows, …] with zeros in the rows that are not valid; `more` axes follow."""
    axes = r.integers(*range(2, 2 + more))
    seen = r.once(("seen", valid, more), lambda: r.op("Unsqueeze", [valid, axes], "bool", None, "seen"))
    zero = r.constant(np.zeros((), np.float32), "zero")
    return r.op("Where", [seen, value, zero], value.dtype, value.shape, "masked")


def _joined(r: Rewriter, value: Value) -> Value:
    """[batch, rows, heads, d] as [batch, rows, heads * d]."""
    assert value.shape is not None
    width = element_count(value.shape[2:], {})
    return r.op("Reshape", [value, r.integers(0, 0, width)], value.dtype, (*value.shape[:2], width), "joined")
