"""Attention of one row over caches that the same launch writes this row to, rotated if it has tables.

Blocks go on as those of `attention.Query`, a head each, over the keys before this row. The row itself they compute
all: its score is where the running softmax begins. The first head of those that share a key writes it and its value;
nobody reads them from the cache in this launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm.script import tirx as T

from partc.ir.graph import Node
from targets.tvm.builder import Expr, FunctionBuilder, type_of
from targets.tvm.gpu.kernels.attention import LANES, LOWEST, Query, groups_of
from targets.tvm.gpu.kernels.threads import gpu_func, shared, wait
from targets.tvm.kernels.attention import sizes_of
from targets.tvm.kernels.attention_sizes import Sizes
from targets.tvm.kernels.float_tiles import NARROW
from targets.tvm.kernels.script import Buffer, store
from targets.tvm.operators.reading import has, input_shape

ATTENTION_STEP = "tvm.AttentionStep"
"""`(q, keys, values, position, -, sinks?, key, value, cos?, sin?)`: `partc.Attention` of one row over caches that this
row is written to; with tables, query and key are rotated first."""
_COS = 8
"""The place of its first table."""


def attention_step(threads: int, b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
    """`tvm.AttentionStep` of q [batch, heads, 1, d], caches, and the key and value of the row."""
    z = sizes_of(node, 3, NARROW)
    half, tables = (
        (input_shape(node, _COS)[2], input_shape(node, _COS)[0]) if len(operands) > _COS else (0, 1)
    )
    q, keys, values, position, _, sinks, *row = operands
    given = [keys, values, q, *row[:2], position, *row[2:], *([sinks] if has(node, 5) else [])]
    results = [type_of(node.operand(1)), type_of(node.operand(2)), type_of(node.outputs[0])]
    return b.update_and_call(attend_step, given, results, z, groups_of(z, threads), half, tables)[-1]


def attend_step(z: Sizes, groups: int, half: int, tables: int) -> Any:
    """Y [batch, heads, 1, e]; the first 2 · `half` numbers of a head are rotated by `tables` rows of cos and sin."""

    def write(
        blocks: Sequence[Expr], threads: Sequence[Expr], k: Buffer, v: Buffer, q: Buffer, *rest: Buffer
    ) -> None:
        key, value, position, *more, y = rest
        angles, sinks = (more[:2], more[2:]) if half else ([], more)
        turn = _rotation(half, tables, blocks[2], angles)
        _Row(
            z, groups, (T.int32(0), *blocks[1:]), threads, (q, k, v), (key, value), position, sinks, turn
        ).write(y)

    of_keys = (z.batch, z.kv_heads)
    parameters: dict[str, tuple[Sequence[int], str]] = {
        "k": ((*of_keys, z.keys, z.d), z.stored),
        "v": ((*of_keys, z.keys, z.e), z.stored),
        "q": ((z.batch, z.heads, 1, z.d), "float32"),
        "key": ((*of_keys, 1, z.d), "float32"),
        "value": ((*of_keys, 1, z.e), "float32"),
        "position": ((z.batch,), "int64"),
    }
    if half:
        parameters |= dict.fromkeys(("cos", "sin"), ((tables, 1, half), "float32"))
    if z.sinks:
        parameters["sinks"] = ((z.heads,), "float32")
    parameters["y"] = (z.result, "float32")
    return gpu_func(parameters, (1, z.heads, z.batch), (LANES, groups), write)


Rotation = Callable[[Buffer, tuple[Expr, ...], Expr], Expr]
"""The number at a place of a head, rotated."""


def _rotation(half: int, tables: int, batch: Expr, angles: Sequence[Buffer]) -> Rotation:
    def plain(x: Buffer, head: tuple[Expr, ...], place: Expr) -> Expr:
        return x[(*head, place)]

    def rotated(x: Buffer, head: tuple[Expr, ...], place: Expr) -> Expr:
        table, angle = batch if tables > 1 else 0, T.bind(T.truncmod(place, half))
        cos, sin = (T.bind(one[table, 0, angle]) for one in angles)
        left, right = T.bind(x[(*head, angle)]), T.bind(x[(*head, half + angle)])
        turned = T.Select(place < half, left * cos - right * sin, right * cos + left * sin)
        return T.Select(place < 2 * half, turned, x[(*head, place)])

    return rotated if half else plain


class _Row(Query):
    """The query of the row, and its key and value, which are in no cache yet."""

    def __init__(
        self,
        z: Sizes,
        groups: int,
        blocks: Sequence[Expr],
        threads: Sequence[Expr],
        tensors: tuple[Buffer, Buffer, Buffer],
        row: tuple[Buffer, Buffer],
        position: Buffer,
        sinks: Sequence[Buffer],
        turn: Rotation,
    ) -> None:
        super().__init__(z, groups, blocks, threads, tensors, (), position, sinks)
        self._turn = turn
        self._key, self._value = row
        self._own_key = shared((z.d,))

    def _end(self, own: Expr) -> Expr:
        return own

    def _begin(self, own: Expr) -> None:
        z, room, group, lane = self._z, self._reduced, self._group, self._lane
        head, of_key = (self._batch, self._head, 0), (self._batch, self._shared_head, 0)
        is_first = T.truncmod(self._head, z.heads // z.kv_heads) == 0
        writes = T.bind(T.And(is_first, own < z.keys))  # behind the end of the cache there is no room
        for place in self._places(z.d):
            store(self._query, [place], self._turn(self._q, head, place) * T.float32(z.scale))
            number = self._as_stored(self._turn(self._key, of_key, place))
            store(self._own_key, [place], self._as_float(number))
            with T.If(writes), T.Then():
                store(self._k, [self._batch, self._shared_head, own, place], number)
        for place in self._places(z.e):
            with T.If(writes), T.Then():
                number = self._as_stored(self._value[(*of_key, place)])
                store(self._v, [self._batch, self._shared_head, own, place], number)
        wait()
        score: Expr = T.float32(0)
        for start in range(0, z.d, LANES):
            place = T.min(start + lane, z.d - 1)
            part = self._query[place] * self._own_key[place]
            score = score + (
                part if start + LANES <= z.d else T.Select(start + lane < z.d, part, T.float32(0))
            )
        store(room, [group, lane], score)
        self._fold(lambda one, other: one + other)
        whole = T.bind(self._capped(room[group, 0]))
        wait()
        has_it = T.bind(group == 0)  # one group alone counts this key
        store(self._best, [0], T.Select(has_it, whole, T.float32(LOWEST)))
        store(self._total, [0], T.Select(has_it, T.float32(1), T.float32(0)))
        for column in range(self._columns):
            place = T.min(lane + column * LANES, z.e - 1)
            value = self._as_float(self._as_stored(self._value[(*of_key, place)]))
            store(self._sums, [column], T.Select(has_it, value, T.float32(0)))

    def _as_stored(self, number: Expr) -> Expr:
        return number if self._z.stored == "float32" else T.Cast(self._z.stored, number)

    def _as_float(self, number: Expr) -> Expr:
        return number if self._z.stored == "float32" else T.Cast("float32", number)
