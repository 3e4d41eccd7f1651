"""Products with weights in panels, quantised ones (`partc.ir.panels`) and floats (`targets.tvm.layout`), in float32.

The panels are those of processors. Their 16 columns of the result side by side are 16 threads side by side: what
neighbours read lies side by side, each word once, and all of them multiply it with one number of x. A block takes up
to 64 columns and 16 rows of x; its threads along y share the depth, and add their sums up in the end.

Other than on processors x stays as it is: a GPU multiplies floats as fast as bytes without its tensor units, and one
row is bound by the memory that the weights come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tvm import relax
from tvm.script import tirx as T

from partc.ir.graph import Node
from partc.ir.panels import BLOCK, LANES, panels_shape, rows_of_group
from partc.ir.weight_formats import FORMATS, format_of
from targets.tvm.builder import Emitter, Expr, FunctionBuilder, tensor_type
from targets.tvm.gpu.kernels.threads import gpu_func, half_bits, local, shared, wait
from targets.tvm.kernels.script import Buffer, store
from targets.tvm.kernels.vector import ACTIVATIONS
from targets.tvm.layout import PANEL
from targets.tvm.operators import OPERATORS, input_shape, shape_of
from targets.tvm.operators.reading import dtype_of, integer, text

_SHARED = 32 * 1024 // 4
"""Numbers that a block can share on every GPU."""
_FEW, _MANY, _SHORT = 4, 16, 64
"""Rows of a tile of x in steps of up to `_SHORT` rows, and of more. Few rows make more blocks: 16 rows in one tile left
two thirds of an H200 without work. Tiles of one group come one after the other, so that caches have its weight."""
_FEW_GROUPS = 128
"""Groups below which blocks get as many threads as they may have, so that all of a GPU has work."""
Finish = Callable[[list[Expr], Expr, Expr], Expr]
"""Sums by weight, row, column → what is written there."""


_COLUMNS = {each.name: rows_of_group(bits) for bits, each in FORMATS.items()}
"""Quantisation → columns of the result that a block computes; of floats they are `_FLOAT_COLUMNS`."""
_FLOAT_COLUMNS = 4 * LANES


@dataclass(frozen=True)
class Shape:
    """x [M, K] times a weight with N columns; of a quantised one the depth is filled up with zeros behind K."""

    stored: str
    """`int4`, `int8`, or the type of floats."""
    M: int
    K: int
    N: int
    depth: int
    threads: int
    """The most that a block may have."""
    tile_rows: int = 0
    """Rows of x of a block at most; 0: `_FEW` or `_MANY`."""

    @property
    def rows(self) -> int:
        """Rows of x that a block takes: a weight is unpacked once for all of them."""
        return min(self.M, self.tile_rows or (_FEW if self.M <= _SHORT else _MANY))

    def splits(self, sums: int = 1) -> int:
        """Threads that share the depth, a power of two; each leaves `sums` numbers for every row and column."""
        steps = self.weight[0][1] if self.stored == "int4" else math.ceil(self.depth / 4)
        usual = self.threads if self.groups < _FEW_GROUPS else self.threads // 2
        room = _SHARED // (self.columns * self.rows * sums)
        return 1 << (max(1, min(steps, usual // self.columns, room)).bit_length() - 1)

    @property
    def columns(self) -> int:
        """Columns of the result that a block computes, a thread each."""
        return _COLUMNS.get(self.stored, _FLOAT_COLUMNS)

    @property
    def weight(self) -> tuple[tuple[int, ...], str]:
        """Shape and type of the weight."""
        if self.stored in _COLUMNS:
            return panels_shape(self.N, self.depth, int(self.stored[3:])), "int32"
        return (math.ceil(self.N / PANEL), self.K, PANEL), self.stored

    @property
    def groups(self) -> int:
        """Groups of columns, a block each."""
        return math.ceil(self.N / self.columns)

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks: tiles of rows of x, groups of columns."""
        return math.ceil(self.M / self.rows), self.groups


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
        return r if s.rows == s.M else T.min(self.tile * s.rows + r, s.M - 1)


def product(s: Shape, finish: Finish, added: tuple[int, int] | None = None, weights: int = 1) -> Any:
    """y[M, N] of x and one or two weights, and of what is added, [1, N] or [M, N], which `finish` gets as well."""

    def write(blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, *tensors: Buffer) -> None:
        place = Place(blocks[0], blocks[1], threads)
        extra, y = tensors[weights:-1], tensors[-1]

        def whole(sums: list[Expr], row: Expr, column: Expr) -> Expr:
            more = [tensor[0 if added and added[0] == 1 else row, column] for tensor in extra]
            return finish([*sums, *more], row, column)

        sums = [_sums(s, x, w, place, splits, local((s.rows,))) for w in tensors[:weights]]
        _write(s, y, place, _left(s, place, sums, splits), whole)

    splits = s.splits(weights)
    parameters: dict[str, tuple[Sequence[int], str]] = {"x": ((s.M, s.K), "float32")}
    parameters.update({f"w{place}": s.weight for place in range(weights)})
    if added is not None:
        parameters["added"] = (added, "float32")
    parameters["y"] = ((s.M, s.N), "float32")
    return gpu_func(parameters, s.grid, (s.columns, splits), write)


