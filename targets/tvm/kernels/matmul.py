"""Products with a packed weight (`layout.py`): few rows at memory bandwidth, many rows in registers.

Let x be [M, K] and the weight [K, N]; one thread takes whole panels, so that threads share nothing.

| rows | moves (bytes) | operations | intensity | bound by |
| --- | --- | --- | --- | --- |
| M = 1 | 4KN + 4K + 4N | 2KN | 0.5 | memory: the weight is read once |
| M = 8 | 4KN + 32(K + N) | 16KN | 4 | memory, where a core does less than 4 operations a byte that it reads |
| M large | 4(KN + MK + MN), more from caches | 2MKN | up to M / 2 | arithmetic: a tile of results stays in registers |

A tile of 6 rows × 16 columns keeps 12 of 16 registers of AVX2, or 24 of 32 of NEON, and needs 3 more for the weight and
a number of x; with AVX-512 it has 7 rows × 32 columns (`float_tiles.py`). A panel (64K bytes: 48 KB to 360 KB) stays in
the second-level cache while all rows pass over it; more blocking was measured and only cost (110 GFLOP/s a core against
97-107 with blocks of 24 to 96 rows, for K and N of 768 to 5632).

A weight of float16 or bfloat16 moves half the bytes: its numbers become float32 on their way into registers, one
instruction for eight or sixteen of them, once a tile.
"""

# ruff: noqa: B023
# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which neither mypy nor ruff can know.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from targets.tvm.builder import Expr, FunctionBuilder, tensor_type
from targets.tvm.kernels.float_tiles import NARROW
from targets.tvm.kernels.instructions import Tile
from targets.tvm.kernels.vector import ACTIVATIONS, loop_of, wide
from targets.tvm.layout import PANEL
from targets.tvm.operators import OPERATORS, input_shape, shape_of
from targets.tvm.operators.reading import dtype_of

AHEAD = 16
"""Rows of a panel (cache lines) that a tile prefetches ahead of the arithmetic."""


@dataclass(frozen=True)
class Tiling:
    """The tiles of a product [M, K] · [K, N]; the last tile and the last group reach back over the one before.

    What is computed twice is the same twice, so that no size needs code for a rest.
    """

    rows: int
    """Rows of a tile."""
    tiles: int
    panels: int
    """Panels that are read side by side: a core follows several streams faster than one."""
    groups: int
    prefetch: bool
    """Ask for the panel ahead of time: with many sums in flight too few loads are."""


def tiling_of(M: int, N: int, most: Tile) -> Tiling:
    """Measured on a core of EPYC 9004: 29 GB/s for one row with four panels against 20 with one."""
    every = math.ceil(N / PANEL)
    tiles = math.ceil(M / most.rows)
    rows = math.ceil(M / tiles)
    panels = min(every, most.panels if M > 4 else 2 if M > 2 else 4)
    return Tiling(rows, tiles, panels, math.ceil(every / panels), prefetch=M > 4 and panels == 1)


def matmul(b: FunctionBuilder, node: Node, operands: list[Expr], tile: Tile) -> Expr:
    """A product; with a packed weight the kernels below, else Relax's own code."""
    if not b.is_packed(node.inputs[1]):
        return OPERATORS["MatMul"](b, node, operands)
    rows, depth, columns = sizes_of(node)
    x = b.emit(relax.op.reshape(operands[0], (rows, depth)))
    result = tensor_type((rows, columns), "f32")
    flat = b.call(product, [x, operands[1]], result, rows, depth, columns, dtype_of(node, 1), tile)
    return relax.op.reshape(flat, shape_of(node))


def product_plus(b: FunctionBuilder, node: Node, operands: list[Expr], tile: Tile) -> Expr:
    """`tvm.ProductPlus(x, w, added)`: x · w + added, which is a bias [N] or a residual of the result's shape."""
    rows, depth, columns = sizes_of(node)
    height = 1 if len(input_shape(node, 2)) == 1 else rows
    x = b.emit(relax.op.reshape(operands[0], (rows, depth)))
    added = b.emit(relax.op.reshape(operands[2], (height, columns)))
    result = tensor_type((rows, columns), "f32")
    sizes = (rows, depth, columns, height, dtype_of(node, 1), tile)
    flat = b.call(product_added, [x, operands[1], added], result, *sizes)
    return relax.op.reshape(flat, shape_of(node))


