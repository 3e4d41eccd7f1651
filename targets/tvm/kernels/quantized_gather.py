"""`tvm.QuantizedRows`: rows of a quantised table in panels, which a head may share.

A row of K numbers is read from as many cache lines as it has words, K / 8 with 4 bits and K / 4 with 8. Beside the
product with the same table, which reads all of it, that is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm.script import tirx as T

from partc.ir.panels import BLOCK, LANES, scales_of_block
from partc.ir.weight_formats import by_format
from targets.tvm.kernels.script import Buffer, Expr, prim_func, store
from targets.tvm.kernels.vector import place_within
from targets.tvm.kernels.words import byte_of, half_of, nibble_of

_WriteRow = Callable[[Buffer, Expr, Buffer, Expr, int], None]
"""Writes row r of y, K numbers, from the panels at a place."""


def rows_of_panels(bits: int, block: int, R: int, N: int, K: int, shape: tuple[int, ...]) -> Any:
    """y[r, k] = the weight k of row places[r] of a table of N rows, in panels of this shape."""

    def write(w: Buffer, places: Buffer, y: Buffer) -> None:
        with T.serial(R) as r:
            place = T.bind(place_within(places[r], N - 1))
            write_row(w, place, y, r, K)

    of_blocks: _WriteRow = partial(_write_row8_blocks, scales_of_block(block))
    of4: _WriteRow = _write_row4
    write_row = by_format(bits, block, int4=of4, int8=_write_row8, int8_blocks=of_blocks)
    parameters = {"w": (shape, "int32"), "places": ((R,), "int64"), "y": ((R, K), "float32")}
    return prim_func(parameters, write)


def _scale(bits: Expr) -> Expr:
    """The float32 of a float16, by its bits."""
    return T.bind(T.Cast("float32", T.reinterpret("float16", T.Cast("uint16", bits))))


def _write_row4(w: Buffer, place: Expr, y: Buffer, r: Expr, K: int) -> None:
    """Blocks of 32 weights; K is a multiple of 32."""
    group, panel, lane = place // 64, place // LANES % 4, place % LANES
    with T.serial(K // BLOCK) as block:
        step, half = block // 2, block % 2
        pair = w[group, step, panel, 128 + (half * LANES + lane) // 2]  # of float16
        scale = _scale(half_of(pair, lane))
        with T.serial(4) as i:
            word = T.bind(w[group, step, panel, half * 64 + i * LANES + lane])
            for j in range(8):
                value = nibble_of(word, j) - T.int32(8)
                store(y, [r, block * BLOCK + i * 8 + j], T.Cast("float32", value) * scale)


def _write_row8(w: Buffer, place: Expr, y: Buffer, r: Expr, K: int) -> None:
    panel, lane = place // LANES, place % LANES
    scale = T.bind(T.reinterpret("float32", w[panel, 1, lane]))
    with T.serial(K) as k:
        store(y, [r, k], T.Cast("float32", byte_of(w[panel, 2 + k // 4, lane], k)) * scale)


def _write_row8_blocks(scales: int, w: Buffer, place: Expr, y: Buffer, r: Expr, K: int) -> None:
    """32 weights have so many scales; K is a multiple of what shares one."""
    panel, lane, unit = place // LANES, place % LANES, BLOCK // scales
    with T.serial(K // unit) as number:
        block, own = number // scales, number % scales * LANES + lane
        pair = w[panel, block, BLOCK // 4 * LANES + own // 2]  # of float16
        scale = _scale(half_of(pair, own))
        with T.serial(unit // 4) as i:
            word = T.bind(w[panel, block, (number % scales * (unit // 4) + i) * LANES + lane])
            for j in range(4):
                store(y, [r, number * unit + i * 4 + j], T.Cast("float32", byte_of(word, j)) * scale)
