"""`tvm.QuantizedExperts`: every row times the matrix of the expert that it chose.

Rows are put in the order of their experts; then each expert multiplies its own, a group of columns at a time. An expert
that nobody chose is not read: M rows of E experts read min(M, E) matrices at most.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tvm.script import tirx as T

from targets.tvm.kernels.quantized_format import Format, Row, Rows
from targets.tvm.kernels.quantized_tiles import write_group
from targets.tvm.kernels.script import Buffer, Expr, prim_func, store
from targets.tvm.kernels.vector import loop_of


def experts_of_rows(f: Format, experts: int, kind: str) -> Any:
    """y[m] = x[m] · w[chosen[m]]ᵀ; `kind` is the type of the choices."""
    one = replace(
        f, M=math.ceil(f.M / experts)
    )  # tiles for as many rows as an expert gets if all get as many

    def write(x: Buffer, chosen: Buffer, w: Buffer, y: Buffer) -> None:
        order, ends = _sort(chosen, f.M, experts)
        with loop_of(f.operations)(experts * f.groups) as place:
            expert, group = T.bind(place // one.groups), place % one.groups
            rows = _rows_of(expert, order, ends, one.tile.rows)
            with T.If(rows.tiles > 0), T.Then():
                write_group(
                    one, x, [_Matrix(w, expert)], y, group, lambda totals, row, column: totals[0], rows
                )

    weights, dtype = f.w_type
    parameters = {"x": f.x_type, "chosen": ((f.M,), kind), "w": ((experts, *weights), dtype), "y": f.y_type}
    return prim_func(parameters, write)


class _Matrix:
    """The matrix of one expert; reads as a buffer does."""

    def __init__(self, w: Buffer, expert: Expr) -> None:
        self._w, self._expert = w, expert

    def __getitem__(self, places: tuple[Expr, ...]) -> Expr:
        return self._w[(self._expert, *places)]


def _sort(chosen: Buffer, M: int, experts: int) -> tuple[Buffer, Buffer]:
    """The numbers of rows, those of the first expert first, and ends[e + 1], where the rows of expert e end."""
    order, ends = T.alloc_buffer((M,), "int32"), T.alloc_buffer((experts + 1,), "int32")
    store(ends, [0], T.int32(0))
    with T.serial(experts) as expert:
        store(ends, [expert + 1], ends[expert])
        with T.serial(M) as row, T.If(T.Cast("int32", chosen[row]) == expert), T.Then():
            store(order, [ends[expert + 1]], row)
            store(ends, [expert + 1], ends[expert + 1] + 1)
    return order, ends


def _rows_of(expert: Expr, order: Buffer, ends: Buffer, height: int) -> Rows:
    """The rows of an expert; the last tile computes the last row again and again."""
    begin, end = T.bind(ends[expert]), T.bind(ends[expert + 1])

    def of(tile: Expr) -> Row:
        return lambda r: order[T.min(begin + tile * height + r, end - 1)]

    return Rows((end - begin + height - 1) // height, of)
