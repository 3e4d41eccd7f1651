"""Operators whose state a step rewrites as a whole: causal convolutions and linear attention, in place.

A token moves the state once from memory and back: 8 × heads × k × v bytes a layer for linear attention, with 5
operations for every number of it (8 with the delta rule). In a prompt a block of the state, all k rows of 16 columns,
stays in the first-level cache from token to token.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from partc.ir.operators.linear_attention import has_beta
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.kernels.vector import exp, loop_of, place_within
from targets.tvm.operators import input_shape
from targets.tvm.operators.reading import decimal, dtype_of

LANES = 16


def causal_conv(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """Convolve rows [batch, rows, channels] behind the rows of the state [batch, kernel - 1, channels]."""
    state, x, weight, length, *rest = operands
    batch, rows, channels = input_shape(node, 1)
    bias = rest[0] if rest else relax.const(np.zeros(channels, np.float32))
    sizes = (batch, rows, channels, input_shape(node, 2)[1], dtype_of(node))
    types = [type_of(node.outputs[1]), type_of(node.outputs[0])]
    last, out = b.update_and_call(convolve, [state, x, weight, length, bias], types, *sizes)
    return [out, last]


def linear_attention(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """Change a state [batch, heads, k, v] by every row, and read it with the row's query."""
    batch, rows, heads, width = input_shape(node, 3)
    groups, k = input_shape(node, 1)[2:]
    sizes = (batch, rows, heads, groups, k, width, input_shape(node, 4)[3] > 1)
    types = [type_of(node.outputs[1]), type_of(node.outputs[0])]
    make = attend_by_rows if width == 1 else attend_by_columns
    beta = operands[6] if has_beta(node) else relax.const(np.zeros((1, 1, 1), np.float32))
    last, out = b.update_and_call(
        make, [*operands[:6], beta], types, *sizes, has_beta(node), decimal(node, "scale", 1.0)
    )
    return [out, last]