def plain_product(s: Shape) -> Any:
    """y[M, N] = x · wᵀ."""
    return product(s, lambda sums, row, column: sums[0])


def product_added(s: Shape, height: int) -> Any:
    """y[M, N] = x · wᵀ + added[height, N], height = 1 (a bias) or M (a residual)."""
    return product(s, lambda sums, row, column: sums[0] + sums[1], (height, s.N))


def product_gated(s: Shape, activation: str) -> Any:
    """y[M, N] = activation(x · gateᵀ) × (x · upᵀ)."""
    function = ACTIVATIONS[activation]
    return product(s, lambda sums, row, column: function(sums[0]) * sums[1], weights=2)


def products(*shapes: Shape) -> Any:
    """Products of one x with two or three weights, in one launch."""

    def write(blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, *tensors: Buffer) -> None:
        weights, results = tensors[: len(shapes)], tensors[len(shapes) :]
        place, total = Place(blocks[0], blocks[1], threads), local((first.rows,))
        _one_of(
            shapes,
            place,
            lambda number, own: _sums(shapes[number], x, weights[number], own, splits, total),
        )
        # Nobody waits within a branch.
        (room,) = _left(first, place, [total], splits)
        _one_of(
            shapes,
            place,
            lambda number, own: _write(
                shapes[number], results[number], own, [room], lambda sums, row, column: sums[0]
            ),
        )

    first, splits = shapes[0], min(s.splits() for s in shapes)
    parameters: dict[str, tuple[Sequence[int], str]] = {"x": ((first.M, first.K), "float32")}
    parameters.update({f"w{place}": s.weight for place, s in enumerate(shapes)})
    parameters.update({f"y{place}": ((s.M, s.N), "float32") for place, s in enumerate(shapes)})
    grid = first.grid[0], sum(s.groups for s in shapes)
    return gpu_func(parameters, grid, (first.columns, splits), write)


def _one_of(
    shapes: Sequence[Shape], place: Place, write: Callable[[int, Place], None], number: int = 0
) -> None:
    """Write for the product that a group belongs to, counted through all of them."""
    if number == len(shapes) - 1:
        write(number, place)
        return
    groups = shapes[number].groups
    with T.If(place.group < groups):
        with T.Then():
            write(number, place)
        with T.Else():
            _one_of(shapes, replace(place, group=place.group - groups), write, number + 1)


def experts_of_rows(s: Shape, experts: int, kind: str) -> Any:
    """y[M, N]: the product of each row of x with the w of its expert; a block takes one row."""
    one = replace(s, tile_rows=1)
    splits = one.splits()

    def write(
        blocks: Sequence[Expr], threads: Sequence[Expr], x: Buffer, chosen: Buffer, w: Buffer, y: Buffer
    ) -> None:
        place = Place(blocks[0], blocks[1], threads)
        expert = T.bind(T.max(T.min(T.Cast("int32", chosen[place.tile]), experts - 1), 0))
        total = _sums(one, x, _Matrix(w, expert), place, splits, local((1,)))
        rooms = _left(one, place, [total], splits)
        _write(one, y, place, rooms, lambda sums, row, column: sums[0])

    parameters = {
        "x": ((s.M, s.K), "float32"),
        "chosen": ((s.M,), kind),
        "w": ((experts, *s.weight[0]), s.weight[1]),
        "y": ((s.M, s.N), "float32"),
    }
    return gpu_func(parameters, one.grid, (s.columns, splits), write)


class _Matrix:
    """The matrix of one expert; reads as a buffer does."""

    def __init__(self, w: Buffer, expert: Expr) -> None:
        self._w, self._expert = w, expert

    def __getitem__(self, places: tuple[Expr, ...]) -> Expr:
        return self._w[(self._expert, *places)]


