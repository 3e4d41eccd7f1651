"""Products of one row, or a few, with weights in panels: as fast as the weights come from memory.

A block takes one panel of 16 columns, so that even small products give work to all of a GPU. A thread takes four
columns with one access of 16 bytes, and every eighth place of the depth of its warp; four accesses are on the way
before the first is needed. What threads have is added up through the memory that they share.

Weights of 4 and 8 bits become floats by their bits, which are put where a float has its last ones: conversions are
slow on GPUs, by a factor of 4 to 8 beside sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm.script import tirx as T

from partc.ir.panels import BLOCK, LANES, scales_of_block
from partc.ir.weight_formats import by_format
from targets.tvm.gpu.kernels.shapes import Finish, Matrix, Shape, parameters_of, scaled, select
from targets.tvm.gpu.kernels.threads import gpu_func, half_bits, in_pairs, local, shared, wait
from targets.tvm.kernels.script import Buffer, Expr, store
from targets.tvm.kernels.words import half_of

MOST_ROWS = 4
_LANES, _FEW_WARPS = 32, 8
_FEW_PANELS = 256
"""Panels up to which a block takes twice as many threads, where it may: few blocks have few loads on the way."""
_WIDE = 4
"""Columns of a thread."""
_SLICES = _LANES // (LANES // _WIDE)
"""Threads of a warp that share the depth."""
_TURNS = 4
"""Steps whose weights are on the way at once."""
_FLOATS = 4
"""Numbers of the depth that a thread takes at once of floats, whose panels have one a row."""
_MAGIC = 0x4B000000
"""Bits of 2 ** 23: its last bits count ones."""


def few_rows(s: Shape, finish: Finish, added: tuple[int, int] | None, weights: int) -> Any:
    """y[M, N] of x, one or two weights and what is added; see `product.product`."""

    def write(blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, *tensors: Buffer) -> None:
        matrices, extra, y = tensors[:weights], tensors[weights:-1], tensors[-1]
        extra, factors = (extra[:-1], extra[-1]) if s.epsilon else (extra, None)
        panel = _Panel(s, s.M, warps, x, T.int32(0), factors, threads)
        panel.add(matrices, blocks[0])

        def whole(totals: list[Expr], row: Expr, column: Expr) -> Expr:
            found = [scaled(s, w, total, column) for total, w in zip(totals, matrices, strict=True)]
            more = [tensor[0 if added and added[0] == 1 else row, column] for tensor in extra]
            return finish([*found, *more], row, column)

        panel.gather(weights)
        panel.write(s, y, blocks[0], whole)

    warps = _warps_of(s, s.panels, weights)
    return gpu_func(parameters_of([s] * weights, added), (s.panels,), (_LANES, warps), write)


def few_rows_products(*shapes: Shape) -> Any:
    """Products of one x with two or three weights, in one launch; see `product.products`."""
    first, counts = shapes[0], [s.panels for s in shapes]

    def write(blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, *tensors: Buffer) -> None:
        matrices, rest = tensors[: len(shapes)], tensors[len(shapes) :]
        factors, results = (rest[0], rest[1:]) if first.epsilon else (None, rest)
        panel = _Panel(first, first.M, warps, x, T.int32(0), factors, threads)
        select(counts, blocks[0], lambda i, own: panel.add([matrices[i]], own, shapes[i]))
        panel.gather(1)  # nobody waits within a branch

        def finish(i: int, own: Expr) -> None:
            s, w = shapes[i], matrices[i]
            panel.write(s, results[i], own, lambda totals, row, column: scaled(s, w, totals[0], column))

        select(counts, blocks[0], finish)

    warps = _warps_of(first, sum(counts), 1)
    parameters = parameters_of(shapes, results=len(shapes))
    return gpu_func(parameters, (sum(counts),), (_LANES, warps), write)


def _warps_of(s: Shape, panels: int, weights: int) -> int:
    """Warps of a block; what they leave behind has to fit in the memory that they share."""
    is_wide = panels <= _FEW_PANELS and s.threads >= 2 * _LANES * _FEW_WARPS and s.M * weights <= 2
    return 2 * _FEW_WARPS if is_wide else _FEW_WARPS


def experts_of_rows(s: Shape, experts: int, kind: str) -> Any:
    """y[M, N]: the product of each row of x with the w of its expert; a block takes one row."""

    def write(
        blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, chosen: Buffer, w: Buffer, y: Buffer
    ) -> None:
        row, own = blocks
        matrix = Matrix(w, T.bind(T.max(T.min(T.Cast("int32", chosen[row]), experts - 1), 0)))
        panel = _Panel(s, 1, _FEW_WARPS, x, row, None, threads)
        panel.add([matrix], own)
        panel.gather(1)
        panel.write(s, y, own, lambda totals, row, column: scaled(s, matrix, totals[0], column))

    parameters = {
        "x": ((s.M, s.K), "float32"),
        "chosen": ((s.M,), kind),
        "w": ((experts, *s.weight[0]), s.weight[1]),
        "y": ((s.M, s.N), "float32"),
    }
    return gpu_func(parameters, (s.M, s.panels), (_LANES, _FEW_WARPS), write)


class _Panel:
    """16 columns of a result, of all its weights, while their kernel is written."""

    def __init__(
        self,
        s: Shape,
        rows: int,
        warps: int,
        x: Buffer,
        first: Expr,
        factors: Buffer | None,
        threads: Sequence[Expr],
    ) -> None:
        """`first`: of the `rows` rows of x; `factors`: of the norm that they go through, if they do."""
        self._s, self._rows, self._x, self._first, self._factors = s, rows, x, first, factors
        lane, warp = threads
        self._warps = warps
        self._warp, self._thread = warp, T.bind(warp * _LANES + lane)
        self._quad, self._part = T.bind(lane % (LANES // _WIDE)), T.bind(lane // (LANES // _WIDE))
        self._sums = [local((rows, _WIDE)) for _ in range(2)]
        self._squares = local((rows,))
        self._rooms: list[Buffer] = []

    def add(self, matrices: Sequence[Any], panel: Expr, s: Shape | None = None) -> None:
        """The sums of this thread; `s`: sizes of the weights, where there are several."""
        s = s or self._s
        for r in range(self._rows):
            store(self._squares, [r], T.float32(0))
            for number in range(len(matrices)):
                for c in range(_WIDE):
                    store(self._sums[number], [r, c], T.float32(0))
        make = self._of_floats
        if s.bits is not None:
            make = by_format(s.bits, s.block, int4=self._of4, int8=self._of8, int8_blocks=self._of8_blocks)
        (steps, step_of), warps = make(s), self._warps
        whole = steps // warps

        def add(step: Expr) -> None:
            step_of(step, matrices, panel)

        with T.serial(whole // _TURNS) as turn, T.unroll(_TURNS) as i:
            add(T.bind((turn * _TURNS + i) * warps + self._warp))
        with T.unroll(whole % _TURNS) as i:
            add(T.bind((whole // _TURNS * _TURNS + i) * warps + self._warp))
        if steps % warps:
            with T.If(self._warp < steps % warps), T.Then():
                add(T.bind(whole * warps + self._warp))

    def _of4(self, s: Shape) -> tuple[int, Step]:
        half, word = self._part // 4, self._part % 4 * LANES + self._quad * _WIDE

        def add(step: Expr, matrices: Sequence[Any], panel: Expr) -> None:
            place = (panel // 4, step, panel % 4)
            given = [
                (
                    _words(w, place, half * 64 + word, _WIDE),
                    _words(w, place, 128 + half * 8 + self._quad * 2, 2),
                )
                for w in matrices
            ]
            numbers = self._numbers(step * (2 * BLOCK) + self._part * 8, 8)
            for r in range(self._rows):
                for j in range(8):
                    if height := _height(j):
                        store(numbers, [r, j], numbers[r, j] * T.float32(2.0**-height))
            for (words, scales), sums in zip(given, self._sums, strict=False):
                for c in range(_WIDE):
                    scale = T.bind(half_bits(half_of(scales[c // 2], c)))
                    halves = words[c], T.bind(T.shift_right(words[c], T.int32(16)))
                    weights = [
                        T.bind(_by_bits(halves[j % 4 // 2], 15 << _height(j), 8 << _height(j)))
                        for j in range(8)
                    ]
                    for r in range(self._rows):
                        store(sums, [r, c], sums[r, c] + _sum_of(weights, numbers, r) * scale)

        return s.weight[0][1], add

    def _of8(self, s: Shape) -> tuple[int, Step]:
        def add(step: Expr, matrices: Sequence[Any], panel: Expr) -> None:
            at = T.bind(step * _SLICES + self._part)
            given = [_words(w, (panel, 2 + at), self._quad * _WIDE, _WIDE) for w in matrices]
            numbers = self._numbers(at * 4, 4)
            for words, sums in zip(given, self._sums, strict=False):
                for c in range(_WIDE):
                    weights = _bytes_of(words[c])
                    for r in range(self._rows):
                        store(sums, [r, c], sums[r, c] + _sum_of(weights, numbers, r))

        return (s.weight[0][1] - 2) // _SLICES, add

    def _of8_blocks(self, s: Shape) -> tuple[int, Step]:
        """A block of 32 in a step: each of the threads that share the depth takes a word of it."""
        first = BLOCK // 4 * LANES + self._part // (_SLICES // scales_of_block(s.block)) * (LANES // 2)

        def add(step: Expr, matrices: Sequence[Any], panel: Expr) -> None:
            given = [
                (
                    _words(w, (panel, step), self._part * LANES + self._quad * _WIDE, _WIDE),
                    _words(w, (panel, step), first + self._quad * (_WIDE // 2), _WIDE // 2),
                )
                for w in matrices
            ]
            numbers = self._numbers(step * BLOCK + self._part * 4, 4)
            for (words, scales), sums in zip(given, self._sums, strict=False):
                for c in range(_WIDE):
                    scale, weights = T.bind(half_bits(half_of(scales[c // 2], c))), _bytes_of(words[c])
                    for r in range(self._rows):
                        store(sums, [r, c], sums[r, c] + _sum_of(weights, numbers, r) * scale)

        return s.weight[0][1], add

    def _of_floats(self, s: Shape) -> tuple[int, Step]:
        width = _SLICES * _FLOATS

        def add(step: Expr, matrices: Sequence[Any], panel: Expr) -> None:
            first = T.bind(step * width + self._part * _FLOATS)
            columns = T.Ramp(self._quad * _WIDE, 1, _WIDE)
            given = [local((_FLOATS, _WIDE), s.stored) for _ in matrices]
            for w, found in zip(matrices, given, strict=True):
                for j in range(_FLOATS):
                    place = first + j if s.K % width == 0 else T.min(first + j, s.K - 1)
                    store(found, [j, T.Ramp(0, 1, _WIDE)], w[panel, place, columns])
            numbers = self._numbers(first, _FLOATS)
            for found, sums in zip(given, self._sums, strict=False):
                for j in range(_FLOATS):
                    for c in range(_WIDE):
                        weight = found[j, c] if s.stored == "float32" else T.Cast("float32", found[j, c])
                        weight = T.bind(weight)
                        for r in range(self._rows):
                            store(sums, [r, c], sums[r, c] + weight * numbers[r, j])

        return -(-s.K // width), add

    def _numbers(self, first: Expr, many: int) -> Buffer:
        """[rows, many]: neighbours of each row of x, times the factors of their norm; zeros behind K."""
        found = local((self._rows, many))
        for r in range(self._rows):
            self._read(self._x, (self._first + r,), first, found, r, many)
        if self._factors is not None:
            factors = local((1, many))
            self._read(self._factors, (), first, factors, 0, many)
            for r in range(self._rows):
                squares = self._squares[r]
                for j in range(many):
                    squares = squares + found[r, j] * found[r, j]
                store(self._squares, [r], squares)
                for j in range(many):
                    store(found, [r, j], found[r, j] * factors[0, j])
        return found

    def _read(self, x: Buffer, row: tuple[Expr, ...], first: Expr, found: Buffer, r: int, many: int) -> None:
        K = self._s.K
        is_whole = K % (_SLICES * many) == 0
        for start in range(0, many, 4):
            if K % 4 == 0:
                at = first + start if is_whole else T.min(first + start, K - 4)
                store(found, [r, T.Ramp(start, 1, 4)], x[(*row, T.Ramp(at, 1, 4))])
            for j in range(start, start + 4):
                if K % 4:
                    store(found, [r, j], x[(*row, T.min(first + j, K - 1))])
                if not is_whole:
                    store(found, [r, j], T.Select(first + j < K, found[r, j], T.float32(0)))

    def gather(self, weights: int) -> None:
        """The sums of all threads, for every row and column in some parts: [parts, rows · 16], where all see them."""
        slices, pairs, parts = self._warps * _SLICES, self._rows * LANES, self._parts
        slice_ = self._warp * _SLICES + self._part
        self._rooms = [shared((slices, pairs)) for _ in range(weights)]
        for sums, room in zip(self._sums, self._rooms, strict=False):
            for r in range(self._rows):
                place = [slice_, T.Ramp(r * LANES + self._quad * _WIDE, 1, _WIDE)]
                store(room, place, sums[r, T.Ramp(0, 1, _WIDE)])
        if self._factors is not None:
            self._lengths = shared((slices, self._rows))
            with T.If(self._quad == 0), T.Then():
                for r in range(self._rows):
                    store(self._lengths, [slice_, r], self._squares[r])
        wait()
        pair, part = T.bind(self._thread % pairs), T.bind(self._thread // pairs)
        found, each = local((weights,)), slices // parts
        for number, room in enumerate(self._rooms):
            with T.If(part < parts), T.Then():
                store(found, [number], in_pairs([room[part * each + i, pair] for i in range(each)]))
        wait()
        for number, room in enumerate(self._rooms):
            with T.If(part < parts), T.Then():
                store(room, [part, pair], found[number])
        wait()

    @property
    def _parts(self) -> int:
        """Parts of the sum of a row and column, a power of two: a thread each."""
        return 1 << ((_LANES * self._warps // (self._rows * LANES)).bit_length() - 1)

    def write(self, s: Shape, y: Buffer, panel: Expr, finish: Finish) -> None:
        """The result of this panel of a product."""
        row, column = T.bind(self._thread // LANES), T.bind(panel * LANES + self._thread % LANES)
        with T.If(T.And(row < self._rows, column < s.N)), T.Then():
            length = self._length(row)
            totals = [
                T.bind(in_pairs([room[i, self._thread] for i in range(self._parts)]) * length)
                for room in self._rooms
            ]
            own = self._first + row
            store(y, [own, column], finish(totals, own, column))

    def _length(self, row: Expr) -> Expr:
        """What the norm of a row multiplies it with."""
        if self._factors is None:
            return T.float32(1)
        squares = in_pairs([self._lengths[i, row] for i in range(self._warps * _SLICES)])
        return T.bind(T.rsqrt(squares * T.float32(1 / self._s.K) + T.float32(self._s.epsilon)))


Step = Callable[[Expr, Sequence[Any], Expr], None]
"""Adds what one step gives: step, weights, panel."""


def _height(j: int) -> int:
    """Bits that the weight j of a word of 4 bits stands too high in its half of the word."""
    return 8 * (j % 2) + 4 * (j // 4)


def _words(w: Any, places: tuple[Expr, ...], first: Expr, many: int) -> Buffer:
    """Neighbouring words with one access."""
    found = local((many,), "int32")
    store(found, [T.Ramp(0, 1, many)], w[(*places, T.Ramp(first, 1, many))])
    return found


def _bytes_of(word: Expr) -> list[Expr]:
    """The four signed bytes of a word as floats."""
    moved = T.bind(T.bitwise_xor(word, T.int32(-0x7F7F7F80)))  # 128 more
    return [T.bind(_by_bits(T.shift_right(moved, T.int32(8 * j)), 255, 128)) for j in range(4)]


def _by_bits(word: Expr, mask: int, zero: int) -> Expr:
    """The number in the bits of a mask, less what stands for zero there."""
    bits = T.bitwise_or(T.bitwise_and(word, T.int32(mask)), T.int32(_MAGIC))
    return T.reinterpret("float32", bits) - T.float32(2.0**23 + zero)


def _sum_of(weights: Sequence[Expr], numbers: Buffer, r: int) -> Expr:
    found = weights[0] * numbers[r, 0]
    for j, weight in enumerate(weights[1:], 1):
        found = found + weight * numbers[r, j]
    return found
