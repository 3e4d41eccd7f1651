"""Masks: which key each query sees, as a boolean tensor that attentions of the same kind share."""

from __future__ import annotations

import numpy as np

from partc.ir.graph import Value
from partc.ir.operators.attention import Visibility
from partc.ir.types import BY_SHORT
from targets.ort.steps import counting
from targets.rewrite import Rewriter


def visible_keys(r: Rewriter, rule: Visibility, position: Value | None, rows: Value, keys: Value) -> Value:
    """Bool [batch, 1, rows, keys]; `rows` and `keys` are i64[1]; without `position` queries start at 0."""
    return r.once(("visible", rule, position, rows, keys), lambda: _build(r, rule, position, rows, keys))


def _build(r: Rewriter, rule: Visibility, position: Value | None, rows: Value, keys: Value) -> Value:
    i, j = _query_positions(r, position, rows), counting(r, keys)
    mask = r.op("LessOrEqual", [j, i], "bool", None, "causal")
    if rule.window:
        first = r.op("Sub", [i, r.integer(rule.window)], "i64", None, "before_window")
        mask = _both(r, mask, r.op("Greater", [j, first], "bool", None, "in_window"))
    if rule.chunk:
        size = r.integer(rule.chunk)
        mine, theirs = (r.op("Div", [value, size], "i64", None, "chunk") for value in (i, j))
        mask = _both(r, mask, r.op("Equal", [mine, theirs], "bool", None, "in_chunk"))
    return mask


def _query_positions(r: Rewriter, position: Value | None, rows: Value) -> Value:
    """i64 [batch|1, 1, rows, 1]."""

    def make() -> Value:
        index = r.op("Unsqueeze", [counting(r, rows), r.integers(0, 1, 3)], "i64", None, "index")
        if position is None:
            return index
        start = r.op("Unsqueeze", [position, r.integers(1, 2, 3)], "i64", None, "start")
        return r.op("Add", [start, index], "i64", None, "query_positions")

    return r.once(("query_positions", position, rows), make)


def _both(r: Rewriter, first: Value, second: Value) -> Value:
    return r.op("And", [first, second], "bool", None, "visible")


def combine(r: Rewriter, visible: Value, mask: Value) -> Value:
    """`visible` and the model's own mask, bool or additive, in one mask of the latter's kind."""

    def make() -> Value:
        if mask.dtype == "bool":
            return _both(r, visible, mask)
        hidden = r.constant(np.array(-np.inf, BY_SHORT[mask.dtype or "f32"].numpy), "hidden")
        return r.op("Where", [visible, mask, hidden], mask.dtype, None, "masked")

    return r.once(("combine", visible, mask), make)
