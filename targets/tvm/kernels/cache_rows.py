"""`partc.QuantizeRows`: the rows of a step in 8 bits, for a cache of 8 bits.

Moves 5 bytes for every number, reads it twice, of which once from the first-level cache.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from typing import Any

from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from partc.ir.operators import QUANTIZE_ROWS
from partc.ir.operators.quantize_rows import LEAST
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.kernels.vector import loop_of
from targets.tvm.operators import OPERATORS, input_shape, shape_of
from targets.tvm.operators.reading import dtype_of, integer


def quantize_cache_rows(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """Whole numbers [batch, heads, rows, d] and scales [batch, heads, rows, 1] of x, shaped so too.

    With `rows_first` x is [batch, rows, heads, d].
    """
    if not fits(node):
        made: list[Expr] = OPERATORS[QUANTIZE_ROWS.name](b, node, operands)
        return made
    sizes = (*shape_of(node), integer(node, "rows_first", 0) == 1)
    found = b.call(round_rows, operands, [type_of(value) for value in node.outputs], *sizes)
    return [relax.TupleGetItem(found, place) for place in range(2)]


def fits(node: Node) -> bool:
    """Whether the kernel does it: float32, by heads."""
    return len(input_shape(node)) == 4 and dtype_of(node) == "float32"


def round_rows(B: int, H: int, S: int, D: int, rows_first: bool) -> Any:
    """A thread takes heads; the largest magnitude of a row becomes 127."""
    W, shape = math.gcd(D, 16), (B, S, H, D) if rows_first else (B, H, S, D)
    loop = loop_of(4 * B * H * S * D)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer(shape, "float32"),
        data: T.Buffer((B, H, S, D), "int8"),
        scales: T.Buffer((B, H, S, 1), "float32"),
    ):
        for head in loop(B * H):
            for s in range(S):
                most = T.alloc_buffer((W,), "float32")
                b: T.let = head // H
                h: T.let = head % H
                i: T.let = s if rows_first else h
                j: T.let = h if rows_first else s
                for lane in T.vectorized(W):
                    most[lane] = T.float32(0)
                for part in range(D // W):
                    for lane in T.vectorized(W):
                        most[lane] = T.max(most[lane], T.abs(x[b, i, j, part * W + lane]))
                for lane in range(W - 1):
                    most[0] = T.max(most[0], most[lane + 1])
                scales[b, h, s, 0] = most[0] * T.float32(1 / 127)
                most[0] = T.Select(most[0] >= T.float32(LEAST), T.float32(127) / most[0], T.float32(0))
                for part in range(D // W):
                    for lane in T.vectorized(W):
                        data[b, h, s, part * W + lane] = T.Cast(
                            "int8", T.nearbyint(x[b, i, j, part * W + lane] * most[0])
                        )

    return kernel