def gated_product(b: FunctionBuilder, node: Node, operands: list[Expr], tile: Tile) -> Expr:
    """`tvm.GatedProduct(x, gate, up)`: activation(x · gate) × (x · up)."""
    rows, depth, columns = sizes_of(node)
    x = b.emit(relax.op.reshape(operands[0], (rows, depth)))
    result = tensor_type((rows, columns), "f32")
    name = str(node.attributes["activation"])
    sizes = (rows, depth, columns, name, dtype_of(node, 1), tile)
    flat = b.call(product_gated, [x, *operands[1:3]], result, *sizes)
    return relax.op.reshape(flat, shape_of(node))


def products(b: FunctionBuilder, node: Node, operands: list[Expr], tile: Tile) -> list[Expr]:
    """`tvm.Products(x, w…)`: products of one x with two or three weights, in one go over all their panels."""
    rows, depth, _ = sizes_of(node)
    widths = [shape_of(node, place)[-1] for place in range(len(node.outputs))]
    x = b.emit(relax.op.reshape(operands[0], (rows, depth)))
    types = [tensor_type((rows, width), "f32") for width in widths]
    kernel: Any = products_of_2 if len(widths) == 2 else products_of_3
    found = b.call(kernel, [x, *operands[1:]], types, rows, depth, *widths, dtype_of(node, 1), tile)
    flat = [b.emit(relax.TupleGetItem(found, place)) for place in range(len(widths))]
    return [relax.op.reshape(part, shape_of(node, place)) for place, part in enumerate(flat)]


def sizes_of(node: Node) -> tuple[int, int, int]:
    """M, K, N of a product."""
    *leading, depth = input_shape(node)
    return math.prod(leading), depth, shape_of(node)[-1]


@T.macro
def accumulate(x, w, sums, row, panel, t, K):
    """sums[i, p, :] = x[row + i, :] · w[panel + p, :, :]."""
    for i in T.unroll(t.rows):
        for p in T.unroll(t.panels):
            for lane in T.vectorized(PANEL):
                sums[i, p, lane] = T.float32(0)
    for k in range(K):
        if t.prefetch:
            T.evaluate(
                T.call_llvm_intrin(
                    "void",
                    "llvm.prefetch",
                    T.address_of(w[panel, T.min(k + AHEAD, K - 1), 0]),
                    T.int32(0),
                    T.int32(3),
                    T.int32(1),
                )
            )
        for p in T.unroll(t.panels):
            for i in T.unroll(t.rows):
                for lane in T.vectorized(PANEL):
                    sums[i, p, lane] = sums[i, p, lane] + x[row + i, k] * wide(w[panel + p, k, lane])


@T.macro
def store(y, row, panel, t, N, value):
    """y[row + i, columns of panel + p] = value(i, p, lane); columns of padding are left out."""
    for i in T.unroll(t.rows):
        for p in T.unroll(t.panels):
            if N % PANEL == 0:
                for lane in T.vectorized(PANEL):
                    y[row + i, (panel + p) * PANEL + lane] = value(i, p, lane)
            else:
                for lane in T.serial(PANEL):
                    if (panel + p) * PANEL + lane < N:
                        y[row + i, (panel + p) * PANEL + lane] = value(i, p, lane)


@T.macro
def write_group(x, w, y, group, M, K, N, most, finish=lambda total, row, column: total):
    """All rows of a group of panels of y[M, N] = finish(x[M, K] · w[K, N], row, column)."""
    t = T.meta_var(tiling_of(M, N, most))
    for tile in range(t.tiles):
        sums = T.alloc_buffer((t.rows, t.panels, PANEL), "float32")
        row: T.let = T.min(tile * t.rows, M - t.rows)
        panel: T.let = T.min(group * t.panels, math.ceil(N / PANEL) - t.panels)
        accumulate(x, w, sums, row, panel, t, K)
        store(
            y, row, panel, t, N,
            lambda i, p, lane: finish(sums[i, p, lane], row + i, (panel + p) * PANEL + lane),
        )  # fmt: skip


def product(M: int, K: int, N: int, stored: str = "float32", tile: Tile = NARROW) -> Any:
    """y[M, N] = x[M, K] · w[K, N], with numbers of w of the type `stored`."""
    P, groups = math.ceil(N / PANEL), tiling_of(M, N, tile).groups
    loop = loop_of(2 * M * K * N)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((M, K), "float32"),
        w: T.Buffer((P, K, PANEL), stored),
        y: T.Buffer((M, N), "float32"),
    ):
        for group in loop(groups):
            write_group(x, w, y, group, M, K, N, tile)

    return kernel


