"""Products of many rows on the tensor cores of NVIDIA's GPUs, with the precision of float32.

Tensor cores multiply numbers of bfloat16, 8 bits each, and add up in float32. x is the sum of three such numbers, with
no rounding (24 bits); weights of 4 and 8 bits and of bfloat16 are one, those of float16 two, those of float32 three.
So three products give what one in float32 would, where weights are quantised: only sums are rounded, as everywhere.
Where both have parts, products of small parts, below the last bit of the whole, are left out.

    x = x0 + x1 + x2        x · w = x2 · w + x1 · w + x0 · w        (the small ones first)

A block goes through the depth some blocks of 32 numbers at a time, a warp each, and its warps may share columns as well
(`Split`). x is taken apart once for all of them, in memory that they share; weights go from memory to the registers of
the one warp that needs them. What the next step needs is on its way while this one is multiplied. An instruction of the
tensor cores multiplies 16 columns by 8 rows over 16 numbers of the depth. Which 16 is open as long as both sides agree:
a thread takes the 8 neighbours that lie in one word of 4 bits.

Tensor cores cut sums off and do not round them, so that long ones would come out too small: each sum is of one step,
and steps are added up as floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T

from partc.ir.panels import BLOCK, LANES
from targets.tvm.gpu.kernels.shapes import Finish, Shape, parameters_of, scaled, select
from targets.tvm.gpu.kernels.tensor_weights import Row, take_pair, weights_of
from targets.tvm.gpu.kernels.threads import gpu_func, local, shared, wait
from targets.tvm.kernels.script import Buffer, Expr, store

_PARTS_OF_X = 3
_TOGETHER = 2
"""Tiles of 8 rows whose sums a thread has in hand."""


@dataclass(frozen=True)
class Split:
    """How the warps of a block share its part of the result."""

    rows: int
    """Of x: a multiple of 16."""
    panels: int
    """Panels of 16 columns of a warp, for each weight."""
    across: int
    """Warps side by side, for columns."""
    deep: int
    """Warps that share the depth."""

    @property
    def columns(self) -> int:
        """Columns of the result of a block."""
        return LANES * self.panels * self.across

    @property
    def step(self) -> int:
        """Numbers of the depth between two waits."""
        return BLOCK * self.deep

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.across * self.deep


_FEW, _SHORT, _LONG = 16, 64, 256


def split_of(s: Shape, weights: int) -> Split:
    """What was fastest on an H100: short steps make blocks for all of the GPU, long ones read weights less often."""
    if s.M <= _FEW:
        return Split(rows=16, panels=1, across=1, deep=8)
    if s.M <= _SHORT:
        return Split(rows=16, panels=2, across=1, deep=8 // weights)
    return Split(rows=32, panels=2, across=2, deep=4 if s.M <= _LONG and weights == 1 else 2)


def takes(s: Shape) -> bool:
    """Whether these kernels compute a product: a scale holds for all that an instruction adds up."""
    return s.has_tensor_cores and not 0 < s.block < BLOCK


def tensor_product(s: Shape, finish: Finish, added: tuple[int, int] | None, weights: int) -> Any:
    """y[M, N] of x, one or two weights and what is added; see `product.product`."""
    split = split_of(s, weights)

    def write(blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, *tensors: Buffer) -> None:
        matrices, extra, y = tensors[:weights], tensors[weights:-1], tensors[-1]
        tile = _Tile(s, weights, split, blocks, threads)

        def load(step: Expr) -> None:
            for number, w in enumerate(matrices):
                tile.load(number, s, w, tile.group, step)

        rooms = tile.multiply(x, load)

        def whole(sums: list[Expr], row: Expr, column: Expr) -> Expr:
            found = [scaled(s, w, total, column) for total, w in zip(sums, matrices, strict=True)]
            more = [tensor[0 if added and added[0] == 1 else row, column] for tensor in extra]
            return finish([*found, *more], row, column)

        tile.write(s, y, rooms, tile.group, whole)

    grid = math.ceil(s.M / split.rows), math.ceil(s.N / split.columns)
    return gpu_func(parameters_of([s] * weights, added), grid, (32, split.threads // 32), write)


def tensor_products(*shapes: Shape) -> Any:
    """Products of one x with two or three weights, in one launch; see `product.products`."""
    first, split = shapes[0], split_of(shapes[0], 1)
    groups = [math.ceil(s.N / split.columns) for s in shapes]

    def write(blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, *tensors: Buffer) -> None:
        matrices, results = tensors[: len(shapes)], tensors[len(shapes) :]
        tile = _Tile(first, 1, split, blocks, threads)

        def load(step: Expr) -> None:
            select(groups, tile.group, lambda i, own: tile.load(0, shapes[i], matrices[i], own, step))

        rooms = tile.multiply(x, load)

        def finish(i: int, own: Expr) -> None:
            s, w = shapes[i], matrices[i]
            tile.write(s, results[i], rooms, own, lambda sums, row, column: scaled(s, w, sums[0], column))

        select(groups, tile.group, finish)

    grid = math.ceil(first.M / split.rows), sum(groups)
    return gpu_func(parameters_of(shapes, results=len(shapes)), grid, (32, split.threads // 32), write)


class _Tile:
    """The part of a result that a block computes, while its kernel is written."""

    def __init__(
        self, s: Shape, weights: int, split: Split, blocks: Sequence[Expr], threads: Sequence[Expr]
    ) -> None:
        self._s, self._weights, self._split = s, weights, split
        self._tile, self.group = blocks
        lane, warp = threads
        self._thread = T.bind(warp * 32 + lane)
        self._row, self._quarter = T.bind(lane // 4), T.bind(lane % 4)
        self._across, self._deep = T.bind(warp % split.across), T.bind(warp // split.across)
        self._panels = split.panels * weights
        self._totals = local((self._panels, split.rows // 8, 4))
        self._held = weights_of(s, self._panels, self._row, self._quarter)
        self._turns = math.ceil(split.rows * 4 * split.deep / split.threads)
        self._numbers = local((self._turns, 8))

    def multiply(self, x: Buffer, load: Callable[[Expr], None]) -> list[Buffer]:
        """The sums [rows, columns] of every weight, where all threads see them; `load` fetches weights of a step."""
        split = self._split
        pieces = shared((split.deep, split.rows, _PARTS_OF_X, 16), "uint32")
        for panel in range(self._panels):
            with T.unroll(split.rows // 8) as n:
                for c in range(4):
                    store(self._totals, [panel, n, c], T.float32(0))
        steps = math.ceil(self._s.depth / split.step)
        load(T.int32(0))
        self._load_x(x, T.int32(0))
        with T.serial(steps) as step:
            for panel in range(self._panels):
                self._held.convert(panel)
            self._take_apart(pieces)
            wait()
            following = T.bind(T.min(step + 1, steps - 1))
            scales = self._held.scales()
            load(following)
            self._load_x(x, following)
            self._multiply(pieces, scales)
            wait()
        return self._gather()

    def _unit(self, turn: Expr) -> tuple[Expr, Expr, Expr]:
        """Which 8 neighbours of a row a thread takes apart: quarter of a block, row, block."""
        unit = T.bind(turn * self._split.threads + self._thread)
        rows = self._split.rows
        return T.bind(unit % 4), T.bind(unit // 4 % rows), T.bind(unit // (4 * rows))

    def _load_x(self, x: Buffer, step: Expr) -> None:
        s, split = self._s, self._split
        with T.unroll(self._turns) as turn:
            quarter, row, block = self._unit(turn)
            first = T.bind(step * split.step + block * BLOCK + quarter * 8)
            own = T.bind(T.min(self._tile * split.rows + row, s.M - 1))
            _load_row(s, x, own, first, Row(self._numbers, (turn,)), s.K % split.step == 0)

    def _take_apart(self, pieces: Buffer) -> None:
        """The parts of x of a step, in the order in which threads multiply them."""
        with T.unroll(self._turns) as turn:
            quarter, row, block = self._unit(turn)
            for part in range(_PARTS_OF_X):
                words = local((4,), "uint32")
                for word in range(4):
                    number = word // 2 * 4 + word % 2
                    found = take_pair(Row(self._numbers, (turn,)), number, part < _PARTS_OF_X - 1)
                    store(words, [word], found)
                store(pieces, [block, row, part, T.Ramp(quarter * 4, 1, 4)], words[T.Ramp(0, 1, 4)])

    def load(self, number: int, s: Shape, w: Buffer, group: Expr, step: Expr) -> None:
        """Fetch what this warp needs of a weight for one step."""
        split = self._split
        block = T.bind(step * split.deep + self._deep)
        for i in range(split.panels):
            panel = T.bind(group * (split.columns // LANES) + self._across * split.panels + i)
            self._held.load(number * split.panels + i, s, w, panel, block)

    def _multiply(self, pieces: Buffer, scales: Buffer) -> None:
        products = sorted(
            ((i, j) for i in range(self._held.parts) for j in range(_PARTS_OF_X) if i + j < _PARTS_OF_X),
            key=lambda parts: -sum(parts),
        )
        with T.unroll(self._split.rows // 8 // _TOGETHER) as pair:
            x = local((_TOGETHER, _PARTS_OF_X, 4), "uint32")
            sums = local((_TOGETHER, self._panels, 4))
            for n in range(_TOGETHER):
                row = (pair * _TOGETHER + n) * 8 + self._row
                for part in range(_PARTS_OF_X):
                    place = (self._deep, row, part, T.Ramp(self._quarter * 4, 1, 4))
                    store(x, [n, part, T.Ramp(0, 1, 4)], pieces[place])
            each = [(n, panel) for n in range(_TOGETHER) for panel in range(self._panels)]
            for number, (i, j) in enumerate(products):
                for m in range(2):
                    function = "partc_multiply" if number or m else "partc_multiply_first"
                    for n, panel in each:  # one after the other: a sum waits for its last product
                        _call(
                            function, sums[n, panel, 0], self._held.fragments[panel, i, m, 0], x[n, j, m * 2]
                        )
            for n, panel in each:
                for c in range(4):
                    total = [panel, pair * _TOGETHER + n, c]
                    found = sums[n, panel, c]
                    if self._s.has_block_scales:
                        found = found * scales[panel, c // 2]
                    store(self._totals, total, self._totals[tuple(total)] + found)

    def _gather(self) -> list[Buffer]:
        """The sums of all parts of the depth, added up one after the other."""
        split, totals = self._split, self._totals
        rooms = [shared((split.rows, split.columns)) for _ in range(self._weights)]

        def each(deep: int, write: Callable[[Buffer, list[Expr], list[Expr]], None]) -> None:
            with T.If(self._deep == deep), T.Then():
                for panel in range(self._panels):
                    first = (self._across * split.panels + panel % split.panels) * LANES + self._row
                    with T.unroll(split.rows // 8) as n:
                        for c in range(4):
                            place = [n * 8 + self._quarter * 2 + c % 2, first + c // 2 * 8]
                            write(rooms[panel // split.panels], place, [panel, n, c])
            wait()  # nobody waits within a branch

        for deep in range(split.deep):
            if deep:
                each(
                    deep, lambda room, place, own: store(totals, own, totals[tuple(own)] + room[tuple(place)])
                )
            each(deep, lambda room, place, own: store(room, place, totals[tuple(own)]))
        return rooms

    def write(self, s: Shape, y: Buffer, rooms: Sequence[Buffer], group: Expr, finish: Finish) -> None:
        """The result, columns side by side."""
        split = self._split
        with T.serial(split.rows * split.columns // split.threads) as turn:
            number = T.bind(turn * split.threads + self._thread)
            own, lane = T.bind(number // split.columns), T.bind(number % split.columns)
            row, column = T.bind(self._tile * split.rows + own), T.bind(group * split.columns + lane)
            with T.If(T.And(column < s.N, row < s.M)), T.Then():
                store(y, [row, column], finish([room[own, lane] for room in rooms], row, column))


def _call(function: str, *registers: Expr) -> None:
    T.evaluate(T.call_extern("void", function, *(T.address_of(one) for one in registers)))


def _load_row(s: Shape, x: Buffer, row: Expr, first: Expr, numbers: Row, is_whole: bool) -> None:
    """8 neighbours of a row from `first` on; zeros behind K."""
    for start in range(0, 8, 4):
        place = [*numbers.places, T.Ramp(start, 1, 4)]
        if s.K % 4 == 0:
            at = first + start if is_whole else T.min(first + start, s.K - 4)
            store(numbers.buffer, place, x[row, T.Ramp(at, 1, 4)])
        for j in range(start, start + 4):
            own = [*numbers.places, j]
            if s.K % 4:
                store(numbers.buffer, own, x[row, T.min(first + j, s.K - 1)])
            if not is_whole:
                store(
                    numbers.buffer, own, T.Select(first + j < s.K, numbers.buffer[tuple(own)], T.float32(0))
                )
