"""`partc.Attention` over the cache: the keys that a query may see, once, and nothing behind them.

For n visible keys of size d, values of size e, and R queries that share them (queries of a block, heads of a group):

| step | operations | reads |
| --- | --- | --- |
| scores = scale · q kᵀ | 2 R n d | 4 n d |
| softmax, in a buffer [R, max_sequence] | some 20 R n | from the cache |
| scores · v | 2 R n e | 4 n e |

so the intensity is about R / 2 operations a byte: a decode step is bound by memory (R is the heads that share keys), a
prefill block of `BLOCK_ROWS` queries by arithmetic. Heads and blocks of queries are shared out among threads.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script import tirx as T

from partc.ir.graph import Node
from partc.ir.operators import ATTENTION
from partc.ir.operators.attention import rule_of
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.kernels.vector import exp, loop_of, tanh
from targets.tvm.operators import OPERATORS, input_shape
from targets.tvm.operators.reading import array, dtype_of, has, integer

BLOCK_ROWS = 48
"""Queries of a head that one thread takes at a time: keys are turned once for all of them."""
TILE_ROWS = 6
KEYS = 16
"""Keys of a tile of scores, and columns of values at most."""
LOWEST = -3.4e38


@dataclass(frozen=True)
class Sizes:
    """The parameters of one attention, for which its kernel is made."""

    batch: int
    heads: int
    rows: int
    d: int
    kv_heads: int
    keys: int
    e: int
    scale: float
    causal: bool
    window: int
    chunk: int
    softcap: float
    rows_first: bool
    """Whether the result is [batch, rows, heads, e], which the next product reads, or [batch, heads, rows, e]."""

    @property
    def width(self) -> int:
        """Numbers of a key or a value that one vector holds."""
        return math.gcd(math.gcd(self.d, self.e), KEYS)

    @property
    def result(self) -> tuple[int, int, int, int]:
        """Shape of what comes out."""
        inner = (self.rows, self.heads) if self.rows_first else (self.heads, self.rows)
        return (self.batch, *inner, self.e)

    def place(self, b: Any, h: Any, s: Any, column: Any) -> tuple[Any, Any, Any, Any]:
        """The place in the result of a number of head h and row s."""
        return (b, s, h, column) if self.rows_first else (b, h, s, column)

    @property
    def padded(self) -> int:
        """Keys, up to whole tiles."""
        return -(-self.keys // KEYS) * KEYS


def attention(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """Attention of q [batch, heads, rows, d] over k, v [batch, kv_heads, max_sequence, d] up to position [batch].

    The result is shaped as q, or with `rows_first` [batch, rows, heads, e]. Masks, sinks and other types than float32
    are left to the plain form.
    """
    if not fits(node):
        return OPERATORS[ATTENTION.name](b, node, operands)
    sizes = sizes_of(node)
    position = operands[3] if has(node, 3) else array(np.zeros(sizes.batch, np.int64))
    kernel = attention_of_one if sizes.rows == 1 else attention_of_many
    return b.call(kernel, [*operands[:3], position], type_of(node.outputs[0]), sizes)


def fits(node: Node) -> bool:
    """Whether there is a kernel for this attention."""
    return not has(node, 4) and not has(node, 5) and dtype_of(node) == "float32" and sizes_of(node).width >= 4


def sizes_of(node: Node) -> Sizes:
    """The parameters of a node."""
    batch, heads, rows, d = input_shape(node)
    kv_heads, keys = input_shape(node, 1)[1:3]
    rule = rule_of(node)
    seen = rule.visibility
    return Sizes(
        batch, heads, rows, d, kv_heads, keys, input_shape(node, 2)[3],
        scale=rule.scale, causal=seen.hides, window=seen.window, chunk=seen.chunk, softcap=rule.softcap,
        rows_first=integer(node, "rows_first", 0) == 1,
    )  # fmt: skip


def first_key(z: Sizes, i: Any) -> Any:
    """The first key that the query at place i sees."""
    first = T.int32(0)
    if z.window:
        first = T.max(first, i - (z.window - 1))
    if z.chunk:
        first = T.max(first, i // z.chunk * z.chunk)
    return T.min(first, z.keys - 1)


def end_of_keys(z: Sizes, i: Any) -> Any:
    """One behind the last key that the query at place i sees; a query of padding sees what there is."""
    return T.min(i + 1, T.int32(z.keys)) if z.causal else T.int32(z.keys)


def tile_of(key: Any) -> Any:
    """The tile that a key lies in."""
    return T.truncdiv(key, KEYS)


def tiles_of(keys: Any) -> Any:
    """Tiles that hold the first `keys` keys."""
    return T.truncdiv(keys + (KEYS - 1), KEYS)


def capped(z: Sizes, score: Any) -> Any:
    """The score as the softmax sees it."""
    if not z.softcap:
        return score * T.float32(z.scale)
    return T.float32(z.softcap) * tanh(score * T.float32(z.scale / z.softcap))


@T.macro
def softmax(scores, row, tiles_from, tiles_end, first, end, lanes, total):
    """Let scores[row, first:end] be eˢ⁻ᵐ with the largest m, other places of the tiles 0, total[row] the sum."""
    for lane in T.vectorized(KEYS):
        lanes[lane] = T.float32(LOWEST)
    for tile in range(tiles_end - tiles_from):
        for lane in T.vectorized(KEYS):
            lanes[lane] = T.max(
                lanes[lane],
                T.Select(
                    T.And(
                        (tiles_from + tile) * KEYS + lane >= first, (tiles_from + tile) * KEYS + lane < end
                    ),
                    scores[row, (tiles_from + tile) * KEYS + lane],
                    T.float32(LOWEST),
                ),
            )
    for lane in range(KEYS - 1):
        lanes[0] = T.max(lanes[0], lanes[lane + 1])
    total[row] = lanes[0]
    for lane in T.vectorized(KEYS):
        lanes[lane] = T.float32(0)
    for tile in range(tiles_end - tiles_from):
        for lane in T.vectorized(KEYS):
            scores[row, (tiles_from + tile) * KEYS + lane] = T.Select(
                T.And((tiles_from + tile) * KEYS + lane >= first, (tiles_from + tile) * KEYS + lane < end),
                exp(scores[row, (tiles_from + tile) * KEYS + lane] - total[row]),
                T.float32(0),
            )
        for lane in T.vectorized(KEYS):
            lanes[lane] = lanes[lane] + scores[row, (tiles_from + tile) * KEYS + lane]
    total[row] = T.float32(0)
    for lane in range(KEYS):
        total[row] = total[row] + lanes[lane]


@T.macro
def add_lanes(part, width):
    """part[0] becomes the sum of all lanes, by halves."""
    if width == 16:
        for lane in T.vectorized(8):
            part[lane] = part[lane] + part[lane + 8]
    if width >= 8:
        for lane in T.vectorized(4):
            part[lane] = part[lane] + part[lane + 4]
    part[0] = (part[0] + part[2]) + (part[1] + part[3])


def attention_of_one(z: Sizes) -> Any:
    """One query a head: the heads that share keys are computed together, so that a key is read from memory once."""
    G, tile = z.heads // z.kv_heads, min(TILE_ROWS, z.heads // z.kv_heads)
    loop = loop_of(4 * z.batch * z.heads * z.keys * z.d)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        q: T.Buffer((z.batch, z.heads, 1, z.d), "float32"),
        k: T.Buffer((z.batch, z.kv_heads, z.keys, z.d), "float32"),
        v: T.Buffer((z.batch, z.kv_heads, z.keys, z.e), "float32"),
        position: T.Buffer((z.batch,), "int64"),
        out: T.Buffer(z.result, "float32"),
    ):
        for pair in loop(z.batch * z.kv_heads):
            scores = T.alloc_buffer((G, z.padded), "float32")
            total = T.alloc_buffer((G,), "float32")
            lanes = T.alloc_buffer((KEYS,), "float32")
            b: T.let = pair // z.kv_heads
            kv: T.let = pair % z.kv_heads
            first: T.let = first_key(z, T.Cast("int32", position[b]))
            end: T.let = end_of_keys(z, T.Cast("int32", position[b]))
            for t in range(end - first):
                for g in range(G):
                    part = T.alloc_buffer((z.width,), "float32")
                    for lane in T.vectorized(z.width):
                        part[lane] = T.float32(0)
                    for d in T.unroll(z.d // z.width):
                        for lane in T.vectorized(z.width):
                            part[lane] = (
                                part[lane]
                                + q[b, kv * G + g, 0, d * z.width + lane]
                                * k[b, kv, first + t, d * z.width + lane]
                            )
                    add_lanes(part, z.width)
                    scores[g, first + t] = capped(z, part[0])
            for g in range(G):
                softmax(scores, g, tile_of(first), tiles_of(end), first, end, lanes, total)
            for row_tile in range(-(-G // tile)):
                for column in range(z.e // z.width):
                    sums = T.alloc_buffer((tile, z.width), "float32")
                    row: T.let = T.min(row_tile * tile, G - tile)
                    weigh(z, tile, scores, v, sums, b, kv, row, column, first, end)
                    for i in T.unroll(tile):
                        for lane in T.vectorized(z.width):
                            out[z.place(b, kv * G + row + i, 0, column * z.width + lane)] = (
                                sums[i, lane] / total[row + i]
                            )

    return kernel


@T.macro
def weigh(z, rows, scores, v, sums, b, kv, row, column, first, end):
    """sums[i, :] = Σ scores[row + i, t] v[t, columns], a tile in registers."""
    for i in T.unroll(rows):
        for lane in T.vectorized(z.width):
            sums[i, lane] = T.float32(0)
    for t in range(end - first):
        for i in T.unroll(rows):
            for lane in T.vectorized(z.width):
                sums[i, lane] = (
                    sums[i, lane] + scores[row + i, first + t] * v[b, kv, first + t, column * z.width + lane]
                )


@T.macro
def score(z, rows, q, turned, scores, b, h, s, row, at):
    """scores[row + i, at + lane] = q[s + row + i, :] · turned[:, lane], capped, a tile in registers."""
    sums = T.alloc_buffer((rows, KEYS), "float32")
    for i in T.unroll(rows):
        for lane in T.vectorized(KEYS):
            sums[i, lane] = T.float32(0)
    for d in range(z.d):
        for i in T.unroll(rows):
            for lane in T.vectorized(KEYS):
                sums[i, lane] = sums[i, lane] + q[b, h, s + row + i, d] * turned[d, lane]
    for i in T.unroll(rows):
        for lane in T.vectorized(KEYS):
            scores[row + i, at + lane] = capped(z, sums[i, lane])


def attention_of_many(z: Sizes) -> Any:
    """A block of queries of a head: keys are turned tile by tile, so that scores are products of rows and columns."""
    G, Q = z.heads // z.kv_heads, min(BLOCK_ROWS, z.rows)
    blocks, tile = -(-z.rows // Q), min(TILE_ROWS, Q)
    tiles = -(-Q // tile)
    loop = loop_of(2 * z.batch * z.heads * z.rows * z.rows * z.d)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        q: T.Buffer((z.batch, z.heads, z.rows, z.d), "float32"),
        k: T.Buffer((z.batch, z.kv_heads, z.keys, z.d), "float32"),
        v: T.Buffer((z.batch, z.kv_heads, z.keys, z.e), "float32"),
        position: T.Buffer((z.batch,), "int64"),
        out: T.Buffer(z.result, "float32"),
    ):
        for task in loop(z.batch * z.heads * blocks):
            scores = T.alloc_buffer((Q, z.padded), "float32")
            total = T.alloc_buffer((Q,), "float32")
            lanes = T.alloc_buffer((KEYS,), "float32")
            turned = T.alloc_buffer((z.d, KEYS), "float32")
            b: T.let = task // (z.heads * blocks)
            h: T.let = task // blocks % z.heads
            s: T.let = T.min(task % blocks * Q, z.rows - Q)
            place: T.let = T.Cast("int32", position[b]) + s
            first: T.let = first_key(z, place)
            end: T.let = end_of_keys(z, place + (Q - 1))
            for key_tile in range(tiles_of(end) - tile_of(first)):
                at: T.let = (tile_of(first) + key_tile) * KEYS
                for key in range(KEYS):
                    for d in range(z.d):
                        turned[d, key] = k[b, h // G, T.min(at + key, z.keys - 1), d]
                for row_tile in range(tiles):
                    row: T.let = T.min(row_tile * tile, Q - tile)
                    score(z, tile, q, turned, scores, b, h, s, row, at)
            for i in range(Q):
                softmax(
                    scores, i, tile_of(first), tiles_of(end),
                    first_key(z, place + i), end_of_keys(z, place + i), lanes, total,
                )  # fmt: skip
            for row_tile in range(tiles):
                for column in range(z.e // z.width):
                    sums = T.alloc_buffer((tile, z.width), "float32")
                    row: T.let = T.min(row_tile * tile, Q - tile)
                    weigh(z, tile, scores, v, sums, b, h // G, row, column, first, end)
                    for i in T.unroll(tile):
                        for lane in T.vectorized(z.width):
                            out[z.place(b, h, s + row + i, column * z.width + lane)] = (
                                sums[i, lane] / total[row + i]
                            )

    return kernel
