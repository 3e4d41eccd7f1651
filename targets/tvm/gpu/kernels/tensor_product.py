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
from targets.tvm.gpu.kernels.threads import gpu_func, half_bits, local, shared, wait
from targets.tvm.kernels.script import Buffer, Expr, store

_PARTS_OF_X = 3
_TOGETHER = 2
"""Tiles of 8 rows whose sums a thread has in hand."""
_PARTS = {"float32": 3, "float16": 2}
"""Numbers of bfloat16 that a weight is the sum of, where it is not one."""
_HIGH = 0xFFFF0000

SOURCE = """\
static __device__ __forceinline__ void partc_multiply(float* sums, const unsigned* w, const unsigned* x) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]));
}
static __device__ __forceinline__ void partc_multiply_first(float* sums, const unsigned* w, const unsigned* x) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]), "f"(0.0f));
}
static __device__ __forceinline__ unsigned partc_weights_of_4_bits(unsigned pair) {
  unsigned weights;  // 128 + n, less 136
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(weights) : "r"(pair | 0x43004300u), "r"(0x3f803f80u), "r"(0xc308c308u));
  return weights;
}
"""
"""What kernels call: CUDA has no name of its own for either."""


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
        self._parts = _PARTS.get(s.stored, 1)
        panels = self._panels = split.panels * weights
        self._totals = local((panels, split.rows // 8, 4))
        is_whole = s.stored.startswith("int")
        self._raw = (
            local((panels, 2 if s.stored == "int4" else 4), "int32") if is_whole else local((panels, 2, 8))
        )
        self._scales = local((panels, 2))
        self._fragments = local((panels, self._parts, 2, 4), "uint32")
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
                self._convert(panel)
            self._take_apart(pieces)
            wait()
            following = T.bind(T.min(step + 1, steps - 1))
            scales = self._scales_of_this_step()
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
            _load_row(s, x, own, first, _Row(self._numbers, (turn,)), s.K % split.step == 0)

    def _take_apart(self, pieces: Buffer) -> None:
        """The parts of x of a step, in the order in which threads multiply them."""
        with T.unroll(self._turns) as turn:
            quarter, row, block = self._unit(turn)
            for part in range(_PARTS_OF_X):
                words = local((4,), "uint32")
                for word in range(4):
                    number = word // 2 * 4 + word % 2
                    found = _take(_Row(self._numbers, (turn,)), number, part < _PARTS_OF_X - 1)
                    store(words, [word], found)
                store(pieces, [block, row, part, T.Ramp(quarter * 4, 1, 4)], words[T.Ramp(0, 1, 4)])

    def _scales_of_this_step(self) -> Buffer:
        """A copy, since those of the next step are loaded before they are needed."""
        scales = local((self._panels, 2))
        if self._s.has_block_scales:
            for panel in range(self._panels):
                for side in range(2):
                    store(scales, [panel, side], self._scales[panel, side])
        return scales

    def load(self, number: int, s: Shape, w: Buffer, group: Expr, step: Expr) -> None:
        """Fetch what this warp needs of a weight for one step."""
        split = self._split
        block = T.bind(step * split.deep + self._deep)
        for i in range(split.panels):
            panel = T.bind(group * (split.columns // LANES) + self._across * split.panels + i)
            at = number * split.panels + i
            match s.stored:
                case "int4":
                    self._load4(at, s, w, panel, block)
                case "int8":
                    self._load8(at, s, w, panel, block)
                case _:
                    self._load_floats(at, s, w, panel, block)

    def _load4(self, at: int, s: Shape, w: Buffer, panel: Expr, block: Expr) -> None:
        groups, steps, _, _ = s.weight[0]
        step, half = T.bind(T.min(block // 2, steps - 1)), block % 2  # behind the end x is zero
        place = (T.min(panel // 4, groups - 1), step, panel % 4)
        first = half * 64 + self._quarter * LANES + self._row
        for side in range(2):
            store(self._raw, [at, side], w[(*place, first + 8 * side)])
            column = self._row + 8 * side
            pair = w[(*place, 128 + half * 8 + column // 2)]
            bits = T.bitwise_and(T.shift_right(pair, column % 2 * 16), T.int32(0xFFFF))
            store(self._scales, [at, side], half_bits(bits))

    def _load8(self, at: int, s: Shape, w: Buffer, panel: Expr, block: Expr) -> None:
        panels, words, _ = s.weight[0]
        for j in range(4):
            word = T.min(2 + block * 8 + self._quarter * 2 + j // 2, words - 1)
            store(self._raw, [at, j], w[T.min(panel, panels - 1), word, self._row + j % 2 * 8])

    def _load_floats(self, at: int, s: Shape, w: Buffer, panel: Expr, block: Expr) -> None:
        own, first = T.bind(T.min(panel, s.panels - 1)), T.bind(block * BLOCK + self._quarter * 8)
        for side in range(2):
            for j in range(8):
                place = first + j if s.K % self._split.step == 0 else T.min(first + j, s.K - 1)
                store(self._raw, [at, side, j], T.Cast("float32", w[own, place, self._row + 8 * side]))

    def _convert(self, at: int) -> None:
        """The weights of a panel as pairs of bfloat16."""
        for m in range(2):
            for register in range(4):
                side, pair = register % 2, register // 2
                place = [at, 0, m, register]
                match self._s.stored:
                    case "int4":
                        word = T.shift_right(
                            T.Cast("uint32", self._raw[at, side]), T.uint32(8 * pair + 4 * m)
                        )
                        nibbles = T.bitwise_and(word, T.uint32(0x000F000F))
                        store(
                            self._fragments,
                            place,
                            T.call_extern("uint32", "partc_weights_of_4_bits", nibbles),
                        )
                    case "int8":
                        word = self._raw[at, m * 2 + side]
                        one, other = (_signed_byte(word, pair + 2 * i) for i in range(2))
                        store(self._fragments, place, _pair_of(_bits(one), _bits(other)))
                    case _:
                        pass
        if not self._s.stored.startswith("int"):
            for part in range(self._parts):
                for m in range(2):
                    for register in range(4):
                        numbers = _Row(self._raw, (at, register % 2))
                        word = _take(numbers, m * 4 + register // 2, part < self._parts - 1)
                        store(self._fragments, [at, part, m, register], word)

    def _multiply(self, pieces: Buffer, scales: Buffer) -> None:
        products = sorted(
            ((i, j) for i in range(self._parts) for j in range(_PARTS_OF_X) if i + j < _PARTS_OF_X),
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
                        _call(function, sums[n, panel, 0], self._fragments[panel, i, m, 0], x[n, j, m * 2])
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


class _Row:
    """The last axis of a buffer."""

    def __init__(self, buffer: Buffer, places: tuple[Expr, ...]) -> None:
        self.buffer, self.places = buffer, places


def _take(numbers: _Row, j: int, rest: bool) -> Expr:
    """The high parts of the numbers j and j + 2 as a pair of bfloat16; with `rest`, what is left stays in their place.

    Cut off and not rounded: what is left is exact then, too.
    """
    buffer, places = numbers.buffer, numbers.places
    words = []
    for place in (j, j + 2):
        number = buffer[(*places, place)]
        words.append(T.bind(T.bitwise_and(T.reinterpret("uint32", number), T.uint32(_HIGH))))
        if rest:
            store(buffer, [*places, place], number - T.reinterpret("float32", words[-1]))
    return _pair_of(*words)


def _pair_of(low: Expr, high: Expr) -> Expr:
    """Two words whose upper halves are bfloat16, in one."""
    return T.bitwise_or(T.shift_right(low, T.uint32(16)), T.bitwise_and(high, T.uint32(_HIGH)))


def _bits(number: Expr) -> Expr:
    return T.reinterpret("uint32", number)


def _signed_byte(word: Expr, place: int) -> Expr:
    """Byte `place` of a word as a float32; it fits in bfloat16."""
    return T.Cast("float32", T.shift_right(T.shift_left(word, T.int32(24 - 8 * place)), T.int32(24)))


def _load_row(s: Shape, x: Buffer, row: Expr, first: Expr, numbers: _Row, is_whole: bool) -> None:
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
