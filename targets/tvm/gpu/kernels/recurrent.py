"""Operators whose state a step rewrites as a whole: causal convolutions and linear attention, in place.

A block takes 32 channels of a convolution, or 32 columns of states, which no other block reads or writes. Its eight
threads a column share the rows of the step, or those of the state: linear attention keeps its part of the state in
registers, token by token, so that a step of any length moves the state once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from partc.ir.operators.linear_attention import has_beta
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.gpu.kernels.threads import gpu_func, in_pairs, local, shared, wait
from targets.tvm.kernels.script import Buffer, store
from targets.tvm.kernels.vector import ACTIVATIONS, place_within
from targets.tvm.operators import input_shape
from targets.tvm.operators.reading import decimal, dtype_of, text

_LANES, _PARTS = 32, 8


def causal_conv(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """`partc.CausalConv` of rows [batch, rows, channels]; with `activation`, its sums go through that."""
    state, x, weight, length, *rest = operands
    batch, rows, channels = input_shape(node, 1)
    bias = rest[0] if rest else relax.const(np.zeros(channels, np.float32))
    sizes = (batch, rows, channels, input_shape(node, 2)[1], dtype_of(node), text(node, "activation", ""))
    types = [type_of(node.outputs[1]), type_of(node.outputs[0])]
    last, out = b.update_and_call(convolve, [state, x, weight, length, bias], types, *sizes)
    return [out, last]


def linear_attention(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
    """`partc.LinearAttention`: change a state [batch, heads, k, v] by every row, and read it with the row's query."""
    batch, rows, heads, width = input_shape(node, 3)
    groups, k = input_shape(node, 1)[2:]
    by_channel, scale = input_shape(node, 4)[3] > 1, decimal(node, "scale", 1.0)
    beta = operands[6] if has_beta(node) else relax.const(np.zeros((1, 1, 1), np.float32))
    sizes = (batch, rows, heads, groups, k, width, by_channel, has_beta(node), scale)
    types = [type_of(node.outputs[1]), type_of(node.outputs[0])]
    last, out = b.update_and_call(attend_in_order, [*operands[:6], beta], types, *sizes)
    return [out, last]


def convolve(B: int, S: int, C: int, K: int, dtype: str, activation: str) -> Any:
    """out[b, s, c]: the sums; the state [b, kernel - 1, c] becomes the last valid rows."""
    kept, function = K - 1, ACTIVATIONS.get(activation, lambda x: x)

    def write(
        blocks: Sequence[Expr], threads: Sequence[Expr],
        state: Buffer, x: Buffer, weight: Buffer, length: Buffer, bias: Buffer, out: Buffer,
    ) -> None:  # fmt: skip
        part, b = blocks
        lane, first = threads
        c = T.bind(part * _LANES + lane)

        def seen(place: Expr) -> Expr:
            old = T.Cast("float32", state[b, T.min(place, kept - 1), c])
            return T.if_then_else(place < kept, old, x[b, T.max(place - kept, 0), c])

        with T.serial(math.ceil(S / _PARTS)) as turn:
            s = T.bind(turn * _PARTS + first)
            with T.If(T.And(c < C, s < S)), T.Then():
                total: Expr = bias[c]
                for k in range(K):
                    total = total + weight[c, k] * seen(s + k)
                store(out, [b, s, c], function(T.bind(total)))
        wait()
        with T.If(T.And(c < C, first == 0)), T.Then(), T.serial(kept) as j:
            number = seen(T.bind(place_within(length[b], S) + j))  # of a place behind j, or of x
            store(state, [b, j, c], number if dtype == "float32" else T.Cast(dtype, number))

    parameters = {
        "state": ((B, kept, C), dtype),
        "x": ((B, S, C), "float32"),
        "weight": ((C, K), "float32"),
        "length": ((B,), "int64"),
        "bias": ((C,), "float32"),
        "out": ((B, S, C), "float32"),
    }
    return gpu_func(parameters, (math.ceil(C / _LANES), B), (_LANES, _PARTS), write)


def attend_in_order(
    B: int, S: int, H: int, G: int, K: int, V: int, by_channel: bool, delta: bool, scale: float
) -> Any:
    """A thread has every eighth row of a column of a head's state. Rows of the step behind `length` give zeros."""
    own = math.ceil(K / _PARTS)

    def write(
        blocks: Sequence[Expr], threads: Sequence[Expr],
        state: Buffer, query: Buffer, key: Buffer, value: Buffer, decay: Buffer, length: Buffer, beta: Buffer,
        out: Buffer,
    ) -> None:  # fmt: skip
        group, b = blocks
        lane, part = threads
        column = T.bind(T.min(group * _LANES + lane, H * V - 1))  # of the states of all heads side by side
        is_own = T.bind(group * _LANES + lane < H * V)
        h, v = T.bind(column // V), T.bind(column % V)
        g = T.bind(h // (H // G))
        ks = [T.bind(T.min(part + _PARTS * i, K - 1)) for i in range(own)]
        there = [part + _PARTS * i < K for i in range(own)]
        numbers, olds, reads = local((own,)), shared((_PARTS, _LANES)), shared((_PARTS, _LANES))

        def masked(i: int, number: Expr) -> Expr:
            return number if _PARTS * (i + 1) <= K else T.Select(there[i], number, T.float32(0))

        def whole(room: Buffer) -> Expr:
            return T.bind(in_pairs([room[i, lane] for i in range(_PARTS)]))

        for i in range(own):
            store(numbers, [i], state[b, h, ks[i], v])
        rows = T.bind(T.Cast("int32", place_within(length[b], S)))
        with T.serial(rows) as s:
            keys = [T.bind(masked(i, key[b, s, g, ks[i]])) for i in range(own)]
            stays = [
                T.bind(T.exp(decay[b, s, h, k if by_channel else 0])) for k in (ks if by_channel else ks[:1])
            ]
            for i in range(own):
                store(numbers, [i], numbers[i] * stays[i % len(stays)])
            new = value[b, s, h, v]
            if delta:
                store(olds, [part, lane], in_pairs([numbers[i] * keys[i] for i in range(own)]))
                wait()
                new = (new - whole(olds)) * beta[b, s, h]
            new = T.bind(new)
            for i in range(own):
                store(numbers, [i], numbers[i] + keys[i] * new)
            store(
                reads,
                [part, lane],
                in_pairs([numbers[i] * masked(i, query[b, s, g, ks[i]]) for i in range(own)]),
            )
            wait()
            total = whole(reads)
            with T.If(T.And(is_own, part == 0)), T.Then():
                store(out, [b, s, h, v], total * T.float32(scale))
            wait()
        for i in range(own):
            with T.If(T.And(is_own, there[i])), T.Then():
                store(state, [b, h, ks[i], v], numbers[i])
        with T.If(T.And(is_own, part == 0)), T.Then(), T.serial(S - rows) as left:
            store(out, [b, rows + left, h, v], T.float32(0))

    parameters = {
        "state": ((B, H, K, V), "float32"),
        "query": ((B, S, G, K), "float32"),
        "key": ((B, S, G, K), "float32"),
        "value": ((B, S, H, V), "float32"),
        "decay": ((B, S, H, K if by_channel else 1), "float32"),
        "length": ((B,), "int64"),
        "beta": ((B, S, H) if delta else (1, 1, 1), "float32"),
        "out": ((B, S, H, V), "float32"),
    }
    return gpu_func(parameters, (math.ceil(H * V / _LANES), B), (_LANES, _PARTS), write)
