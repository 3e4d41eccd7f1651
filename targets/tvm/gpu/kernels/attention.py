"""Attention of a step over a cache or over its own rows, in one launch.

A block takes one query of one head, or in long steps 16 of them (`attention_tiles`). Its threads go through the keys
that the query sees, 64 at a time: each computes one score, then each adds up one column of the values. Groups of 64
threads take different keys; what they have is joined in the end, as in the two passes of flash decoding (Dao et al.
2023), within one block. Scores are nowhere in memory, and keys behind the position are not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.script import tirx as T

from partc.ir.graph import Node
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.gpu.kernels import attention_tiles
from targets.tvm.gpu.kernels.threads import fold, gpu_func, local, shared, wait
from targets.tvm.kernels.attention import end_of_keys, first_key, sizes_of
from targets.tvm.kernels.attention_sizes import Sizes
from targets.tvm.kernels.float_tiles import NARROW
from targets.tvm.kernels.script import Buffer, store
from targets.tvm.kernels.vector import place_within
from targets.tvm.operators import OPERATORS
from targets.tvm.operators.reading import array, dtype_of, has

LANES = 64
"""Keys at a time, and columns of values."""
_FEW_GROUPS, _MOST_GROUPS, _FEW_QUERIES = 4, 8, 64
"""Groups of a block: few where there are more queries than these to keep a GPU at work, else as many as may be. With
1,024 threads registers would not do."""
LOWEST = -3.4e38


def attention(threads: int, b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`partc.Attention` of q [batch, heads, rows, d], keys and values [batch, kv_heads, keys, d or e].

    With a mask it is written in plain operators.
    """
    if has(node, 4):
        return OPERATORS[node.op](b, node, operands)
    z = sizes_of(node, 3, NARROW)
    place, _, sinks = (*operands[3:], None, None, None)[:3]
    return _emit(b, node, operands[:3], place, sinks, z, threads)


