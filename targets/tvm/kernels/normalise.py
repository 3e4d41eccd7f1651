"""Normalisations of rows: two passes over a row that lies in the first-level cache by the second.

M rows of N numbers: moves 4(2MN + N) bytes, does 4MN operations (5MN with a mean), intensity 1/2: bound by memory, or
at a decode step by the latency of a few hundred additions.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from typing import Any

from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from targets.tvm.builder import Expr, FunctionBuilder, tensor_type
from targets.tvm.kernels.vector import loop_of
from targets.tvm.operators import OPERATORS, input_shape, shape_of
from targets.tvm.operators.reading import axis_of, decimal, dtype_of, has

LANES = 16


def rms_normalization(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Rows as x / √(mean of x² + ε) · weight."""
    if not _is_last_axis(node) or len(node.outputs) > 1:
        return OPERATORS["RMSNormalization"](b, node, operands)
    rows, columns = _sizes(node)
    x = b.emit(relax.op.reshape(operands[0], (rows, columns)))
    result = tensor_type((rows, columns), "f32")
    flat = b.call(rms_norm, [x, operands[1]], result, rows, columns, decimal(node, "epsilon", 1e-5))
    return relax.op.reshape(flat, shape_of(node))


def layer_normalization(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr | list[Expr]:
    """Rows as (x - mean) / √(variance + ε) · weight + bias."""
    if not _is_last_axis(node) or len(node.outputs) > 1 or not has(node, 2):
        return OPERATORS["LayerNormalization"](b, node, operands)
    rows, columns = _sizes(node)
    x = b.emit(relax.op.reshape(operands[0], (rows, columns)))
    result = tensor_type((rows, columns), "f32")
    flat = b.call(layer_norm, [x, *operands[1:3]], result, rows, columns, decimal(node, "epsilon", 1e-5))
    return relax.op.reshape(flat, shape_of(node))


def _is_last_axis(node: Node) -> bool:
    """Rows of float32, with a number of the weight (and bias) for every column."""
    last = len(input_shape(node)) - 1
    columns = input_shape(node)[last:]
    fits = all(input_shape(node, place) == columns for place in range(1, len(node.inputs)))
    return axis_of(node, -1) == last and fits and dtype_of(node) == "float32" and columns[0] % LANES == 0


def _sizes(node: Node) -> tuple[int, int]:
    *leading, columns = input_shape(node)
    return math.prod(leading), columns


@T.macro
def add_up(lanes, total):
    """total[0] = the sum of 16 lanes, by halves."""
    for lane in T.vectorized(8):
        lanes[lane] = lanes[lane] + lanes[lane + 8]
    for lane in T.vectorized(4):
        lanes[lane] = lanes[lane] + lanes[lane + 4]
    total[0] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])


def rms_norm(M: int, N: int, epsilon: float) -> Any:
    """A thread takes rows; each sums its squares in 16 lanes."""
    loop = loop_of(4 * M * N)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((M, N), "float32"), weight: T.Buffer((N,), "float32"), y: T.Buffer((M, N), "float32")
    ):
        for row in loop(M):
            lanes = T.alloc_buffer((LANES,), "float32")
            total = T.alloc_buffer((1,), "float32")
            for lane in T.vectorized(LANES):
                lanes[lane] = T.float32(0)
            for part in range(N // LANES):
                for lane in T.vectorized(LANES):
                    lanes[lane] = lanes[lane] + x[row, part * LANES + lane] * x[row, part * LANES + lane]
            add_up(lanes, total)
            total[0] = T.float32(1) / T.sqrt(total[0] * T.float32(1 / N) + T.float32(epsilon))
            for part in range(N // LANES):
                for lane in T.vectorized(LANES):
                    y[row, part * LANES + lane] = (
                        x[row, part * LANES + lane] * total[0] * weight[part * LANES + lane]
                    )

    return kernel


def layer_norm(M: int, N: int, epsilon: float) -> Any:
    """The same as `rms_norm`, after the mean; the variance is that of differences, which keeps digits."""
    loop = loop_of(6 * M * N)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        x: T.Buffer((M, N), "float32"),
        weight: T.Buffer((N,), "float32"),
        bias: T.Buffer((N,), "float32"),
        y: T.Buffer((M, N), "float32"),
    ):
        for row in loop(M):
            lanes = T.alloc_buffer((LANES,), "float32")
            mean = T.alloc_buffer((1,), "float32")
            total = T.alloc_buffer((1,), "float32")
            for lane in T.vectorized(LANES):
                lanes[lane] = T.float32(0)
            for part in range(N // LANES):
                for lane in T.vectorized(LANES):
                    lanes[lane] = lanes[lane] + x[row, part * LANES + lane]
            add_up(lanes, mean)
            mean[0] = mean[0] * T.float32(1 / N)
            for lane in T.vectorized(LANES):
                lanes[lane] = T.float32(0)
            for part in range(N // LANES):
                for lane in T.vectorized(LANES):
                    lanes[lane] = lanes[lane] + (x[row, part * LANES + lane] - mean[0]) * (
                        x[row, part * LANES + lane] - mean[0]
                    )
            add_up(lanes, total)
            total[0] = T.float32(1) / T.sqrt(total[0] * T.float32(1 / N) + T.float32(epsilon))
            for part in range(N // LANES):
                for lane in T.vectorized(LANES):
                    y[row, part * LANES + lane] = (x[row, part * LANES + lane] - mean[0]) * total[0] * weight[
                        part * LANES + lane
                    ] + bias[part * LANES + lane]

    return kernel
