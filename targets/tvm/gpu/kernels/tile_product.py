"""Products of many rows with weights in panels, on GPUs whose tensor cores nobody asks: in float32.

The 16 columns of a panel side by side are 16 threads side by side: what neighbours read lies side by side, each word
once, and all of them multiply it with one number of x. A block takes up to 64 columns and 16 rows of x; its threads
along y share the depth, and add their sums up in the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm.script import tirx as T

from partc.ir.panels import BLOCK, LANES, rows_of_group, scales_of_block
from partc.ir.weight_formats import FORMATS, by_format
from targets.tvm.gpu.kernels.shapes import Finish, Shape, parameters_of, scaled, select
from targets.tvm.gpu.kernels.threads import gpu_func, half_bits, in_pairs, local, shared, wait
from targets.tvm.kernels.script import Buffer, Expr, store
from targets.tvm.kernels.words import byte_of, half_of, nibble_of

_SHARED = 32 * 1024 // 4
"""Numbers that a block can share on every GPU."""
_FEW, _MANY, _SHORT = 4, 16, 64
"""Rows of a tile of x in steps of up to `_SHORT` rows, and of more. Few rows make more blocks: 16 rows in one tile left
two thirds of an H200 without work. Tiles of one group come one after the other, so that caches have its weight."""
_FEW_GROUPS = 128
"""Groups below which blocks get as many threads as they may have, so that all of a GPU has work."""

_COLUMNS = {each.name: rows_of_group(each.bits) for each in FORMATS.values()}
"""Quantisation → columns of the result that a block computes; of floats they are `_FLOAT_COLUMNS`."""
_FLOAT_COLUMNS = 4 * LANES


@dataclass(frozen=True)
class Tiles:
    """How a product is shared out among blocks and threads."""

    s: Shape

    @property
    def rows(self) -> int:
        """Rows of x that a block takes: a weight is unpacked once for all of them."""
        return min(self.s.M, _FEW if self.s.M <= _SHORT else _MANY)

    def splits(self, sums: int = 1) -> int:
        """Threads that share the depth, a power of two; each leaves `sums` numbers for every row and column."""
        s = self.s
        steps = s.weight[0][1] if s.has_block_scales else math.ceil(s.depth / 4)
        usual = s.threads if self.groups < _FEW_GROUPS else s.threads // 2
        room = _SHARED // (self.columns * self.rows * sums)
        return 1 << (max(1, min(steps, usual // self.columns, room)).bit_length() - 1)

    @property
    def columns(self) -> int:
        """Columns of the result that a block computes, a thread each."""
        return _COLUMNS.get(self.s.stored, _FLOAT_COLUMNS)

    @property
    def groups(self) -> int:
        """Groups of columns, a block each."""
        return math.ceil(self.s.N / self.columns)

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks: tiles of rows of x, groups of columns."""
        return math.ceil(self.s.M / self.rows), self.groups


@dataclass(frozen=True)
class Place:
    """The part of a product that a thread computes."""

    tile: Expr
    """Rows of x."""
    group: Expr
    """Columns of the result."""
    threads: Sequence[Expr]
    """The column in the group, and the part of the depth."""

    def row(self, s: Shape, r: Expr) -> Expr:
        """The row r of the tile in x; the last tile computes the last row again and again."""
        return T.min(self.tile * Tiles(s).rows + r, s.M - 1)


def tile_product(s: Shape, finish: Finish, added: tuple[int, int] | None, weights: int) -> Any:
    """y[M, N] of x, one or two weights and what is added; see `product.product`."""
    tiles = Tiles(s)

    def write(blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, *tensors: Buffer) -> None:
        place = Place(blocks[0], blocks[1], threads)
        matrices, extra, y = tensors[:weights], tensors[weights:-1], tensors[-1]

        def whole(totals: list[Expr], row: Expr, column: Expr) -> Expr:
            found = [scaled(s, w, total, column) for total, w in zip(totals, matrices, strict=True)]
            more = [tensor[0 if added and added[0] == 1 else row, column] for tensor in extra]
            return finish([*found, *more], row, column)

        sums = [_sums(s, x, w, place, splits, local((tiles.rows,))) for w in matrices]
        _write(s, y, place, _left(s, place, sums, splits), whole)

    splits = tiles.splits(weights)
    return gpu_func(parameters_of([s] * weights, added), tiles.grid, (tiles.columns, splits), write)


