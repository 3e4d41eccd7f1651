"""Rotary position embedding: a rotation of pairs of numbers, and the turn from rows to heads on the way.

Moves 8 bytes for every number of x and 8 for every pair of the tables, does 3 operations a number: bound by memory.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T

from partc.ir.graph import Node
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.kernels.vector import loop_of
from targets.tvm.operators import OPERATORS, input_shape, shape_of
from targets.tvm.operators.reading import dtype_of, has, integer


def rotary_embedding(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Turn x [batch, heads, rows, d], or with `rows_first` [batch, rows, heads, d], into [batch, heads, rows, d].

    cos and sin are [batch or 1, rows, r / 2]; the first r numbers of a head are turned, half against half.
    """
    if not fits(node):
        return OPERATORS["RotaryEmbedding"](b, node, operands)
    turned = integer(node, "rotary_embedding_dim", 0) or input_shape(node)[3]
    rows_first = integer(node, "rows_first", 0) == 1
    sizes = (*shape_of(node), input_shape(node, 1)[0], turned // 2, rows_first)
    return b.call(rotate, operands[:3], type_of(node.outputs[0]), *sizes)


def fits(node: Node) -> bool:
    """Whether the kernel does it: halves of float32, tables with a row for every row."""
    return (
        len(input_shape(node)) == 4
        and not has(node, 3)
        and not integer(node, "interleaved", 0)
        and dtype_of(node) == "float32"
        and len(input_shape(node, 1)) == 3
    )


def rotate(B: int, H: int, S: int, D: int, TABLES: int, half: int, rows_first: bool) -> Any:
    """A thread takes heads; left and right halves of a head become l·cos - r·sin and r·cos + l·sin."""
    W, rest = math.gcd(half, 16), D - 2 * half
    shape = (B, S, H, D) if rows_first else (B, H, S, D)
    loop = loop_of(6 * B * H * S * D)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer(shape, "float32"),
        cos: T.Buffer((TABLES, S, half), "float32"),
        sin: T.Buffer((TABLES, S, half), "float32"),
        y: T.Buffer((B, H, S, D), "float32"),
    ):
        for head in loop(B * H):
            for s in range(S):
                b: T.let = head // H
                h: T.let = head % H
                table: T.let = 0 if TABLES == 1 else b
                i: T.let = s if rows_first else h
                j: T.let = h if rows_first else s
                for part in range(half // W):
                    for lane in T.vectorized(W):
                        y[b, h, s, part * W + lane] = (
                            x[b, i, j, part * W + lane] * cos[table, s, part * W + lane]
                            - x[b, i, j, half + part * W + lane] * sin[table, s, part * W + lane]
                        )
                    for lane in T.vectorized(W):
                        y[b, h, s, half + part * W + lane] = (
                            x[b, i, j, half + part * W + lane] * cos[table, s, part * W + lane]
                            + x[b, i, j, part * W + lane] * sin[table, s, part * W + lane]
                        )
                for d in range(rest):
                    y[b, h, s, 2 * half + d] = x[b, i, j, 2 * half + d]

    return kernel