def quantized_attention(threads: int, b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`partc.QuantizedAttention`: the same of numbers of 8 bits, with the scales of keys and of values."""
    if has(node, 6):
        return OPERATORS[node.op](b, node, operands)
    z = replace(sizes_of(node, 5, NARROW), quantized=True, scales=dtype_of(node, 3))
    place, _, sinks = (*operands[5:], None, None, None)[:3]
    return _emit(b, node, operands[:5], place, sinks, z, threads)


def _emit(
    b: FunctionBuilder, node: Node, given: list[Expr], place: Expr | None, sinks: Expr | None, z: Sizes,
    threads: int,
) -> Expr:  # fmt: skip
    position = array(np.zeros(z.batch, np.int64)) if place is None else place
    operands = [*given, position, *([sinks] if sinks is not None else [])]
    return b.call(attend, operands, type_of(node.outputs[0]), z, groups_of(z, threads))


def groups_of(z: Sizes, threads: int) -> int:
    """Groups of threads of a block of so many threads at most."""
    most = min(threads // LANES, _MOST_GROUPS)
    return most if z.batch * z.heads * z.rows <= _FEW_QUERIES else _FEW_GROUPS


def attend(z: Sizes, groups: int) -> Any:
    """Y [batch, heads, rows, e], or with `rows_first` [batch, rows, heads, e]; the result of sizes `z`."""

    def write(
        blocks: Sequence[Expr], threads: Sequence[Expr], q: Buffer, k: Buffer, v: Buffer, *rest: Buffer
    ) -> None:
        scales, (position, *sinks, y) = (rest[:2], rest[2:]) if z.quantized else ((), rest)
        if in_tiles:
            attention_tiles.QueryTile(z, blocks, threads, (q, k, v), scales, position, sinks).write(y)
        else:
            Query(z, groups, blocks, threads, (q, k, v), scales, position, sinks).write(y)

    in_tiles = attention_tiles.fits(z)
    of_keys = (z.batch, z.kv_heads, z.keys)
    parameters: dict[str, tuple[Sequence[int], str]] = {
        "q": ((z.batch, z.heads, z.rows, z.d), "float32"),
        "k": ((*of_keys, z.d), z.stored),
        "v": ((*of_keys, z.e), z.stored),
    }
    if z.quantized:
        parameters |= {f"{name}_scales": ((*of_keys, 1), z.scales) for name in "kv"}
    parameters["position"] = ((z.batch,), "int64")
    if z.sinks:
        parameters["sinks"] = ((z.heads,), "float32")
    parameters["y"] = (z.result, "float32")
    if in_tiles:
        return gpu_func(parameters, attention_tiles.grid_of(z), (attention_tiles.THREADS,), write)
    return gpu_func(parameters, (z.rows, z.heads, z.batch), (LANES, groups), write)


class Query:
    """One query of one head, while its kernel is written."""

    def __init__(
        self,
        z: Sizes,
        groups: int,
        blocks: Sequence[Expr],
        threads: Sequence[Expr],
        tensors: tuple[Buffer, Buffer, Buffer],
        scales: Sequence[Buffer],
        position: Buffer,
        sinks: Sequence[Buffer],
    ) -> None:
        self._z, self._groups = z, groups
        self._row, self._head, self._batch = blocks
        self._lane, self._group = threads
        self._q, self._k, self._v = tensors
        self._scales = scales
        self._position = position
        self._sinks = sinks
        self._shared_head = T.bind(T.truncdiv(self._head, z.heads // z.kv_heads))
        self._wide = 4 if z.d % 4 == 0 else 1
        self._columns = math.ceil(z.e / LANES)
        self._best, self._total, self._sums = local((1,)), local((1,)), local((self._columns,))
        self._query = shared((z.d,))
        self._scores = shared((self._groups, LANES))
        self._reduced = shared((self._groups, LANES))

    def write(self, y: Buffer) -> None:
        """All of the kernel."""
        z = self._z
        own = T.bind(place_within(self._position[self._batch], z.keys) + self._row)
        begin = T.bind(T.Cast("int32", first_key(z, own)))
        end = T.bind(T.Cast("int32", self._end(own)))
        self._begin(own)
        step = LANES * self._groups
        with T.serial(T.truncdiv(end - begin + (step - 1), step)) as turn:
            first = T.bind(begin + turn * step + self._group * LANES)
            self._score(first, end)
            self._add_values(first, end)
        self._join()
        self._finish(y)

    def _end(self, own: Expr) -> Expr:
        """One behind the last key of the cache that is read."""
        return end_of_keys(self._z, own)

    def _begin(self, own: Expr) -> None:
        """The query where all threads see it, and sums over no keys."""
        for place in self._places(self._z.d):
            value = self._q[self._batch, self._head, self._row, place]
            store(self._query, [place], value * T.float32(self._z.scale))
        wait()
        store(self._best, [0], T.float32(LOWEST))
        store(self._total, [0], T.float32(0))
        for column in range(self._columns):
            store(self._sums, [column], T.float32(0))

    def _places(self, count: int) -> Iterator[Expr]:
        """Numbers from 0 on, shared out among the threads of the block; each inside of a branch."""
        number = self._group * LANES + self._lane
        for start in range(0, count, LANES * self._groups):
            place = T.bind(start + number)
            with T.If(place < count), T.Then():
                yield place

    def _score(self, first: Expr, end: Expr) -> None:
        """The score of the key of this thread, and what it becomes beside the largest so far."""
        z, lane, group = self._z, self._lane, self._group
        score = local((1,))
        store(score, [0], T.float32(LOWEST))
        with T.If(first + lane < end), T.Then():
            key = T.bind(first + lane)
            store(score, [0], T.float32(0))
            with T.serial(z.d // self._wide) as c:
                numbers = self._neighbours(key, c * self._wide)
                found = score[0]
                for j, number in enumerate(numbers):
                    found = found + self._query[c * self._wide + j] * number
                store(score, [0], found)
            if z.quantized:
                store(score, [0], score[0] * self._scale(0, key))
            store(score, [0], self._capped(score[0]))
        store(self._reduced, [group, lane], score[0])
        self._fold(lambda one, other: T.max(one, other))
        most = T.bind(T.max(self._best[0], self._reduced[group, 0]))
        shrunk = T.bind(T.exp(self._best[0] - most))
        wait()
        weight = T.bind(T.if_then_else(first + lane < end, T.exp(score[0] - most), T.float32(0)))
        store(self._scores, [group, lane], weight)
        store(self._reduced, [group, lane], weight)
        self._fold(lambda one, other: one + other)
        store(self._total, [0], self._total[0] * shrunk + self._reduced[group, 0])
        for column in range(self._columns):
            store(self._sums, [column], self._sums[column] * shrunk)
        store(self._best, [0], most)

    def _capped(self, score: Expr) -> Expr:
        cap = self._z.softcap
        return T.tanh(score * T.float32(1 / cap)) * T.float32(cap) if cap else score

    def _fold(self, join: Any) -> None:
        room, group = self._reduced, self._group

        def add(one: Expr, other: Expr) -> None:
            store(room, [group, one], join(room[group, one], room[group, other]))

        fold(self._lane, LANES, add)

    def _add_values(self, first: Expr, end: Expr) -> None:
        """Weights times values, a column a thread; what follows waits until all have read the weights."""
        count = T.bind(T.max(T.min(end - first, LANES), 0))
        for column in range(self._columns):
            place = self._lane + column * LANES
            with T.If(place < self._z.e), T.Then(), T.serial(count) as j:
                key = first + j
                number = self._number(self._v, (self._batch, self._shared_head, key, place))
                weight = self._scores[self._group, j]
                if self._z.quantized:
                    weight = weight * self._scale(1, key)
                store(self._sums, [column], self._sums[column] + weight * number)
        wait()

    def _join(self) -> None:
        """What the groups have, as one: the first group has it then."""
        z, lane, group = self._z, self._lane, self._group
        best, total = shared((self._groups,)), shared((self._groups,))
        sums = shared((self._groups, self._columns * LANES))
        with T.If(lane == 0), T.Then():
            store(best, [group], self._best[0])
            store(total, [group], self._total[0])
        for column in range(self._columns):
            store(sums, [group, column * LANES + lane], self._sums[column])
        wait()
        most = self._sinks[0][self._head] if z.sinks else T.float32(LOWEST)
        for g in range(self._groups):
            most = T.max(most, best[g])
        most = T.bind(most)
        shrunk = [T.bind(T.exp(best[g] - most)) for g in range(self._groups)]
        whole = T.exp(self._sinks[0][self._head] - most) if z.sinks else T.float32(0)
        for g in range(self._groups):
            whole = whole + total[g] * shrunk[g]
        store(self._total, [0], whole)
        for column in range(self._columns):
            found: Expr = T.float32(0)
            for g in range(self._groups):
                found = found + sums[g, column * LANES + lane] * shrunk[g]
            store(self._sums, [column], found)

    def _finish(self, y: Buffer) -> None:
        z = self._z
        for column in range(self._columns):
            place = self._lane + column * LANES
            with T.If(T.And(self._group == 0, place < z.e)), T.Then():
                where = z.place(self._batch, self._head, self._row, place)
                store(y, list(where), self._sums[column] / self._total[0])

    def _neighbours(self, key: Expr, first: Expr) -> list[Expr]:
        """Numbers of a key that lie side by side, with one access."""
        place = (self._batch, self._shared_head, key)
        if self._wide == 1:
            return [self._number(self._k, (*place, first))]
        four = local((self._wide,), self._z.stored)
        store(four, [T.Ramp(0, 1, self._wide)], self._k[(*place, T.Ramp(first, 1, self._wide))])
        return [self._number(four, (j,)) for j in range(self._wide)]

    def _number(self, buffer: Buffer, place: tuple[Expr, ...]) -> Expr:
        value = buffer[place]
        return value if self._z.stored == "float32" else T.Cast("float32", value)

    def _scale(self, which: int, key: Expr) -> Expr:
        return T.Cast("float32", self._scales[which][self._batch, self._shared_head, key, 0])