def tile_products(*shapes: Shape) -> Any:
    """Products of one x with two or three weights, in one launch; see `product.products`."""

    def write(blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, *tensors: Buffer) -> None:
        weights, results = tensors[: len(shapes)], tensors[len(shapes) :]
        place, total = Place(blocks[0], blocks[1], threads), local((first.rows,))
        select(
            counts,
            place.group,
            lambda i, own: _sums(shapes[i], x, weights[i], replace(place, group=own), splits, total),
        )
        rooms = _left(first.s, place, [total], splits)  # nobody waits within a branch

        def finish(i: int, own: Expr) -> None:
            s, w = shapes[i], weights[i]
            _write(
                s, results[i], replace(place, group=own), rooms,
                lambda sums, row, column: scaled(s, w, sums[0], column),
            )  # fmt: skip

        select(counts, place.group, finish)

    first, counts = Tiles(shapes[0]), [Tiles(s).groups for s in shapes]
    splits = min(Tiles(s).splits() for s in shapes)
    grid = first.grid[0], sum(counts)
    parameters = parameters_of(shapes, results=len(shapes))
    return gpu_func(parameters, grid, (first.columns, splits), write)


def _sums(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> Buffer:
    """total[rows]: the sums of this thread, of its row of w, over its part of the depth."""
    with T.serial(Tiles(s).rows) as r:
        store(total, [r], T.float32(0))
    write = _sums_of_floats
    if s.bits is not None:
        write = by_format(s.bits, s.block, int4=_sums4, int8=_sums8, int8_blocks=_sums8_blocks)
    write(s, x, w, place, splits, total)
    return total


def _sums4(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> None:
    group, (lane, split) = place.group, place.threads
    panel, own = lane // LANES, lane % LANES
    steps, part = s.weight[0][1], local((Tiles(s).rows,))
    with T.serial(math.ceil(steps / splits)) as turn:
        step = T.bind(turn * splits + split)
        with T.If(step < steps), T.Then(), T.serial(2) as half:
            pair = T.bind(w[group, step, panel, 128 + T.truncdiv(half * LANES + own, 2)])
            scale = T.bind(half_bits(half_of(pair, own)))
            with T.serial(Tiles(s).rows) as r:
                store(part, [r], T.float32(0))
            with T.serial(4) as i:
                word = T.bind(w[group, step, panel, half * 64 + i * LANES + own])
                first = step * (2 * BLOCK) + half * BLOCK + i * 8
                _add(s, x, place, first, [nibble_of(word, j) - 8 for j in range(8)], part)
            with T.serial(Tiles(s).rows) as r:
                store(total, [r], total[r] + part[r] * scale)


def _sums8(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> None:
    group, (lane, split) = place.group, place.threads
    words = math.ceil(s.depth / 4)
    with T.serial(math.ceil(words / splits)) as turn:
        at = T.bind(turn * splits + split)
        with T.If(at < words), T.Then():
            word = T.bind(w[group, 2 + at, lane])
            _add(s, x, place, at * 4, _signed_bytes(word), total)


def _sums8_blocks(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> None:
    group, (lane, split) = place.group, place.threads
    blocks, part, scales = s.weight[0][1], local((Tiles(s).rows,)), scales_of_block(s.block)
    words = BLOCK // 4 // scales
    with T.serial(math.ceil(blocks / splits)) as turn:
        block = T.bind(turn * splits + split)
        with T.If(block < blocks), T.Then(), T.serial(scales) as unit:
            own = unit * LANES + lane
            pair = T.bind(w[group, block, BLOCK // 4 * LANES + T.truncdiv(own, 2)])
            scale = T.bind(half_bits(half_of(pair, own)))
            with T.serial(Tiles(s).rows) as r:
                store(part, [r], T.float32(0))
            with T.serial(words) as i:
                at = unit * words + i
                word = T.bind(w[group, block, at * LANES + lane])
                _add(s, x, place, block * BLOCK + at * 4, _signed_bytes(word), part)
            with T.serial(Tiles(s).rows) as r:
                store(total, [r], total[r] + part[r] * scale)


def _signed_bytes(word: Expr) -> list[Expr]:
    return [byte_of(word, j) for j in range(4)]


def _sums_of_floats(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> None:
    lane, split = place.threads
    last = s.weight[0][0] - 1
    panel = T.bind(T.min(place.group * (Tiles(s).columns // LANES) + T.truncdiv(lane, LANES), last))
    own, steps = T.truncmod(lane, LANES), math.ceil(s.K / 4)
    with T.serial(math.ceil(steps / splits)) as turn:
        step = T.bind(turn * splits + split)
        with T.If(step < steps), T.Then():
            places = [step * 4 + j for j in range(4)]
            values = [w[panel, place if s.K % 4 == 0 else T.min(place, s.K - 1), own] for place in places]
            if s.K % 4:  # behind the end there are zeros
                values = [
                    T.Select(place < s.K, T.Cast("float32", value), T.float32(0))
                    for place, value in zip(places, values, strict=True)
                ]
            _add(s, x, place, step * 4, values, total)


def _add(s: Shape, x: Buffer, place: Place, first: Expr, values: Sequence[Expr], part: Buffer) -> None:
    """part[r] += the sum of values[j] · x[row, first + j]; behind K there are zeros among the values."""
    weights = [T.bind(value if _is_float32(value) else T.Cast("float32", value)) for value in values]
    aligned = s.K % 4 == 0
    for start in range(0, len(values), 4):
        at = T.bind(T.min(first + start, s.K - 4) if aligned else first + start)
        with T.serial(Tiles(s).rows) as r:
            row = place.row(s, r)
            numbers = _four(x, row, at) if aligned else [x[row, T.min(at + j, s.K - 1)] for j in range(4)]
            found = part[r]
            for j in range(4):
                found = found + weights[start + j] * numbers[j]
            store(part, [r], found)


def _is_float32(value: Expr) -> bool:
    return str(getattr(value, "dtype", "")) == "float32"


def _four(x: Buffer, row: Expr, at: Expr) -> list[Expr]:
    """Four neighbours with one access."""
    four = local((4,))
    store(four, [T.Ramp(0, 1, 4)], x[row, T.Ramp(at, 1, 4)])
    return [four[j] for j in range(4)]


def _left(s: Shape, place: Place, sums: Sequence[Buffer], splits: int) -> list[Buffer]:
    """The sums of all threads of a column, where all of them see them: [splits, rows, columns]."""
    lane, split = place.threads
    rooms = [shared((splits, Tiles(s).rows, Tiles(s).columns)) for _ in sums]
    for own, room in zip(sums, rooms, strict=True):
        with T.serial(Tiles(s).rows) as r:
            store(room, [split, r, lane], own[r])
    wait()
    return rooms


def _write(s: Shape, y: Buffer, place: Place, rooms: Sequence[Buffer], finish: Finish) -> None:
    """Add up what the threads of a column left, and write it; threads along the depth share the rows."""
    lane, split = place.threads
    splits = int(rooms[0].shape[0])
    column = place.group * Tiles(s).columns + lane
    with T.serial(math.ceil(Tiles(s).rows / splits)) as turn:
        r = T.bind(turn * splits + split)
        row = T.bind(place.tile * Tiles(s).rows + r)
        with T.If(T.And(T.And(r < Tiles(s).rows, column < s.N), row < s.M)), T.Then():
            totals = [T.bind(in_pairs([room[i, r, lane] for i in range(splits)])) for room in rooms]
            store(y, [row, column], finish(totals, row, column))
