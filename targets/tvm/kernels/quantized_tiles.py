"""Tiles of products with quantised weights in panels (`partc.ir.panels`): rows of activations, in words, times panels.

| bits | a block of 32 weights of 16 outputs costs, in instructions of AVX-512 | bytes a weight |
| --- | --- | --- |
| 4 | 4 loads, 12 to unpack; each row: 8 `vpdpbusd`, and 3 for the scales | 0.5625 |
| 8 | each row: 8 `vpdpbusd`, and as many broadcasts for the panels of a tile | 1 |
| 8, in blocks | 8 loads that move bytes up; each row: 8 `vpdpbusd`, and 3 for each scale | 1.0625 |

Few rows read weights in the strict order of memory, which is what the hardware's prefetcher needs: visiting the blocks
of four panels in another order inside 2.3 KB was measured at 10 GB/s instead of 26. Asking for memory 2.3 KB ahead is a
matter of the processor: on an EPYC 9004 a row took half as long again; on a Xeon of the fourth generation it takes 0.88
times as long, and two to twelve rows 0.7 times.
Many rows unpack the nibbles of 64 columns once, into 64K bytes that stay in the second-level cache.
A tile takes a block word by word, each for all of its vectors and rows: weights are loaded once for all rows and
activations once for all vectors, and neither has to be kept. With one vector or row after the other LLVM kept them on
the stack: 81 accesses for 96 `vpdpbusd` of a tile of 3 rows and 4 panels, none now; 38 for 64 `vpmaddubsw` of AVX2.

The order of additions is the same for any number of rows and every instruction set: sums of a block are whole numbers,
and blocks are added in float32 one after the other. So a prompt in pieces gives the bits of the prompt at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tvm.script import tirx as T

from partc.ir.panels import LANES
from partc.ir.weight_formats import by_format
from targets.tvm.kernels.quantized_format import PANELS4, Format, Row, Rows, in_order
from targets.tvm.kernels.script import Buffer, Expr, registers, store
from targets.tvm.quantized import UNIT, WORDS

_AHEAD8 = 4
"""Blocks of 8 bits from what is read to what is asked for: as many bytes as a step of 4 bits."""


def write_group(
    f: Format,
    x: Buffer,
    weights: Sequence[Buffer],
    y: Buffer,
    group: Expr,
    finish: Callable[[Sequence[Expr], Expr, Expr], Expr],
    rows: Rows | None = None,
    added: Buffer | None = None,
) -> None:
    """Some or all rows of a group of panels of y = finish([x · w for w in weights], row, column).

    `finish` gets one number of each product, and makes one of y; `added` is a tensor shaped as y that it reads. A tile
    of rows passes over all panels of the group, so that whole runs of y are written, and its activations stay near.
    """
    panels = _panels(f, x, weights, group)
    rows = rows or in_order(f)
    with T.serial(rows.tiles) as tile, T.serial(f.group // f.tile.panels) as part:
        row, panel = rows.of(tile), panels.first + part * f.tile.panels
        if not f.is_few:
            _fetch(f, [y] if added is None else [y, added], panel, row)
        products = [panels.multiply(number, part, row) for number in range(len(weights))]
        _finish(f, products, y, panel, row, finish)


class _Packed4:
    """Weights of 4 bits as they are stored, unpacked in registers for a few rows, in the order of memory."""

    def __init__(self, f: Format, x: Buffer, weights: Sequence[Buffer], group: Expr) -> None:
        self.f, self.x, self.weights, self.group = f, x, weights, group
        self.first = group * PANELS4

    def multiply(self, number: int, part: Expr, row: Row) -> Buffer:
        """The rows times the panels of the group, by the weight of that number."""
        sums = _zeros(self.f)
        with T.serial(self.f.w_type[0][1]) as step:
            _for_blocks(self.f, lambda p, half: self._add(sums, number, step, p, half, row))
        return sums

    def _add(self, sums: Buffer, number: int, step: Expr, p: Expr, half: Expr, row: Row) -> None:
        """Sums of panel p += the rows times one of its two blocks of a step."""
        f, w = self.f, self.weights[number]

        def weights(i: int, p: Expr, v: int) -> Expr:
            word = w[self.group, step, p, f.lanes(half * 64 + i // 2 * LANES + v)]
            return f.isa.halves(word)[i % 2]

        def scales(p: Expr, v: int, unit: int) -> Expr:
            return _scales(f, w, self.group, step, p, half, v)

        if f.isa.asks_ahead:
            _, steps, _, words = f.w_type[0]
            for word in range(0, words // 2, LANES):
                _ask_for(w[self.group, T.min(step + 1, steps - 1), p, half * (words // 2) + word])
        _add_block(f, sums, [p], weights, scales, self.x, row, step * 2 + half)


class _Unpacked4:
    """Weights of 4 bits unpacked to bytes, once for all rows; the panels of a tile side by side."""

    def __init__(self, f: Format, x: Buffer, weights: Sequence[Buffer], group: Expr) -> None:
        self.f, self.x, self.group = f, x, group
        self.first = group * PANELS4
        blocks, parts, width = 2 * f.w_type[0][1], PANELS4 // f.tile.panels, f.tile.panels * LANES
        self._bytes = T.alloc_buffer((len(weights), parts, blocks, WORDS, width), "int32")
        self._scales = T.alloc_buffer((len(weights), parts, blocks, width), "float32")
        for number, w in enumerate(weights):
            self._unpack(number, w)

    def _unpack(self, number: int, w: Buffer) -> None:
        f = self.f
        with T.serial(f.w_type[0][1]) as step:
            _for_blocks(f, lambda p, half: self._unpack_block(number, w, step, p, half))

    def _unpack_block(self, number: int, w: Buffer, step: Expr, p: Expr, half: Expr) -> None:
        f = self.f
        part, place, block = p // f.tile.panels, p % f.tile.panels, step * 2 + half
        for v in f.vectors:
            lanes = f.lanes(place * LANES + v)
            for i in range(4):
                word = w[self.group, step, p, f.lanes(half * 64 + i * LANES + v)]
                for side, weights in enumerate(f.isa.halves(word)):
                    store(self._bytes, [number, part, block, 2 * i + side, lanes], weights)
            store(self._scales, [number, part, block, lanes], _scales(f, w, self.group, step, p, half, v))

    def multiply(self, number: int, part: Expr, row: Row) -> Buffer:
        """The rows times the panels of a part of the group, by the weight of that number."""
        f = self.f
        sums = _zeros(f)
        with T.serial(2 * f.w_type[0][1]) as block:

            def weights(i: int, p: Expr, v: int) -> Expr:
                return self._bytes[number, part, block, i, f.lanes(p * LANES + v)]

            def scales(p: Expr, v: int, unit: int) -> Expr:
                return self._scales[number, part, block, f.lanes(p * LANES + v)]

            _add_block(f, sums, range(f.tile.panels), weights, scales, self.x, row, block)
        return sums


class _Panels8:
    """Weights of 8 bits: sums stay whole numbers over all of K."""

    def __init__(self, f: Format, x: Buffer, weights: Sequence[Buffer], group: Expr) -> None:
        self.f, self.x, self.weights = f, x, weights
        self.first = T.min(group * f.group, f.panels - f.group)

    def multiply(self, number: int, part: Expr, row: Row) -> Buffer:
        """The rows times the panels of the group, by the weight of that number."""
        f, x, w = self.f, self.x, self.weights[number]
        sums = registers((f.tile.rows, f.tile.panels, LANES), "float32")
        whole = registers((f.tile.rows, f.tile.panels, LANES), "int32")
        every = list(itertools.product(range(f.tile.rows), range(f.tile.panels), f.vectors))
        for r, p, v in every:
            start = w[self.first + p, 0, f.lanes(v)] if f.isa.unsigned else f.all(T.int32(0))
            store(whole, [r, p, f.lanes(v)], start)
        with T.serial((f.w_type[0][1] - 2) // WORDS) as block:
            if f.is_few and f.isa.asks_ahead:
                after = T.min(block + _AHEAD8, (f.w_type[0][1] - 2) // WORDS - 1)
                for i, p in itertools.product(range(WORDS), range(f.tile.panels)):
                    _ask_for(w[self.first + p, 2 + after * WORDS + i, 0])
            for i, (r, p, v) in itertools.product(range(WORDS), every):
                weights = w[self.first + p, 2 + block * WORDS + i, f.lanes(v)]
                place = [r, p, f.lanes(v)]
                store(whole, place, f.isa.dot8(whole[*place], weights, x, row(r), block * WORDS, i))
        for r, p, v in every:
            own = f.all(T.reinterpret("float32", x[row(r), f.x_type[0][1] - 1]))
            scales = f.float32_bits(w[self.first + p, 1, f.lanes(v)]) * own
            store(sums, [r, p, f.lanes(v)], f.float32(whole[r, p, f.lanes(v)]) * scales)
        return sums


class _Blocks8:
    """Weights of 8 bits that have a scale for every 32 or 16."""

    def __init__(self, f: Format, x: Buffer, weights: Sequence[Buffer], group: Expr) -> None:
        self.f, self.x, self.weights = f, x, weights
        self.first = T.min(group * f.group, f.panels - f.group)

    def multiply(self, number: int, part: Expr, row: Row) -> Buffer:
        """The rows times the panels of the group, by the weight of that number."""
        f, w = self.f, self.weights[number]
        sums, (_, blocks, words) = _zeros(f), f.w_type[0]
        with T.serial(blocks) as block:
            if f.is_few and f.isa.asks_ahead:
                after = T.min(block + _AHEAD8, blocks - 1)
                for p, word in itertools.product(range(f.tile.panels), range(0, words, LANES)):
                    _ask_for(w[self.first + p, after, word])

            def weights(i: int, p: Expr, v: int) -> Expr:
                return w[self.first + p, block, f.lanes(i * LANES + v)]

            def scales(p: Expr, v: int, unit: int) -> Expr:
                first = WORDS * LANES + (unit * LANES + v) // 2
                return _floats(f, w[self.first + p, block, T.ramp(first, 1, f.isa.lanes // 2)])

            _add_block(f, sums, range(f.tile.panels), weights, scales, self.x, row, block)
        return sums


_Panels = _Packed4 | _Unpacked4 | _Panels8 | _Blocks8


def _panels(f: Format, x: Buffer, weights: Sequence[Buffer], group: Expr) -> _Panels:
    of4: type[_Panels] = _Packed4 if f.is_few else _Unpacked4
    kind = by_format(f.bits, f.block, int4=of4, int8=_Panels8, int8_blocks=_Blocks8)
    return kind(f, x, weights, group)


def _for_blocks(f: Format, write: Callable[[Expr, Expr], None]) -> None:
    """Write the panel and the half of every block of a step, in the order of memory."""
    if f.isa.unrolled4 and f.M == 1:
        for p, half in itertools.product(range(PANELS4), range(2)):
            write(p, half)
        return
    with T.serial(PANELS4 * 2) as block:
        write(block // 2, block % 2)


def _scales(f: Format, w: Buffer, group: Expr, step: Expr, panel: Expr, half: Expr, v: int) -> Expr:
    """The scales of a block of 4 bits, as float32."""
    lanes = f.isa.lanes
    return _floats(f, w[group, step, panel, T.ramp(2 * 64 + (half * LANES + v) // 2, 1, lanes // 2)])


def _floats(f: Format, words: Expr) -> Expr:
    """A vector of float16, two in a word, as float32."""
    return f.float32(T.reinterpret(f"float16x{f.isa.lanes}", words))


def _add_block(
    f: Format,
    sums: Buffer,
    panels: Sequence[Expr],
    weights: Callable[[int, Expr, int], Expr],
    scales: Callable[[Expr, int, int], Expr],
    x: Buffer,
    row: Row,
    block: Expr,
) -> None:
    """Sums of these panels += the rows of a tile times 32 weights in blocks.

    `weights` are those of a word, a panel and a vector of it, and `scales` those of a panel, a vector and a unit, which
    are the weights with one scale.
    """
    of4, of8 = (f.isa.sums4, 1), (f.isa.sums8, 16)
    how, times = by_format(f.bits, f.block, int4=of4, int8=of8, int8_blocks=of8)
    at, rows, words = block * (UNIT + f.sums), range(f.tile.rows), WORDS // f.sums
    vectors = [(number, p, v) for number, p in enumerate(panels) for v in f.vectors]

    def place(number: int, v: int) -> Expr:
        return T.ramp((number * LANES + v) * how.many, 1, f.isa.lanes * how.many)

    def start(unit: int, r: int) -> Expr:
        found = x[row(r), at + UNIT + unit]
        return f.all(found if times == 1 else found * times)

    for unit in range(f.sums):
        # A buffer for all rows might be too large for LLVM to keep it in registers.
        partial = [registers((len(panels) * LANES * how.many,), how.dtype) for _ in rows]
        for i, r, (number, p, v) in itertools.product(range(unit * words, (unit + 1) * words), rows, vectors):
            before = partial[r][place(number, v)] if i % words else how.begin(start(unit, r))
            store(partial[r], [place(number, v)], how.add(before, weights(i, p, v), x, row(r), at, i))
        for r, (number, p, v) in itertools.product(rows, vectors):
            found = f.float32(how.end(partial[r][place(number, v)], start(unit, r)))
            own = f.all(T.reinterpret("float32", x[row(r), at + WORDS]))
            total = [r, p, f.lanes(v)]
            store(sums, total, sums[*total] + found * (scales(p, v, unit) * own))


def _zeros(f: Format) -> Buffer:
    """The sums of a tile, of one product: a buffer for two would be too large for LLVM to keep it in registers."""
    sums = registers((f.tile.rows, f.tile.panels, LANES), "float32")
    for r, p, v in itertools.product(range(f.tile.rows), range(f.tile.panels), f.vectors):
        store(sums, [r, p, f.lanes(v)], f.all(T.float32(0)))
    return sums


def _fetch(f: Format, tensors: Sequence[Buffer], panel: Expr, row: Row) -> None:
    """Ask for a tile of these tensors: its lines lie so far apart that no prefetcher follows."""
    for tensor, r, p in itertools.product(tensors, range(f.tile.rows), range(f.tile.panels)):
        _ask_for(tensor[row(r), T.min((panel + p) * LANES, f.N - 1)])


def _ask_for(number: Expr) -> None:
    """Have the line of a number fetched into the first-level cache."""
    T.evaluate(
        T.call_llvm_intrin("void", "llvm.prefetch", T.address_of(number), T.int32(0), T.int32(3), T.int32(1))
    )


def _finish(
    f: Format, products: Sequence[Buffer], y: Buffer, panel: Expr, row: Row, finish: Callable[..., Expr]
) -> None:
    """Rows of a tile; columns of padding are left out."""

    def write(r: int, p: int, lane: Expr) -> None:
        column = (panel + p) * LANES + lane
        totals = [sums[r, p, lane] for sums in products]
        store(y, [row(r), column], finish(totals, row(r), column))

    for r, p in itertools.product(range(f.tile.rows), range(f.tile.panels)):
        if f.N % (LANES * f.group) == 0:
            with T.vectorized(LANES) as lane:
                write(r, p, lane)
            continue
        with T.If((panel + p + 1) * LANES <= f.N):
            with T.Then(), T.vectorized(LANES) as lane:
                write(r, p, lane)
            with T.Else(), T.unroll(LANES) as lane, T.If((panel + p) * LANES + lane < f.N), T.Then():
                write(r, p, lane)
