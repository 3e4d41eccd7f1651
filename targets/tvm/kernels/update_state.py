"""New rows into a cache, in place; nothing else of the cache is touched. Keys of a step in panels (`panels.py`).

Moves 8 × batch × heads × rows × d bytes (2 × in 8 bits), whatever the size of the cache. In panels, the numbers of a
row go to d cache lines, which the row before has fetched, or the panel begins.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T

from partc.format.layouts import PANEL
from partc.ir.graph import Node
from partc.ir.operators import UPDATE_STATE
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.kernels.vector import loop_of, place_within
from targets.tvm.operators import OPERATORS, input_shape, shape_of
from targets.tvm.operators.reading import dtype_of, integer


def update_state(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Write new rows into state [batch, heads, max_sequence, d] from position [batch] on.

    The rows are [batch, heads, rows, d], or with `rows_first` [batch, rows, heads, d].
    """
    if not fits(node):
        return OPERATORS[UPDATE_STATE.name](b, node, operands)
    sizes = (*input_shape(node, 0), *_rows_of(node, 1), dtype_of(node), dtype_of(node, 1))
    return b.update(write_rows, operands, type_of(node.outputs[0]), *sizes)


def update_panels(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """The same as `update_state`, into panels [batch, heads, panels, d, PANEL]."""
    batch, heads, panels, d, _ = input_shape(node, 0)
    sizes = (batch, heads, panels, d, *_rows_of(node, 1), dtype_of(node), dtype_of(node, 1))
    return b.update(write_panels, operands, type_of(node.outputs[0]), *sizes)


def panels(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Keys [batch, heads, rows, d], or with `rows_first` [batch, rows, heads, d], in panels."""
    batch, heads, _, d, _ = shape_of(node)
    return b.call(make_panels, operands, type_of(node.outputs[0]), batch, heads, d, *_rows_of(node, 0))


def _rows_of(node: Node, place: int) -> tuple[int, bool]:
    """The number of rows of an operand, and whether they come before the heads."""
    rows_first = integer(node, "rows_first", 0) == 1
    return input_shape(node, place)[1 if rows_first else 2], rows_first


def fits(node: Node) -> bool:
    """Whether there is a kernel for this state: floats or 8 bits, by heads."""
    return len(input_shape(node)) == 4 and dtype_of(node) in ("float32", "float16", "bfloat16", "int8")


def write_rows(B: int, H: int, T_MAX: int, D: int, S: int, rows_first: bool, dtype: str, given: str) -> Any:
    """A thread takes heads. Rows of padding that would lie behind the end of the cache are not written."""
    W, shape = math.gcd(D, 16), (B, S, H, D) if rows_first else (B, H, S, D)
    loop = loop_of(2 * B * H * S * D)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        state: T.Buffer((B, H, T_MAX, D), dtype),
        new: T.Buffer(shape, given),
        position: T.Buffer((B,), "int64"),
    ):
        for head in loop(B * H):
            for s in range(S):
                b: T.let = head // H
                h: T.let = head % H
                i: T.let = s if rows_first else h
                j: T.let = h if rows_first else s
                place: T.let = place_within(position[b], T_MAX) + s
                if place < T_MAX:
                    for part in range(D // W):
                        for lane in T.vectorized(W):
                            state[b, h, place, part * W + lane] = new[b, i, j, part * W + lane].astype(dtype)

    return kernel


def write_panels(B: int, H: int, P: int, D: int, S: int, rows_first: bool, dtype: str, given: str) -> Any:
    """A thread takes heads. Rows of padding that would lie behind the end of the cache are not written."""
    shape = (B, S, H, D) if rows_first else (B, H, S, D)
    loop = loop_of(2 * B * H * S * D)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        state: T.Buffer((B, H, P, D, PANEL), dtype),
        new: T.Buffer(shape, given),
        position: T.Buffer((B,), "int64"),
    ):
        for head in loop(B * H):
            for s in range(S):
                b: T.let = head // H
                h: T.let = head % H
                i: T.let = s if rows_first else h
                j: T.let = h if rows_first else s
                place: T.let = place_within(position[b], P * PANEL) + s
                if place < P * PANEL:
                    for d in range(D):
                        state[b, h, T.truncdiv(place, PANEL), d, T.truncmod(place, PANEL)] = new[
                            b, i, j, d
                        ].astype(dtype)

    return kernel


def make_panels(B: int, H: int, D: int, S: int, rows_first: bool) -> Any:
    """A thread takes heads; places behind the last row are zeros."""
    P, shape = math.ceil(S / PANEL), (B, S, H, D) if rows_first else (B, H, S, D)
    loop = loop_of(2 * B * H * S * D)

    @T.prim_func(private=True, s_tir=True)
    def kernel(new: T.Buffer(shape, "float32"), y: T.Buffer((B, H, P, D, PANEL), "float32")):
        for head in loop(B * H):
            for s in range(P * PANEL):
                b: T.let = head // H
                h: T.let = head % H
                row: T.let = T.min(s, S - 1)
                i: T.let = row if rows_first else h
                j: T.let = h if rows_first else row
                for d in range(D):
                    y[b, h, s // PANEL, d, s % PANEL] = T.Select(s < S, new[b, i, j, d], T.float32(0))

    return kernel
