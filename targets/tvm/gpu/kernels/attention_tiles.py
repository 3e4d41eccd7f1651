"""Attention of a step of many rows: a block takes 16 queries of one head, which share what is read of keys and values.

Keys come into the memory of the block some at a time, then scores, then the values of the same keys in the same place:
the running softmax of flash attention (Dao et al. 2022), in float32. Scores are nowhere in the memory of the device,
and keys that no query of the tile sees are not read. A thread has one key's scores of some queries, and later four
columns of two results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm.script import tirx as T

from targets.tvm.gpu.kernels.threads import in_pairs, local, shared, wait
from targets.tvm.kernels.attention import end_of_keys, first_key
from targets.tvm.kernels.attention_sizes import Sizes
from targets.tvm.kernels.script import Buffer, Expr, store
from targets.tvm.kernels.vector import place_within

QUERIES, THREADS = 16, 128
_LEAST_ROWS = 32
"""Shorter steps make too few tiles for a GPU: each of their queries is a block of its own."""
_KEYS = (64, 32, 16, 8)
_SHARED = 32 * 1024 // 4
"""Numbers that a block can share on every GPU."""
_PARTS = THREADS // QUERIES
"""Threads of a query in the softmax."""
_LANES = 16
"""Threads that share the columns of a result, two results a thread."""
_LOWEST = -3.4e38


def fits(z: Sizes) -> bool:
    """Whether a step is long enough, and a head small enough for the memory of a block."""
    return z.rows >= _LEAST_ROWS and _keys_of(z) > 0


def grid_of(z: Sizes) -> tuple[int, int, int]:
    """Blocks: tiles of queries, heads, sequences."""
    return math.ceil(z.rows / QUERIES), z.heads, z.batch


def _keys_of(z: Sizes) -> int:
    """Keys at a time; 0: there is no room for any."""
    return next((keys for keys in _KEYS if _room(z, keys) <= _SHARED), 0)


def _room(z: Sizes, keys: int) -> int:
    return QUERIES * z.d + keys * _stride(z) + QUERIES * (keys + 2 * _PARTS + 3)


def _stride(z: Sizes) -> int:
    """Numbers between keys in shared memory: threads side by side read other banks."""
    return 4 * math.ceil(max(z.d, z.e) / 4) + 4


class QueryTile:
    """16 queries of one head, while their kernel is written."""

    def __init__(
        self,
        z: Sizes,
        blocks: Sequence[Expr],
        threads: Sequence[Expr],
        tensors: tuple[Buffer, Buffer, Buffer],
        scales: Sequence[Buffer],
        position: Buffer,
        sinks: Sequence[Buffer],
    ) -> None:
        """`tensors`: q, keys and values; `scales`: of both, where they are of 8 bits."""
        self._z, self._count = z, _keys_of(z)
        tile, self._head, self._batch = blocks
        (self._thread,) = threads
        self._q, self._k, self._v = tensors
        self._scales, self._sinks = scales, sinks
        self._first = T.bind(tile * QUERIES)
        self._shared_head = T.bind(T.truncdiv(self._head, z.heads // z.kv_heads))
        self._place = T.bind(place_within(position[self._batch], z.keys))
        self._wide = 4 if z.d % 4 == 0 else 1
        self._columns = 4 if z.e % 4 == 0 else 1
        self._passes = math.ceil(z.e / (_LANES * self._columns))
        self._sums = local((2, self._passes, self._columns))
        self._query = shared((QUERIES, z.d))
        self._room = shared((self._count, _stride(z)))
        self._scores = shared((QUERIES, self._count))
        self._most, self._added = shared((QUERIES, _PARTS)), shared((QUERIES, _PARTS))
        self._best, self._total, self._shrunk = (shared((QUERIES,)) for _ in range(3))

    def write(self, y: Buffer) -> None:
        """All of the kernel."""
        z, count = self._z, self._count
        begin = T.bind(T.Cast("int32", first_key(z, self._own(0))))
        end = T.bind(T.Cast("int32", end_of_keys(z, self._own(QUERIES - 1))))
        self._begin()
        with T.serial(T.truncdiv(end - begin + (count - 1), count)) as turn:
            first = T.bind(begin + turn * count)
            self._fetch(0, first, z.d)
            self._score(first)
            self._fetch(1, first, z.e)
            self._softmax()
            self._add_values()
        self._finish(y)

    def _own(self, query: Expr) -> Expr:
        """The place of a query in its sequence; those behind the last one stand for it."""
        return T.bind(self._place + T.min(self._first + query, self._z.rows - 1))

    def _begin(self) -> None:
        z = self._z
        with T.serial(math.ceil(QUERIES * z.d / THREADS)) as turn:
            number = T.bind(turn * THREADS + self._thread)
            with T.If(number < QUERIES * z.d), T.Then():
                query, column = T.bind(number // z.d), T.bind(number % z.d)
                row = T.min(self._first + query, z.rows - 1)
                value = self._q[self._batch, self._head, row, column]
                store(self._query, [query, column], value * T.float32(z.scale))
        with T.If(self._thread < QUERIES), T.Then():
            store(self._best, [self._thread], T.float32(_LOWEST))
            store(self._total, [self._thread], T.float32(0))
        for at in self._results():
            store(self._sums, at, T.float32(0))

    def _results(self) -> list[list[int]]:
        return [
            [row, turn, column]
            for row in range(2)
            for turn in range(self._passes)
            for column in range(self._columns)
        ]

    def _fetch(self, which: int, first: Expr, width: int) -> None:
        """Keys or values as floats, where all threads see them; those behind the last one stand for it."""
        z, tensor = self._z, (self._k, self._v)[which]
        wide = 4 if width % 4 == 0 else 1
        wait()
        with T.serial(math.ceil(self._count * width // wide / THREADS)) as turn:
            number = T.bind(turn * THREADS + self._thread)
            with T.If(number < self._count * width // wide), T.Then():
                own, column = T.bind(number // (width // wide)), T.bind(number % (width // wide) * wide)
                place = (self._batch, self._shared_head, T.bind(T.min(first + own, z.keys - 1)))
                found = local((wide,), z.stored)
                several = T.Ramp(0, 1, wide) if wide > 1 else 0
                store(found, [several], tensor[(*place, T.Ramp(column, 1, wide) if wide > 1 else column)])
                for j in range(wide):
                    value = found[j] if z.stored == "float32" else T.Cast("float32", found[j])
                    if z.quantized:
                        value = value * T.Cast("float32", self._scales[which][(*place, 0)])
                    store(self._room, [own, column + j], value)
        wait()

    def _score(self, first: Expr) -> None:
        z, count, wide = self._z, self._count, self._wide
        many = QUERIES * count // THREADS
        own, start = T.bind(self._thread % count), T.bind(self._thread // count * many)
        sums = local((many,))
        for i in range(many):
            store(sums, [i], T.float32(0))
        with T.serial(z.d // wide) as step:
            key = self._neighbours(self._room, own, step)
            for i in range(many):
                query = self._neighbours(self._query, start + i, step)
                found = sums[i]
                for j in range(wide):
                    found = found + query[j] * key[j]
                store(sums, [i], found)
        place = T.bind(first + own)
        for i in range(many):
            score = sums[i]
            if z.softcap:
                score = T.tanh(score * T.float32(1 / z.softcap)) * T.float32(z.softcap)
            query = self._own(start + i)
            seen = T.And(place >= first_key(z, query), place < end_of_keys(z, query))
            store(self._scores, [start + i, own], T.Select(seen, score, T.float32(_LOWEST)))

    def _neighbours(self, room: Buffer, row: Expr, step: Expr) -> Buffer:
        """Numbers of a row that lie side by side, with one access."""
        found = local((self._wide,))
        if self._wide == 1:
            store(found, [0], room[row, step])
        else:
            store(found, [T.Ramp(0, 1, 4)], room[row, T.Ramp(step * 4, 1, 4)])
        return found

    def _softmax(self) -> None:
        """Scores become weights beside the largest score so far."""
        query, part = T.bind(self._thread // _PARTS), T.bind(self._thread % _PARTS)
        many = self._count // _PARTS
        scores = [self._scores[query, i * _PARTS + part] for i in range(many)]
        store(self._most, [query, part], in_pairs(scores, T.max))
        wait()
        parts = [self._most[query, i] for i in range(_PARTS)]
        most = T.bind(in_pairs([self._best[query], *parts], T.max))
        weights = local((many,))
        for i, score in enumerate(scores):
            weight = T.Select(score > T.float32(_LOWEST), T.exp(score - most), T.float32(0))
            store(weights, [i], weight)
        store(self._added, [query, part], in_pairs([weights[i] for i in range(many)]))
        shrunk = T.bind(T.exp(self._best[query] - most))
        wait()
        for i in range(many):
            store(self._scores, [query, i * _PARTS + part], weights[i])
        with T.If(part == 0), T.Then():
            added = in_pairs([self._added[query, i] for i in range(_PARTS)])
            store(self._total, [query], self._total[query] * shrunk + added)
            store(self._best, [query], most)
            store(self._shrunk, [query], shrunk)
        wait()

    def _add_values(self) -> None:
        lane, pair = T.bind(self._thread % _LANES), T.bind(self._thread // _LANES * 2)
        for row, turn, column in self._results():
            at = [row, turn, column]
            store(self._sums, at, self._sums[tuple(at)] * self._shrunk[pair + row])
        with T.serial(self._count) as key:
            weights = [T.bind(self._scores[pair + row, key]) for row in range(2)]
            for turn in range(self._passes):
                first = (turn * _LANES + lane) * self._columns
                with T.If(first < self._z.e), T.Then():
                    values = local((self._columns,))
                    if self._columns == 1:
                        store(values, [0], self._room[key, first])
                    else:
                        store(values, [T.Ramp(0, 1, 4)], self._room[key, T.Ramp(first, 1, 4)])
                    for row in range(2):
                        for column in range(self._columns):
                            at = [row, turn, column]
                            found = self._sums[tuple(at)] + weights[row] * values[column]
                            store(self._sums, at, found)

    def _finish(self, y: Buffer) -> None:
        z = self._z
        lane, pair = T.bind(self._thread % _LANES), T.bind(self._thread // _LANES * 2)
        for row in range(2):
            query = T.bind(self._first + pair + row)
            total, factor = self._total[pair + row], T.float32(1)
            if z.sinks:
                sink = self._sinks[0][self._head]
                most = T.bind(T.max(self._best[pair + row], sink))
                factor = T.bind(T.exp(self._best[pair + row] - most))
                total = total * factor + T.exp(sink - most)
            total = T.bind(total)
            for turn in range(self._passes):
                for column in range(self._columns):
                    place = (turn * _LANES + lane) * self._columns + column
                    with T.If(T.And(place < z.e, query < z.rows)), T.Then():
                        value = self._sums[row, turn, column] * factor / total
                        store(y, list(z.place(self._batch, self._head, query, place)), value)
