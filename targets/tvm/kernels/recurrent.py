"""Operators whose state a step rewrites as a whole: causal convolutions and linear attention, in place.

A token moves the state once from memory and back: 8 × heads × k × v bytes a layer for linear attention, with 5
operations for every number of it (8 with the delta rule). It does so in runs of 64 columns, which a core reads faster
than single lines. Prompts are computed by chunks (`recurrent_chunks.py`), but token by token where every key channel
has a decay of its own: a block of the state, all k rows of 32 columns, stays in the first-level cache meanwhile.
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
from targets.tvm.kernels.recurrent_chunks import attend_by_chunks, fits
from targets.tvm.kernels.vector import ACTIVATIONS, exp, loop_of, place_within
from targets.tvm.operators import input_shape
from targets.tvm.operators.reading import decimal, dtype_of, text

LANES = 16
RUN = 64
"""Channels of a convolution, or columns of a state, that are taken side by side."""
DEPTH = 8
"""Rows of a state that are, where it has more columns."""


def causal_conv(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """Convolve rows [batch, rows, channels] behind the rows of the state [batch, kernel - 1, channels].

    With `activation`, which `fuse.py` writes, the sums go through that.
    """
    state, x, weight, length, *rest = operands
    batch, rows, channels = input_shape(node, 1)
    bias = rest[0] if rest else relax.const(np.zeros(channels, np.float32))
    sizes = (batch, rows, channels, input_shape(node, 2)[1], dtype_of(node), text(node, "activation", ""))
    types = [type_of(node.outputs[1]), type_of(node.outputs[0])]
    last, out = b.update_and_call(convolve, [state, x, weight, length, bias], types, *sizes)
    return [out, last]


def linear_attention(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """Change a state [batch, heads, k, v] by every row, and read it with the row's query."""
    batch, rows, heads, width = input_shape(node, 3)
    groups, k = input_shape(node, 1)[2:]
    by_channel, scale = input_shape(node, 4)[3] > 1, decimal(node, "scale", 1.0)
    sizes: tuple[Any, ...] = (batch, rows, heads, groups, k, width)
    types = [type_of(node.outputs[1]), type_of(node.outputs[0])]
    beta = operands[6] if has_beta(node) else relax.const(np.zeros((1, 1, 1), np.float32))
    given = [*operands[:6], beta]
    if width > 1 and fits(rows, k, by_channel):
        last, out = b.update_and_call(attend_by_chunks, given, types, *sizes, has_beta(node), scale)
    else:
        make = attend_by_rows if width == 1 else attend_by_columns
        last, out = b.update_and_call(make, given, types, *sizes, by_channel, has_beta(node), scale)
    return [out, last]


