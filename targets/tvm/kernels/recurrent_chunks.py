"""Linear attention over prompts: 16 tokens at a time, as products of small matrices; a decay for every head.

As in SSD of Mamba 2 (https://arxiv.org/abs/2405.21060, section 6) and in the WY form of the delta rule
(https://arxiv.org/abs/2412.06464, section 3.3), with chunks so short that the state and all that a chunk needs stay in
the second-level cache: nothing is kept of a chunk but the state. For a chunk with the state S before it, and d(u, t)
the product of all that stays from behind token u to token t, d(t) from the beginning:

    new[t]  = value[t]; with beta: beta[t] (value[t] - d(t) keyᵗ S - Σ over u < t of d(u, t) (key[t] · key[u]) new[u])
    out[t]  = scale (d(t) query[t]ᵀ S + Σ over u ≤ t of d(u, t) (query[t] · key[u]) new[u])
    S       = d(15) S + Σ over u of d(u, 15) key[u] new[u]ᵀ

No product of decays is divided by another, so none overflows. A token costs 4 × k × v operations (6 with beta) and 32
(k + v) more. A thread takes heads, and reads the state of a head twice (three times) from the cache for 16 tokens,
where a loop over tokens does so for each.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from typing import Any

from tvm.script import tirx as T

from targets.tvm.kernels.vector import exp, loop_of, place_within

CHUNK = 16
"""Tokens that are computed together."""
TILE = 4
"""Rows of a tile of results: with 16 columns they take half the registers of AVX2."""
LEAST = 1e-30
"""Least factor that is no 0: products with smaller ones are not normal numbers, which some processors are slow with."""


def fits(rows: int, k: int, by_channel: bool) -> bool:
    """Whether the kernel does it."""
    return rows >= CHUNK and not by_channel and k % TILE == 0


def attend_by_chunks(B: int, S: int, H: int, G: int, K: int, V: int, delta: bool, scale: float) -> Any:
    """A thread takes heads. Rows behind `length` give zeros: their keys and queries count as zeros."""
    W, SHARED = math.gcd(V, 16), H // G
    RATES = (B, S, H) if delta else (1, 1, 1)
    loop = loop_of(8 * B * S * H * K * V)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        state: T.Buffer((B, H, K, V), "float32"),
        query: T.Buffer((B, S, G, K), "float32"),
        key: T.Buffer((B, S, G, K), "float32"),
        value: T.Buffer((B, S, H, V), "float32"),
        decay: T.Buffer((B, S, H, 1), "float32"),
        length: T.Buffer((B,), "int64"),
        beta: T.Buffer(RATES, "float32"),
        out: T.Buffer((B, S, H, V), "float32"),
    ):
        for head in loop(B * H):
            queries = T.alloc_buffer((CHUNK, K), "float32")
            keys = T.alloc_buffer((CHUNK, K), "float32")
            turned = T.alloc_buffer((K, CHUNK), "float32")
            stays = T.alloc_buffer((CHUNK, CHUNK), "float32")
            since = T.alloc_buffer((CHUNK,), "float32")
            seen = T.alloc_buffer((CHUNK, CHUNK), "float32")
            known = T.alloc_buffer((CHUNK, CHUNK), "float32")
            new = T.alloc_buffer((CHUNK, W), "float32")
            b: T.let = head // H
            h: T.let = head % H
            for chunk in range(-(-S // CHUNK)):
                first: T.let = chunk * CHUNK
                count: T.let = T.max(T.min(place_within(length[b], S) - first, CHUNK), 0)
                if count > 0:
                    decays(decay, stays, since, b, h, S, first, count)
                    take(query, queries, b, h // SHARED, S, K, first, count, scale)
                    take(key, keys, b, h // SHARED, S, K, first, count, 1.0)
                    turn(keys, turned, K)
                    compare(queries, turned, stays, seen, K)
                    lessen(queries, since, K)
                    if delta:
                        compare(keys, turned, stays, known, K)
                        lessen(keys, since, K)
                    weaken(turned, stays, K)
                    for part in range(V // W):
                        bring(value, new, b, h, part * W, W, S, first, count)
                        if delta:
                            for tile in range(CHUNK // TILE):
                                take_out(state, keys, new, b, h, part * W, W, K, tile * TILE)
                            solve(beta, known, new, b, h, W, S, first, count)
                        for tile in range(CHUNK // TILE):
                            read(state, queries, seen, new, out, b, h, part * W, W, K, S, first, tile * TILE)
                        for tile in range(K // TILE):
                            remember(state, turned, new, since, b, h, part * W, W, tile * TILE)
                else:
                    for s in range(CHUNK):
                        if first + s < S:
                            for part in range(V // W):
                                for lane in T.vectorized(W):
                                    out[b, first + s, h, part * W + lane] = T.float32(0)

    return kernel


@T.macro
def decays(decay, stays, since, b, h, S, first, count):
    """stays[t, u] = d(u, t), 0 for u > t; since[t] = d(t). Rows behind the last let everything stay."""
    one = T.alloc_buffer((1,), "float32")
    for t in range(CHUNK):
        one[0] = T.Select(t < count, exp(decay[b, T.min(first + t, S - 1), h, 0]), T.float32(1))
        since[t] = one[0] * T.Select(t > 0, since[T.max(t - 1, 0)], T.float32(1))
        since[t] = T.Select(since[t] < T.float32(LEAST), T.float32(0), since[t])
        for lane in T.vectorized(CHUNK):
            stays[t, lane] = T.Select(
                lane < t,
                stays[T.max(t - 1, 0), lane] * one[0],
                T.Select(lane == t, T.float32(1), T.float32(0)),
            )
        for lane in T.vectorized(CHUNK):
            stays[t, lane] = T.Select(stays[t, lane] < T.float32(LEAST), T.float32(0), stays[t, lane])


@T.macro
def take(x, rows, b, g, S, K, first, count, factor):
    """Queries or keys of a chunk side by side, times a number; zeros behind the last."""
    width = T.meta_var(math.gcd(K, 16))
    for t in range(CHUNK):
        for part in range(K // width):
            for lane in T.vectorized(width):
                rows[t, part * width + lane] = T.Select(
                    t < count,
                    x[b, T.min(first + t, S - 1), g, part * width + lane] * T.float32(factor),
                    T.float32(0),
                )


@T.macro
def turn(keys, turned, K):
    """The keys of a chunk, a row for every channel."""
    for k in range(K):
        for lane in T.vectorized(CHUNK):
            turned[k, lane] = keys[lane, k]


@T.macro
def compare(rows, turned, stays, products, K):
    """products[t, u] = d(u, t) (row t · key u)."""
    for tile in range(CHUNK // TILE):
        sums = T.alloc_buffer((TILE, CHUNK), "float32")
        for i in T.unroll(TILE):
            for lane in T.vectorized(CHUNK):
                sums[i, lane] = T.float32(0)
        for k in range(K):
            for i in T.unroll(TILE):
                for lane in T.vectorized(CHUNK):
                    sums[i, lane] = sums[i, lane] + rows[tile * TILE + i, k] * turned[k, lane]
        for i in T.unroll(TILE):
            for lane in T.vectorized(CHUNK):
                products[tile * TILE + i, lane] = sums[i, lane] * stays[tile * TILE + i, lane]


@T.macro
def lessen(rows, since, K):
    """Every row times what stays of the state before the chunk."""
    width = T.meta_var(math.gcd(K, 16))
    for t in range(CHUNK):
        for part in range(K // width):
            for lane in T.vectorized(width):
                rows[t, part * width + lane] = rows[t, part * width + lane] * since[t]


@T.macro
def weaken(turned, stays, K):
    """Every key times what stays of it to the end of the chunk."""
    for k in range(K):
        for lane in T.vectorized(CHUNK):
            turned[k, lane] = turned[k, lane] * stays[CHUNK - 1, lane]


@T.macro
def bring(value, new, b, h, v, W, S, first, count):
    """W columns of the values; zeros behind the last."""
    for t in range(CHUNK):
        for lane in T.vectorized(W):
            new[t, lane] = T.Select(t < count, value[b, T.min(first + t, S - 1), h, v + lane], T.float32(0))


@T.macro
def multiply(state, rows, sums, b, h, v, W, K, t):
    """A tile of rows times W columns of the state."""
    for i in T.unroll(TILE):
        for lane in T.vectorized(W):
            sums[i, lane] = T.float32(0)
    for k in range(K):
        for i in T.unroll(TILE):
            for lane in T.vectorized(W):
                sums[i, lane] = sums[i, lane] + rows[t + i, k] * state[b, h, k, v + lane]


@T.macro
def take_out(state, keys, new, b, h, v, W, K, t):
    """Values of a tile without what the state holds for their keys."""
    sums = T.alloc_buffer((TILE, W), "float32")
    multiply(state, keys, sums, b, h, v, W, K, t)
    for i in T.unroll(TILE):
        for lane in T.vectorized(W):
            new[t + i, lane] = new[t + i, lane] - sums[i, lane]


@T.macro
def solve(beta, known, new, b, h, W, S, first, count):
    """And what the tokens before it in the chunk brought for them, token by token."""
    total = T.alloc_buffer((W,), "float32")
    for t in range(CHUNK):
        for lane in T.vectorized(W):
            total[lane] = new[t, lane]
        for u in range(t):
            for lane in T.vectorized(W):
                total[lane] = total[lane] - known[t, u] * new[u, lane]
        for lane in T.vectorized(W):
            new[t, lane] = total[lane] * T.Select(
                t < count, beta[b, T.min(first + t, S - 1), h], T.float32(0)
            )


@T.macro
def read(state, queries, seen, new, out, b, h, v, W, K, S, first, t):
    """The results of a tile of tokens: from the state before the chunk, and from the tokens of the chunk."""
    sums = T.alloc_buffer((TILE, W), "float32")
    multiply(state, queries, sums, b, h, v, W, K, t)
    for u in range(t + TILE):
        for i in T.unroll(TILE):
            for lane in T.vectorized(W):
                sums[i, lane] = sums[i, lane] + seen[t + i, u] * new[u, lane]
    for i in T.unroll(TILE):
        if first + t + i < S:
            for lane in T.vectorized(W):
                out[b, first + t + i, h, v + lane] = sums[i, lane]


@T.macro
def remember(state, turned, new, since, b, h, v, W, k):
    """A tile of the state behind the chunk."""
    sums = T.alloc_buffer((TILE, W), "float32")
    for i in T.unroll(TILE):
        for lane in T.vectorized(W):
            sums[i, lane] = state[b, h, k + i, v + lane] * since[CHUNK - 1]
    for u in range(CHUNK):
        for i in T.unroll(TILE):
            for lane in T.vectorized(W):
                sums[i, lane] = sums[i, lane] + turned[k + i, u] * new[u, lane]
    for i in T.unroll(TILE):
        for lane in T.vectorized(W):
            state[b, h, k + i, v + lane] = sums[i, lane]
