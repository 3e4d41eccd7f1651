"""`tvm.Attention` over keys in panels (`panels.py`): the keys that a query may see, once, and nothing behind them.

For n visible keys of size d, values of size e, and R queries that share them (queries of a block, heads of a group):

| step | operations | reads |
| --- | --- | --- |
| scores = scale · q kᵀ | 2 R n d | 4 n d |
| softmax, in a buffer [R, max_sequence] | some 20 R n | from the cache |
| scores · v | 2 R n e | 4 n e |

so the intensity is about R / 2 operations a byte: a decode step is bound by memory (R is the heads that share keys), a
prefill block of `BLOCK_ROWS` queries by arithmetic. A panel holds the same number of 16 keys side by side, so that a
score needs no sum over lanes. Values are weighed in blocks that stay in the first-level cache while tile after tile of
rows and columns passes over them. Heads and blocks of queries are shared out among threads.

Keys and values of 8 and 16 bits are read as such, a quarter or half of the bytes, and computed with in float32: queries
and weights keep all their digits. The scale of a key comes to its score, that of a value to its weight.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def, no-redef"
# TVMScript is parsed by TVM: its annotations are sizes and its blocks are scopes, which mypy cannot know.

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.script import tirx as T

from partc.format.layouts import PANEL
from partc.ir.graph import Node
from partc.ir.operators.attention import rule_of
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.kernels.attention_sizes import Sizes, tiles_for
from targets.tvm.kernels.instructions import Tile
from targets.tvm.kernels.vector import exp, loop_of, place_within, tanh, wide
from targets.tvm.operators import input_shape
from targets.tvm.operators.reading import array, dtype_of, has, integer

TOKENS = 16
"""Values of a block."""
LOWEST = -3.4e38


def attention(b: FunctionBuilder, node: Node, operands: list[Expr], tile: Tile) -> Expr:
    """`tvm.Attention` of q [batch, heads, rows, d], panels of keys and v [batch, kv_heads, keys, e].

    The result is shaped as q, or with `rows_first` [batch, rows, heads, e]. Operands that are left out are `position`
    again, which the kernel does not look at.
    """
    return _emit(b, node, operands[:3], operands[3:], sizes_of(node, 3, tile))


def quantized_attention(b: FunctionBuilder, node: Node, operands: list[Expr], tile: Tile) -> Expr:
    """`tvm.QuantizedAttention`: the same of numbers of 8 bits, with panels of the scales of keys and of values."""
    return _emit(
        b,
        node,
        operands[:5],
        operands[5:],
        replace(sizes_of(node, 5, tile), quantized=True, scales=dtype_of(node, 3)),
    )


def _emit(b: FunctionBuilder, node: Node, given: list[Expr], others: list[Expr], sizes: Sizes) -> Expr:
    """The call of the kernel; `others` are position, mask and sinks, as far as they are there."""
    place, mask, sinks = (*others, None, None, None)[:3]
    position = array(np.zeros(sizes.batch, np.int64)) if place is None else place
    scales = given[3:] or [position, position]
    optional = [position if operand is None else operand for operand in (mask, sinks)]
    operands = [*given[:3], *scales, position, *optional]
    return b.call(attend, operands, type_of(node.outputs[0]), sizes)


def sizes_of(node: Node, first: int, tile: Tile) -> Sizes:
    """The parameters of a node, whose position, mask and sinks are its operands from `first` on."""
    batch, heads, rows, d = input_shape(node)
    kv_heads, keys, e = input_shape(node, 2)[1:]
    rule, mask = rule_of(node), first + 1
    return Sizes(
        batch, heads, rows, d, kv_heads, keys, e,
        scale=rule.scale, seen=rule.visibility, softcap=rule.softcap,
        rows_first=integer(node, "rows_first", 0) == 1,
        mask=input_shape(node, mask) if has(node, mask) else (),
        mask_dtype=dtype_of(node, mask) if has(node, mask) else "int64",
        sinks=has(node, first + 2),
        stored=dtype_of(node, 1),
        tile=tile,
    )  # fmt: skip


def first_key(z: Sizes, i: Any) -> Any:
    """The first key that the query at place i sees."""
    first = T.int32(0)
    if z.seen.window:
        first = T.max(first, i - (z.seen.window - 1))
    if z.seen.chunk:
        first = T.max(first, i // z.seen.chunk * z.seen.chunk)
    return T.min(first, z.keys - 1)


def end_of_keys(z: Sizes, i: Any) -> Any:
    """One behind the last key that the query at place i sees; a query of padding sees what there is."""
    return T.min(i + 1, T.int32(z.keys)) if z.seen.hides else T.int32(z.keys)


def panel_of(key: Any) -> Any:
    """The panel that a key lies in."""
    return T.truncdiv(key, PANEL)


def panels_of(keys: Any) -> Any:
    """Panels that hold the first `keys` keys."""
    return T.truncdiv(keys + (PANEL - 1), PANEL)


def factor(z: Sizes) -> float:
    """What queries are multiplied with."""
    return z.scale / z.softcap if z.softcap else z.scale


def capped(z: Sizes, score: Any) -> Any:
    """The score as the mask and the softmax see it."""
    return T.float32(z.softcap) * tanh(score) if z.softcap else score


def masked(z: Sizes, mask: Any, value: Any, *place: Any) -> Any:
    """A score behind the mask, whose sizes of 1 stand for all."""
    found = mask[tuple(0 if size == 1 else i for size, i in zip(z.mask, place, strict=True))]
    return T.Select(found, value, T.float32(LOWEST)) if z.mask_dtype == "bool" else value + found


def attend(z: Sizes) -> Any:
    """A thread takes the queries of a `Task`: scores of all their keys, softmax, values, each by tiles of rows."""
    task, t, group = z.task, tiles_for(z), z.heads // z.kv_heads
    owners = z.heads // task.heads
    loop = loop_of(4 * z.batch * z.heads * z.rows * (z.keys if z.rows == 1 else z.rows) * z.d)
    mask_shape, sinks_shape = z.mask or (z.batch,), (z.heads,) if z.sinks else (z.batch,)
    sinks_dtype = "float32" if z.sinks else "int64"
    scales_dtype = z.scales if z.quantized else "int64"
    scales_shape = (z.batch, z.kv_heads, z.panels, 1, PANEL) if z.quantized else (z.batch,)

    @T.prim_func(private=True, s_tir=True)
    def kernel(
        q: T.Buffer((z.batch, z.heads, z.rows, z.d), "float32"),
        k: T.Buffer((z.batch, z.kv_heads, z.panels, z.d, PANEL), z.stored),
        v: T.Buffer((z.batch, z.kv_heads, z.keys, z.e), z.stored),
        key_scales: T.Buffer(scales_shape, scales_dtype),
        value_scales: T.Buffer(scales_shape, scales_dtype),
        position: T.Buffer((z.batch,), "int64"),
        mask: T.Buffer(mask_shape, z.mask_dtype),
        sinks: T.Buffer(sinks_shape, sinks_dtype),
        out: T.Buffer(z.result, "float32"),
    ):
        for number in loop(z.batch * owners * task.blocks):
            queries = T.alloc_buffer((task.rows, z.d), "float32")
            scores = T.alloc_buffer((task.rows, z.panels * PANEL), "float32")
            total = T.alloc_buffer((task.rows,), "float32")
            sums = T.alloc_buffer((t.count * t.rows, t.groups, t.columns * t.width), "float32")
            lanes = T.alloc_buffer((PANEL,), "float32")
            b: T.let = number // (owners * task.blocks)
            h: T.let = number // task.blocks % owners * task.heads
            s: T.let = T.min(number % task.blocks * task.queries, z.rows - task.queries)
            place: T.let = place_within(position[b], z.keys) + s
            first: T.let = first_key(z, place)
            end: T.let = end_of_keys(z, place + (task.queries - 1))
            take(z, q, queries, b, h, s)
            for some in range(T.truncdiv(panels_of(end) - panel_of(first) + (t.panels - 1), t.panels)):
                for tile in range(t.count):
                    score(z, t, queries, k, key_scales, scores, b, h // group,
                          T.min(panel_of(first) + some * t.panels, z.panels - t.panels),
                          T.min(tile * t.rows, task.rows - t.rows))  # fmt: skip
            for row in range(task.rows):
                at: T.let = place + task.query(row)
                if len(z.mask) > 0:
                    hide(z, mask, scores, row, b, h + task.head(row), s + task.query(row),
                         panel_of(first), panels_of(end))  # fmt: skip
                softmax(
                    scores, row, panel_of(first), panels_of(end), first_key(z, at), end_of_keys(z, at), lanes,
                    total, sinks[h + task.head(row)] if z.sinks else T.float32(LOWEST), z.sinks,
                )  # fmt: skip
                if z.quantized:
                    scale(scores, row, value_scales, b, h // group, panel_of(first), panels_of(end))
            clear(t, sums)
            for block in range(T.truncdiv(end - first + (TOKENS - 1), TOKENS)):
                for column in range(t.groups):
                    for tile in range(t.count):
                        weigh(z, t, scores, v, sums, b, h // group, tile, column, first + block * TOKENS,
                              T.min(end - first - block * TOKENS, TOKENS))  # fmt: skip
            write(z, t, sums, total, out, b, h, s)

    return kernel


@T.macro
def take(z, q, queries, b, h, s):
    """The queries of a task side by side, times what scores are multiplied with."""
    width = T.meta_var(math.gcd(z.d, PANEL))
    for row in range(z.task.rows):
        for part in range(z.d // width):
            for lane in T.vectorized(width):
                queries[row, part * width + lane] = q[
                    b, h + z.task.head(row), s + z.task.query(row), part * width + lane
                ] * T.float32(factor(z))


@T.macro
def score(z, t, queries, k, scales, scores, b, kv, panel, row):
    """scores[row + i, keys of the panels] = capped(queries[row + i, :] · k[panel + p, :, :] · scales of the keys)."""
    sums = T.alloc_buffer((t.parts, t.rows, t.panels, PANEL), "float32")
    for part in T.unroll(t.parts):
        for i in T.unroll(t.rows):
            for p in T.unroll(t.panels):
                for lane in T.vectorized(PANEL):
                    sums[part, i, p, lane] = T.float32(0)
    for step in range(z.d // t.parts):
        for part in T.unroll(t.parts):
            for i in T.unroll(t.rows):
                for p in T.unroll(t.panels):
                    for lane in T.vectorized(PANEL):
                        sums[part, i, p, lane] = sums[part, i, p, lane] + queries[
                            row + i, step * t.parts + part
                        ] * T.Cast("float32", k[b, kv, panel + p, step * t.parts + part, lane])
    for part in T.unroll(t.parts - 1):
        for i in T.unroll(t.rows):
            for p in T.unroll(t.panels):
                for lane in T.vectorized(PANEL):
                    sums[0, i, p, lane] = sums[0, i, p, lane] + sums[part + 1, i, p, lane]
    for i in T.unroll(t.rows):
        for p in T.unroll(t.panels):
            for lane in T.vectorized(PANEL):
                scores[row + i, (panel + p) * PANEL + lane] = capped(
                    z,
                    sums[0, i, p, lane] * wide(scales[b, kv, panel + p, 0, lane])
                    if z.quantized
                    else sums[0, i, p, lane],
                )


@T.macro
def hide(z, mask, scores, row, b, h, s, panel, end):
    """The mask over the scores of a row: a hidden key gets the lowest finite score, so that nothing becomes NaN."""
    for number in range(end - panel):
        at: T.let = (panel + number) * PANEL
        if at + PANEL <= z.keys:
            for lane in T.vectorized(PANEL):
                scores[row, at + lane] = masked(z, mask, scores[row, at + lane], b, h, s, at + lane)
        else:
            for lane in range(z.keys % PANEL):
                scores[row, at + lane] = masked(z, mask, scores[row, at + lane], b, h, s, at + lane)


@T.macro
def softmax(scores, row, panel, panels, first, end, lanes, total, sink, has_sink):
    """Let scores[row, first:end] be eˢ⁻ᵐ with the largest m, others of the panels 0, total[row] the sum."""
    for lane in T.vectorized(PANEL):
        lanes[lane] = T.float32(LOWEST)
    for number in range(panels - panel):
        for lane in T.vectorized(PANEL):
            lanes[lane] = T.max(
                lanes[lane],
                T.Select(
                    T.And((panel + number) * PANEL + lane >= first, (panel + number) * PANEL + lane < end),
                    scores[row, (panel + number) * PANEL + lane],
                    T.float32(LOWEST),
                ),
            )
    for lane in range(PANEL - 1):
        lanes[0] = T.max(lanes[0], lanes[lane + 1])
    total[row] = T.max(lanes[0], sink)
    for lane in T.vectorized(PANEL):
        lanes[lane] = T.float32(0)
    for number in range(panels - panel):
        for lane in T.vectorized(PANEL):
            scores[row, (panel + number) * PANEL + lane] = T.Select(
                T.And((panel + number) * PANEL + lane >= first, (panel + number) * PANEL + lane < end),
                exp(scores[row, (panel + number) * PANEL + lane] - total[row]),
                T.float32(0),
            )
        for lane in T.vectorized(PANEL):
            lanes[lane] = lanes[lane] + scores[row, (panel + number) * PANEL + lane]
    total[row] = exp(sink - total[row]) if has_sink else T.float32(0)
    for lane in range(PANEL):
        total[row] = total[row] + lanes[lane]


@T.macro
def scale(scores, row, scales, b, kv, panel, end):
    """The weights of a row times the scales of the values."""
    for number in range(end - panel):
        for lane in T.vectorized(PANEL):
            scores[row, (panel + number) * PANEL + lane] = scores[
                row, (panel + number) * PANEL + lane
            ] * wide(scales[b, kv, panel + number, 0, lane])


@T.macro
def weigh(z, t, scores, v, sums, b, kv, tile, group, first, count):
    """sums[tile, group] += Σ scores[row + i, first + token] v[first + token, columns], a tile in registers."""
    part = T.alloc_buffer((t.rows, t.columns, t.width), "float32")
    row: T.let = T.min(tile * t.rows, z.task.rows - t.rows)
    column: T.let = T.min(group * t.columns * t.width, z.e - t.columns * t.width)
    for i in T.unroll(t.rows):
        for c in T.unroll(t.columns):
            for lane in T.vectorized(t.width):
                part[i, c, lane] = sums[tile * t.rows + i, group, c * t.width + lane]
    for token in range(count):
        for i in T.unroll(t.rows):
            for c in T.unroll(t.columns):
                for lane in T.vectorized(t.width):
                    part[i, c, lane] = part[i, c, lane] + scores[row + i, first + token] * T.Cast(
                        "float32", v[b, kv, first + token, column + c * t.width + lane]
                    )
    for i in T.unroll(t.rows):
        for c in T.unroll(t.columns):
            for lane in T.vectorized(t.width):
                sums[tile * t.rows + i, group, c * t.width + lane] = part[i, c, lane]


@T.macro
def clear(t, sums):
    """Zeros for the sums of all tiles."""
    for row in range(t.count * t.rows):
        for group in range(t.groups):
            for part in range(t.columns):
                for lane in T.vectorized(t.width):
                    sums[row, group, part * t.width + lane] = T.float32(0)


@T.macro
def write(z, t, sums, total, out, b, h, s):
    """The sums of all tiles, divided by those of the softmax, to their places."""
    for number in range(t.count * t.rows):
        for group in range(t.groups):
            row: T.let = T.min(number // t.rows * t.rows, z.task.rows - t.rows) + number % t.rows
            column: T.let = T.min(group * t.columns * t.width, z.e - t.columns * t.width)
            for part in range(t.columns):
                for lane in T.vectorized(t.width):
                    out[
                        z.place(
                            b, h + z.task.head(row), s + z.task.query(row), column + part * t.width + lane
                        )
                    ] = sums[number, group, part * t.width + lane] / total[row]