def convolve(B: int, S: int, C: int, K: int, dtype: str, activation: str) -> Any:
    """A thread takes channels; a number of the state is read before its place is written."""
    W, KEPT = math.gcd(C, LANES), K - 1
    R = math.gcd(C, RUN) if W == LANES else W
    loop, function = loop_of(2 * B * S * C * K), ACTIVATIONS.get(activation, lambda x: x)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        state: T.Buffer((B, KEPT, C), dtype),
        x: T.Buffer((B, S, C), "float32"),
        weight: T.Buffer((C, K), "float32"),
        length: T.Buffer((B,), "int64"),
        bias: T.Buffer((C,), "float32"),
        out: T.Buffer((B, S, C), "float32"),
    ):
        for part in loop(B * (C // R)):
            b: T.let = part // (C // R)
            c: T.let = part % (C // R) * R
            taps = T.alloc_buffer((K, R), "float32")
            total = T.alloc_buffer((W,), "float32")
            for k in range(K):
                for lane in T.vectorized(R):
                    taps[k, lane] = weight[c + lane, k]
            for s in range(S):
                for run in range(R // W):
                    for lane in T.vectorized(W):
                        total[lane] = bias[c + run * W + lane]
                    if s < KEPT:
                        for k in range(K):
                            for lane in T.vectorized(W):
                                total[lane] = total[lane] + taps[k, run * W + lane] * T.if_then_else(
                                    s + k < KEPT,
                                    state[b, T.min(s + k, KEPT - 1), c + run * W + lane].astype("float32"),
                                    x[b, T.max(s + k - KEPT, 0), c + run * W + lane],
                                )
                    else:
                        for k in T.unroll(K):
                            for lane in T.vectorized(W):
                                total[lane] = (
                                    total[lane]
                                    + taps[k, run * W + lane] * x[b, s + k - KEPT, c + run * W + lane]
                                )
                    for lane in T.vectorized(W):
                        out[b, s, c + run * W + lane] = function(total[lane])
            for j in range(KEPT):
                place: T.let = place_within(length[b], S) + j
                for run in range(R // W):
                    if place < KEPT:
                        for lane in T.vectorized(W):
                            state[b, j, c + run * W + lane] = state[
                                b, T.min(place, KEPT - 1), c + run * W + lane
                            ]
                    else:
                        for lane in T.vectorized(W):
                            state[b, j, c + run * W + lane] = x[
                                b, T.max(place - KEPT, 0), c + run * W + lane
                            ].astype(dtype)

    return kernel


@T.macro
def bring(sums, read, first, N, W):
    """Take N times W sums from where they wait."""
    for n in T.unroll(N):
        for lane in T.vectorized(W):
            sums[n, lane] = read[first + n * W + lane]


@T.macro
def leave(sums, read, first, N, W):
    """Put them back there."""
    for n in T.unroll(N):
        for lane in T.vectorized(W):
            read[first + n * W + lane] = sums[n, lane]


@T.macro
def ask_for(state, head, H, k, v):
    """Ask for a line of the state of a head ahead of time."""
    T.evaluate(
        T.call_llvm_intrin(
            "void",
            "llvm.prefetch",
            T.address_of(state[head // H, head % H, k, v]),
            T.int32(0),
            T.int32(3),
            T.int32(1),
        )
    )


def attend_by_columns(
    B: int, S: int, H: int, G: int, K: int, V: int, by_channel: bool, delta: bool, scale: float
) -> Any:
    """A thread takes a head, or with several rows 32 columns of it. Rows behind `length` give zeros.

    A token passes over the state in the order of memory, some k rows by some columns at a time, for which the sums
    stay in registers. With the delta rule it does so twice, and asks for the next head in the second pass, in which
    memory would be idle.
    """
    W, SHARED, D = math.gcd(V, LANES), H // G, K if by_channel else 1
    R = math.gcd(V, RUN if S == 1 else RUN // 2) if W == LANES else W
    WIDE, N, WD = V if S == 1 else R, R // W, math.gcd(D, LANES)
    DEEP = K if WIDE == R else math.gcd(K, DEPTH)
    ASK = S == 1 and delta
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
        for part in loop(B * H * (V // WIDE)):
            b: T.let = part // (H * (V // WIDE))
            h: T.let = part // (V // WIDE) % H
            g: T.let = h // SHARED
            v: T.let = part % (V // WIDE) * WIDE
            stays = T.alloc_buffer((D,), "float32")
            new = T.alloc_buffer((WIDE,), "float32")
            read = T.alloc_buffer((WIDE,), "float32")
            sums = T.alloc_buffer((N, W), "float32")
            for s in range(S):
                for run in range(WIDE // W):
                    for lane in T.vectorized(W):
                        read[run * W + lane] = T.float32(0)
                if s < place_within(length[b], S):
                    for d in range(D // WD):
                        for lane in T.vectorized(WD):
                            stays[d * WD + lane] = exp(decay[b, s, h, d * WD + lane])
                    for run in range(WIDE // W):
                        for lane in T.vectorized(W):
                            new[run * W + lane] = value[b, s, h, v + run * W + lane]
                    if delta:
                        for block in range(K // DEEP):
                            for run in range(WIDE // R):
                                bring(sums, read, run * R, N, W)
                                for deep in range(DEEP):
                                    k: T.let = block * DEEP + deep
                                    for n in T.unroll(N):
                                        for lane in T.vectorized(W):
                                            sums[n, lane] = sums[n, lane] + state[
                                                b, h, k, v + run * R + n * W + lane
                                            ] * (stays[k % D] * key[b, s, g, k])
                                leave(sums, read, run * R, N, W)
                        for run in range(WIDE // W):
                            for lane in T.vectorized(W):
                                new[run * W + lane] = (new[run * W + lane] - read[run * W + lane]) * beta[
                                    b, s, h
                                ]
                                read[run * W + lane] = T.float32(0)
                    for block in range(K // DEEP):
                        for run in range(WIDE // R):
                            bring(sums, read, run * R, N, W)
                            for deep in range(DEEP):
                                k: T.let = block * DEEP + deep
                                if ASK:
                                    for n in T.unroll(N):
                                        ask_for(state, T.min(part + 1, B * H - 1), H, k, run * R + n * W)
                                for n in T.unroll(N):
                                    for lane in T.vectorized(W):
                                        state[b, h, k, v + run * R + n * W + lane] = (
                                            state[b, h, k, v + run * R + n * W + lane] * stays[k % D]
                                            + key[b, s, g, k] * new[run * R + n * W + lane]
                                        )
                                        sums[n, lane] = (
                                            sums[n, lane]
                                            + state[b, h, k, v + run * R + n * W + lane] * query[b, s, g, k]
                                        )
                            leave(sums, read, run * R, N, W)
                for run in range(WIDE // W):
                    for lane in T.vectorized(W):
                        out[b, s, h, v + run * W + lane] = read[run * W + lane] * T.float32(scale)

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
