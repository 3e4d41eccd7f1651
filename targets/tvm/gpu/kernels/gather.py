"""Rows of a table in panels: of a quantised one in float32, of floats as they are; a block a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tvm.script import tirx as T

from partc.ir.graph import Node
from partc.ir.panels import BLOCK, LANES, scales_of_block
from partc.ir.weight_formats import by_format
from targets.tvm.builder import Expr, FunctionBuilder
from targets.tvm.gpu.kernels.threads import gpu_func, half_bits
from targets.tvm.kernels import gather as floats
from targets.tvm.kernels import quantized
from targets.tvm.kernels.script import Buffer, store
from targets.tvm.kernels.vector import place_within
from targets.tvm.kernels.words import byte_of, half_of, nibble_of
from targets.tvm.layout import PANEL

_Weight = Callable[[Buffer, Expr, Expr], Expr]
"""Panels, row, k → the weight."""


def gather(threads: int, b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`tvm.QuantizedRows` in blocks of so many threads."""
    return quantized.gather(b, node, operands, rows_of_panels, threads)


def gather_columns(threads: int, b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`tvm.GatherColumns` in blocks of so many threads."""
    return floats.gather_columns(b, node, operands, columns_of_panels, threads)


def columns_of_panels(R: int, K: int, N: int, stored: str, threads: int) -> Any:
    """y[r, k] = w[places[r] // PANEL, k, places[r] % PANEL]."""

    def write(blocks: Sequence[Expr], lanes: Sequence[Expr], w: Buffer, places: Buffer, y: Buffer) -> None:
        place = T.bind(place_within(places[blocks[0]], N - 1))
        with T.serial(math.ceil(K / threads)) as turn:
            k = T.bind(turn * threads + lanes[0])
            with T.If(k < K), T.Then():
                store(y, [blocks[0], k], w[place // PANEL, k, place % PANEL])

    weight = (math.ceil(N / PANEL), K, PANEL)
    parameters = {"w": (weight, stored), "places": ((R,), "int64"), "y": ((R, K), stored)}
    return gpu_func(parameters, (R,), (threads,), write)


def rows_of_panels(
    bits: int, block: int, R: int, N: int, K: int, shape: tuple[int, ...], threads: int
) -> Any:
    """y[r, k] = the weight k of row places[r] of a table of N rows, in panels of this shape."""

    def write(blocks: Sequence[Expr], lanes: Sequence[Expr], w: Buffer, places: Buffer, y: Buffer) -> None:
        row = T.bind(place_within(places[blocks[0]], N - 1))
        with T.serial(math.ceil(K / threads)) as turn:
            k = T.bind(turn * threads + lanes[0])
            with T.If(k < K), T.Then():
                store(y, [blocks[0], k], weight(w, row, k))

    of4: _Weight = _of4
    of_blocks: _Weight = partial(_of8_blocks, scales_of_block(block))
    weight = by_format(bits, block, int4=of4, int8=_of8, int8_blocks=of_blocks)

    parameters = {"w": (shape, "int32"), "places": ((R,), "int64"), "y": ((R, K), "float32")}
    return gpu_func(parameters, (R,), (threads,), write)


def _of4(w: Buffer, row: Expr, k: Expr) -> Expr:
    """The weight k of a row, of 4 bits."""
    group, panel, lane = row // 64, row // LANES % 4, row % LANES
    step, half, i, j = k // (2 * BLOCK), k // BLOCK % 2, k // 8 % 4, k % 8
    pair = w[group, step, panel, 128 + (half * LANES + lane) // 2]
    scale = half_bits(half_of(pair, lane))
    word = w[group, step, panel, half * 64 + i * LANES + lane]
    return T.Cast("float32", nibble_of(word, j) - T.int32(8)) * scale


def _of8(w: Buffer, row: Expr, k: Expr) -> Expr:
    """The same of 8 bits."""
    panel, lane = row // LANES, row % LANES
    word = w[panel, 2 + k // 4, lane]
    return T.Cast("float32", byte_of(word, k)) * T.reinterpret("float32", w[panel, 1, lane])


def _of8_blocks(scales: int, w: Buffer, row: Expr, k: Expr) -> Expr:
    """The same of 8 bits in blocks, which have so many scales for 32."""
    panel, lane = row // LANES, row % LANES
    block, place = k // BLOCK, k % BLOCK
    own = place // (BLOCK // scales) * LANES + lane
    pair = w[panel, block, BLOCK // 4 * LANES + own // 2]
    scale = half_bits(half_of(pair, own))
    word = w[panel, block, place // 4 * LANES + lane]
    return T.Cast("float32", byte_of(word, k)) * scale
