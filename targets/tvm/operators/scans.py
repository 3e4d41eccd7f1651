"""Operators that go along an axis one element after the other; Relax would call a library for them.

Blocks say what they read of their input alone: one that says it reads what it writes is not divided among threads of a
GPU. Every line is one thread's, which reads only what it wrote itself.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from targets.tvm.builder import Emitter, Expr, FunctionBuilder, tensor_type
from targets.tvm.operators.reading import (
    axis_of,
    constant,
    dtype_of,
    input_shape,
    integer,
    operand,
    shape_of,
)

op = relax.op


def _around(sizes: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Elements before, along and behind an axis."""
    return math.prod(sizes[:axis]), sizes[axis], math.prod(sizes[axis + 1 :])


def _cum_sum(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    axis = int(constant(node, 1).reshape(-1)[0]) % len(input_shape(node))
    sizes = _around(input_shape(node), axis)
    x = b.emit(op.reshape(operands[0], sizes))
    options = bool(integer(node, "exclusive", 0)), bool(integer(node, "reverse", 0))
    sums = b.call(
        running_sum, [x], tensor_type(sizes, operand(node, 0).dtype), *sizes, *options, dtype_of(node)
    )
    return op.reshape(sums, shape_of(node))


def running_sum(A: int, N: int, B: int, exclusive: bool, reverse: bool, dtype: str) -> Any:
    """y[a, n, b] = x[a, 0, b] + … + x[a, n, b], without the last one if `exclusive`, from behind if `reverse`."""
    first, step, shift = (N - 1, -1, 1) if reverse else (0, 1, 1)
    lag = shift if exclusive else 0
    start = 0 if exclusive else 1

    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((A, N, B), dtype), y: T.Buffer((A, N, B), dtype)):
        for a, b in T.grid(A, B):
            with T.sblock("line"):
                va, vb = T.axis.remap("SS", [a, b])
                T.reads(x[va, 0:N, vb])
                T.writes(y[va, 0:N, vb])
                y[va, first, vb] = x[va, first, vb] * T.Cast(dtype, start)
                for n in range(N - 1):
                    y[va, first + step * (n + 1), vb] = (
                        y[va, first + step * n, vb] + x[va, first + step * (n + 1 - lag), vb]
                    )

    return kernel


def _top_k(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """The k best and where they stood, the best first; of equal ones the first counts first."""
    sizes = _around(input_shape(node), axis_of(node, -1))
    many = int(constant(node, 1).reshape(-1)[0])
    x = b.emit(op.reshape(operands[0], sizes))
    shape = (sizes[0], many, sizes[2])
    types = [tensor_type(shape, operand(node, 0).dtype), tensor_type(shape, "i64")]
    largest = bool(integer(node, "largest", 1))
    found = b.call(best_of_line, [x], types, *sizes, many, largest, dtype_of(node))
    return [op.reshape(b.emit(relax.TupleGetItem(found, place)), shape_of(node)) for place in (0, 1)]


def best_of_line(A: int, N: int, B: int, K: int, largest: bool, dtype: str) -> Any:
    """A · B lines of N numbers, K passes over each: the next is the best that comes behind the one before it."""
    factor = T.Cast(dtype, 1 if largest else -1)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((A, N, B), dtype),
        values: T.Buffer((A, K, B), dtype),
        places: T.Buffer((A, K, B), "int64"),
    ):
        for a, b in T.grid(A, B):
            with T.sblock("line"):
                va, vb = T.axis.remap("SS", [a, b])
                T.reads(x[va, 0:N, vb])
                T.writes(values[va, 0:K, vb], places[va, 0:K, vb])
                for k in range(K):
                    before: T.let = T.max(k - 1, 0)
                    places[va, k, vb] = T.int64(-1)
                    for n in range(N):
                        behind: T.let = T.Or(
                            k == 0,
                            T.Or(
                                x[va, n, vb] * factor < values[va, before, vb] * factor,
                                T.And(
                                    x[va, n, vb] == values[va, before, vb],
                                    T.Cast("int64", n) > places[va, before, vb],
                                ),
                            ),
                        )
                        better: T.let = T.Or(
                            places[va, k, vb] < T.int64(0),
                            x[va, n, vb] * factor > values[va, k, vb] * factor,
                        )
                        if T.And(behind, better):
                            values[va, k, vb] = x[va, n, vb]
                            places[va, k, vb] = T.Cast("int64", n)

    return kernel


SCANS: Mapping[str, Emitter] = {"CumSum": _cum_sum, "TopK": _top_k}
"""Operator → what writes it."""