def convolve(B: int, S: int, C: int, K: int, dtype: str) -> Any:
    """A thread takes channels, 16 at a time; a number of the state is read before its place is written."""
    W, KEPT = math.gcd(C, LANES), K - 1
    loop = loop_of(2 * B * S * C * K)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        state: T.Buffer((B, KEPT, C), dtype),
        x: T.Buffer((B, S, C), "float32"),
        weight: T.Buffer((C, K), "float32"),
        length: T.Buffer((B,), "int64"),
        bias: T.Buffer((C,), "float32"),
        out: T.Buffer((B, S, C), "float32"),
    ):
        for part in loop(B * (C // W)):
            b: T.let = part // (C // W)
            c: T.let = part % (C // W) * W
            total = T.alloc_buffer((W,), "float32")
            for s in range(S):
                for lane in T.vectorized(W):
                    total[lane] = bias[c + lane]
                for k in range(K):
                    if s + k < KEPT:
                        for lane in T.vectorized(W):
                            total[lane] = total[lane] + weight[c + lane, k] * state[
                                b, T.min(s + k, KEPT - 1), c + lane
                            ].astype("float32")
                    else:
                        for lane in T.vectorized(W):
                            total[lane] = (
                                total[lane] + weight[c + lane, k] * x[b, T.max(s + k - KEPT, 0), c + lane]
                            )
                for lane in T.vectorized(W):
                    out[b, s, c + lane] = total[lane]
            for j in range(KEPT):
                place: T.let = place_within(length[b], S) + j
                if place < KEPT:
                    for lane in T.vectorized(W):
                        state[b, j, c + lane] = state[b, T.min(place, KEPT - 1), c + lane]
                else:
                    for lane in T.vectorized(W):
                        state[b, j, c + lane] = x[b, T.max(place - KEPT, 0), c + lane].astype(dtype)

    return kernel


def attend_by_columns(
    B: int, S: int, H: int, G: int, K: int, V: int, by_channel: bool, delta: bool, scale: float
) -> Any:
    """A thread takes blocks of a head: all its k rows, 16 columns. Rows behind `length` give zeros."""
    W, SHARED, D = math.gcd(V, LANES), H // G, K if by_channel else 1
    RATES = (B, S, H) if delta else (1, 1, 1)
    loop = loop_of(8 * B * S * H * K * V)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        state: T.Buffer((B, H, K, V), "float32"),
        query: T.Buffer((B, S, G, K), "float32"),
        key: T.Buffer((B, S, G, K), "float32"),
        value: T.Buffer((B, S, H, V), "float32"),
        decay: T.Buffer((B, S, H, D), "float32"),
        length: T.Buffer((B,), "int64"),
        beta: T.Buffer(RATES, "float32"),
        out: T.Buffer((B, S, H, V), "float32"),
    ):
        for part in loop(B * H * (V // W)):
            b: T.let = part // (H * (V // W))
            h: T.let = part // (V // W) % H
            g: T.let = h // SHARED
            v: T.let = part % (V // W) * W
            stays = T.alloc_buffer((D,), "float32")
            new = T.alloc_buffer((W,), "float32")
            read = T.alloc_buffer((W,), "float32")
            for s in range(S):
                for lane in T.vectorized(W):
                    read[lane] = T.float32(0)
                if s < place_within(length[b], S):
                    for d in range(D):
                        stays[d] = exp(decay[b, s, h, d])
                    for lane in T.vectorized(W):
                        new[lane] = value[b, s, h, v + lane]
                    if delta:
                        for k in range(K):
                            for lane in T.vectorized(W):
                                read[lane] = read[lane] + state[b, h, k, v + lane] * (
                                    stays[k % D] * key[b, s, g, k]
                                )
                        for lane in T.vectorized(W):
                            new[lane] = (new[lane] - read[lane]) * beta[b, s, h]
                            read[lane] = T.float32(0)
                    for k in range(K):
                        for lane in T.vectorized(W):
                            state[b, h, k, v + lane] = (
                                state[b, h, k, v + lane] * stays[k % D] + key[b, s, g, k] * new[lane]
                            )
                            read[lane] = read[lane] + state[b, h, k, v + lane] * query[b, s, g, k]
                for lane in T.vectorized(W):
                    out[b, s, h, v + lane] = read[lane] * T.float32(scale)

    return kernel


def attend_by_rows(
    B: int, S: int, H: int, G: int, K: int, V: int, by_channel: bool, delta: bool, scale: float
) -> Any:
    """The same for heads of one column, whose k numbers lie side by side (Mamba 1); a thread takes heads."""
    W, SHARED, D = math.gcd(K, LANES), H // G, K if by_channel else 1
    RATES = (B, S, H) if delta else (1, 1, 1)
    loop = loop_of(8 * B * S * H * K)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        state: T.Buffer((B, H, K, V), "float32"),
        query: T.Buffer((B, S, G, K), "float32"),
        key: T.Buffer((B, S, G, K), "float32"),
        value: T.Buffer((B, S, H, V), "float32"),
        decay: T.Buffer((B, S, H, D), "float32"),
        length: T.Buffer((B,), "int64"),
        beta: T.Buffer(RATES, "float32"),
        out: T.Buffer((B, S, H, V), "float32"),
    ):
        for head in loop(B * H):
            b: T.let = head // H
            h: T.let = head % H
            g: T.let = h // SHARED
            sums = T.alloc_buffer((W,), "float32")
            new = T.alloc_buffer((1,), "float32")
            for s in range(S):
                for lane in T.vectorized(W):
                    sums[lane] = T.float32(0)
                if s < place_within(length[b], S):
                    new[0] = value[b, s, h, 0]
                    for part in range(K // W):
                        for lane in T.vectorized(W):
                            state[b, h, part * W + lane, 0] = state[b, h, part * W + lane, 0] * exp(
                                decay[b, s, h, part * W + lane if by_channel else 0]
                            )
                    if delta:
                        for part in range(K // W):
                            for lane in T.vectorized(W):
                                sums[lane] = (
                                    sums[lane]
                                    + state[b, h, part * W + lane, 0] * key[b, s, g, part * W + lane]
                                )
                        for lane in range(W):
                            new[0] = new[0] - sums[lane]
                        new[0] = new[0] * beta[b, s, h]
                        for lane in T.vectorized(W):
                            sums[lane] = T.float32(0)
                    for part in range(K // W):
                        for lane in T.vectorized(W):
                            state[b, h, part * W + lane, 0] = (
                                state[b, h, part * W + lane, 0] + key[b, s, g, part * W + lane] * new[0]
                            )
                            sums[lane] = (
                                sums[lane] + state[b, h, part * W + lane, 0] * query[b, s, g, part * W + lane]
                            )
                new[0] = T.float32(0)
                for lane in range(W):
                    new[0] = new[0] + sums[lane]
                out[b, s, h, 0] = new[0] * T.float32(scale)

    return kernel