def _sums(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> Buffer:
    """total[rows]: the sums of this thread, of its row of w, over its part of the depth."""
    with T.serial(s.rows) as r:
        store(total, [r], T.float32(0))
    write = {"int4": _sums4, "int8": _sums8}.get(s.stored, _sums_of_floats)
    write(s, x, w, place, splits, total)
    return total


def _sums4(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> None:
    group, (lane, split) = place.group, place.threads
    panel, own = lane // LANES, lane % LANES
    steps, part = s.weight[0][1], local((s.rows,))
    with T.serial(math.ceil(steps / splits)) as turn:
        step = T.bind(turn * splits + split)
        with T.If(step < steps), T.Then(), T.serial(2) as half:
            pair = T.bind(w[group, step, panel, 128 + T.truncdiv(half * LANES + own, 2)])
            bits = T.bitwise_and(T.shift_right(pair, T.truncmod(own, 2) * 16), T.int32(0xFFFF))
            scale = T.bind(half_bits(bits))
            with T.serial(s.rows) as r:
                store(part, [r], T.float32(0))
            with T.serial(4) as i:
                word = T.bind(w[group, step, panel, half * 64 + i * LANES + own])
                first = step * (2 * BLOCK) + half * BLOCK + i * 8
                values = [
                    T.bitwise_and(T.shift_right(word, T.int32(8 * (j % 4) + 4 * (j // 4))), T.int32(15))
                    for j in range(8)
                ]
                _add(s, x, place, first, [value - 8 for value in values], part)
            with T.serial(s.rows) as r:
                store(total, [r], total[r] + part[r] * scale)


def _sums8(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> None:
    group, (lane, split) = place.group, place.threads
    words = math.ceil(s.depth / 4)
    with T.serial(math.ceil(words / splits)) as turn:
        at = T.bind(turn * splits + split)
        with T.If(at < words), T.Then():
            word = T.bind(w[group, 2 + at, lane])
            values = [T.shift_right(T.shift_left(word, T.int32(24 - 8 * j)), T.int32(24)) for j in range(4)]
            _add(s, x, place, at * 4, values, total)
    scale = T.bind(T.reinterpret("float32", w[group, 1, lane]))
    with T.serial(s.rows) as r:
        store(total, [r], total[r] * scale)


def _sums_of_floats(s: Shape, x: Buffer, w: Any, place: Place, splits: int, total: Buffer) -> None:
    lane, split = place.threads
    last = s.weight[0][0] - 1
    panel = T.bind(T.min(place.group * (s.columns // LANES) + T.truncdiv(lane, LANES), last))
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
        with T.serial(s.rows) as r:
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
    rooms = [shared((splits, s.rows, s.columns)) for _ in sums]
    for own, room in zip(sums, rooms, strict=True):
        with T.serial(s.rows) as r:
            store(room, [split, r, lane], own[r])
    wait()
    return rooms


def _write(s: Shape, y: Buffer, place: Place, rooms: Sequence[Buffer], finish: Finish) -> None:
    """Add up what the threads of a column left, and write it; threads along the depth share the rows."""
    lane, split = place.threads
    splits = int(rooms[0].shape[0])
    column = place.group * s.columns + lane
    with T.serial(math.ceil(s.rows / splits)) as turn:
        r = T.bind(turn * splits + split)
        row = T.bind(place.tile * s.rows + r)
        with T.If(T.And(T.And(r < s.rows, column < s.N), row < s.M)), T.Then():
            totals = [T.bind(_sum([room[i, r, lane] for i in range(splits)])) for room in rooms]
            store(y, [row, column], finish(totals, row, column))


def _sum(terms: Sequence[Expr]) -> Expr:
    """In pairs, which rounds less than one after the other."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return _sum(terms[:half]) + _sum(terms[half:])


def product_operators(threads: int) -> Mapping[str, Emitter]:
    """Operator → what writes it, for blocks of so many threads."""

    def shape(node: Node, place: int = 0) -> Shape:
        *leading, columns = input_shape(node)
        bits = integer(node, "bits", 0)
        stored = format_of(bits).name if bits else dtype_of(node, 1)
        depth = integer(node, "depth", columns)
        return Shape(stored, math.prod(leading), columns, shape_of(node, place)[-1], depth, threads)

    def flat(b: FunctionBuilder, node: Node, operand: Expr) -> Expr:
        s = shape(node)
        return b.emit(relax.op.reshape(operand, (s.M, s.K)))

    def one(
        make: Callable[..., Any], b: FunctionBuilder, node: Node, operands: list[Expr], *more: object
    ) -> Expr:
        s = shape(node)
        given = [flat(b, node, operands[0]), *operands[1:]]
        return relax.op.reshape(b.call(make, given, tensor_type((s.M, s.N), "f32"), s, *more), shape_of(node))

    def matmul(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        if not b.is_packed(node.inputs[1]):
            return OPERATORS["MatMul"](b, node, operands)
        return one(plain_product, b, node, operands)

    def plus(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        s = shape(node)
        height = 1 if len(input_shape(node, 2)) == 1 else s.M
        added = b.emit(relax.op.reshape(operands[2], (height, s.N)))
        return one(product_added, b, node, [*operands[:2], added], height)

    def gated(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        return one(product_gated, b, node, operands, text(node, "activation", ""))

    def several(b: FunctionBuilder, node: Node, operands: list[Expr]) -> list[Expr]:
        shapes = [shape(node, place) for place in range(len(node.outputs))]
        types = [tensor_type((s.M, s.N), "f32") for s in shapes]
        found = b.call(products, [flat(b, node, operands[0]), *operands[1:]], types, *shapes)
        parts = [b.emit(relax.TupleGetItem(found, place)) for place in range(len(shapes))]
        return [relax.op.reshape(part, shape_of(node, place)) for place, part in enumerate(parts)]

    def experts(b: FunctionBuilder, node: Node, operands: list[Expr]) -> Expr:
        return one(experts_of_rows, b, node, operands, input_shape(node, 2)[0], dtype_of(node, 1))

    joined = {"ProductPlus": plus, "GatedProduct": gated, "Products": several}
    return {
        "MatMul": matmul,
        "tvm.QuantizedProduct": partial(one, plain_product),
        "tvm.QuantizedExperts": experts,
        **{f"tvm.{kind}{name}": write for name, write in joined.items() for kind in ("", "Quantized")},
    }