def product_added(M: int, K: int, N: int, A: int, stored: str = "float32", tile: Tile = NARROW) -> Any:
    """y[M, N] = x[M, K] · w[K, N] + added[A, N], A = 1 (a bias) or M (a residual); 4AN bytes more than `product`."""
    P, groups = math.ceil(N / PANEL), tiling_of(M, N, tile).groups
    loop = loop_of(2 * M * K * N)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((M, K), "float32"),
        w: T.Buffer((P, K, PANEL), stored),
        added: T.Buffer((A, N), "float32"),
        y: T.Buffer((M, N), "float32"),
    ):
        for group in loop(groups):
            write_group(
                x, w, y, group, M, K, N, tile,
                lambda total, row, column: total + added[0 if A == 1 else row, column],
            )  # fmt: skip

    return kernel


def product_gated(
    M: int, K: int, N: int, activation: str, stored: str = "float32", tile: Tile = NARROW
) -> Any:
    """y[M, N] = activation(x[M, K] · gate[K, N]) × (x · up[K, N]): neither product is written to memory."""
    t, P = tiling_of(M, N, tile), math.ceil(N / PANEL)
    loop, function = loop_of(4 * M * K * N), ACTIVATIONS[activation]

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((M, K), "float32"),
        gate: T.Buffer((P, K, PANEL), stored),
        up: T.Buffer((P, K, PANEL), stored),
        y: T.Buffer((M, N), "float32"),
    ):
        for group in loop(t.groups):
            for tile in range(t.tiles):
                gates = T.alloc_buffer((t.rows, t.panels, PANEL), "float32")
                ups = T.alloc_buffer((t.rows, t.panels, PANEL), "float32")
                row: T.let = T.min(tile * t.rows, M - t.rows)
                panel: T.let = T.min(group * t.panels, P - t.panels)
                accumulate(x, gate, gates, row, panel, t, K)
                accumulate(x, up, ups, row, panel, t, K)
                for i in range(t.rows):
                    for p in range(t.panels):
                        for lane in T.vectorized(PANEL):
                            gates[i, p, lane] = function(gates[i, p, lane]) * ups[i, p, lane]
                store(y, row, panel, t, N, lambda i, p, lane: gates[i, p, lane])

    return kernel


def products_of_2(M: int, K: int, N0: int, N1: int, stored: str = "float32", tile: Tile = NARROW) -> Any:
    """y0 = x · w0 and y1 = x · w1: one row of groups for both, so that threads share the work evenly."""
    P0, P1 = (math.ceil(N / PANEL) for N in (N0, N1))
    G0, G1 = (tiling_of(M, N, tile).groups for N in (N0, N1))
    loop = loop_of(2 * M * K * (N0 + N1))

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((M, K), "float32"),
        w0: T.Buffer((P0, K, PANEL), stored),
        w1: T.Buffer((P1, K, PANEL), stored),
        y0: T.Buffer((M, N0), "float32"),
        y1: T.Buffer((M, N1), "float32"),
    ):
        for group in loop(G0 + G1):
            if group < G0:
                write_group(x, w0, y0, group, M, K, N0, tile)
            else:
                write_group(x, w1, y1, group - G0, M, K, N1, tile)

    return kernel


def products_of_3(
    M: int, K: int, N0: int, N1: int, N2: int, stored: str = "float32", tile: Tile = NARROW
) -> Any:
    """The same as `products_of_2` with three weights: the queries, keys and values of a layer."""
    P0, P1, P2 = (math.ceil(N / PANEL) for N in (N0, N1, N2))
    G0, G1, G2 = (tiling_of(M, N, tile).groups for N in (N0, N1, N2))
    loop = loop_of(2 * M * K * (N0 + N1 + N2))

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((M, K), "float32"),
        w0: T.Buffer((P0, K, PANEL), stored),
        w1: T.Buffer((P1, K, PANEL), stored),
        w2: T.Buffer((P2, K, PANEL), stored),
        y0: T.Buffer((M, N0), "float32"),
        y1: T.Buffer((M, N1), "float32"),
        y2: T.Buffer((M, N2), "float32"),
    ):
        for group in loop(G0 + G1 + G2):
            if group < G0:
                write_group(x, w0, y0, group, M, K, N0, tile)
            else:
                if group < G0 + G1:
                    write_group(x, w1, y1, group - G0, M, K, N1, tile)
                else:
                    write_group(x, w2, y2, group - G0 - G1, M, K, N2, tile)

    return kernel
