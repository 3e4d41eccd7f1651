"""The values of weights, a few rows at a time: however large a tensor is, only a piece of it is in memory.

Most transforms work row by row, so that a piece of the result comes from a piece of the mapped checkpoint. Weights
that come from the same tensors (the data and the scales of a quantised matrix) take turns, so that each piece is read
and converted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from partc.bundle.tensors import Reader
from partc.errors import InternalError, ModelError
from partc.ir.graph import ModelInfo, Weight
from partc.ir.panels import scales_of
from partc.ir.types import BY_SHORT
from partc.ir.weights import (
    ELEMENTWISE,
    JOINS,
    MIXES_OF_ROWS,
    ROW_WISE,
    STEPS,
    VIEWS,
    Argument,
    Array,
    Join,
    Leaf,
    Step,
    WeightExpr,
    has_step,
    is_row_wise,
    leaves,
    rows_of,
)

_PIECE_BYTES = 1 << 22
"""Bytes of a piece, of the checkpoint or of the result, whichever is more."""


def stream_weights(weights: Sequence[Weight], read: Reader, info: ModelInfo) -> Iterator[tuple[str, Array]]:
    """The rows of all weights as (name, next rows of it); weights that read the same tensors take turns.

    Peak memory is a few pieces where all transforms work row by row; one result where that is then transposed, as int8
    matrices are for some products; else one tensor and its result.

    Raises:
        ModelError: the checkpoint lacks a tensor, or it becomes another type or shape than the graph expects; one that
            is to be quantised holds what is no finite number.
    """
    exprs = {weight: views_first(_source(weight)) for weight in weights}
    for group in _groups(exprs):
        rows = _Rows(read)
        count = _row_count(group[0])
        step = max(
            1, _PIECE_BYTES // max(1, *(_row_bytes(weight, exprs[weight], rows, count) for weight in group))
        )
        for start in range(0, max(count, 1), step):
            for weight in group:
                yield weight.name, _piece(weight, exprs[weight], rows, start, min(start + step, count), info)
            rows.forget_pieces()


def _groups(exprs: Mapping[Weight, WeightExpr]) -> Iterator[list[Weight]]:
    """Weights that read the same and have equally many rows; groups of the same tensors follow each other."""
    found: dict[tuple[Leaf, ...], dict[object, list[Weight]]] = {}
    for weight, expr in exprs.items():
        same = found.setdefault(tuple(leaves(expr)), {})
        same.setdefault((_row_count(weight), *_reads(expr)), []).append(weight)
    for groups in found.values():
        yield from groups.values()


def _reads(expr: WeightExpr) -> Iterator[WeightExpr]:
    """The parts of the checkpoint that `expr` reads: tensors, and rows of them, such as one expert of many."""
    match expr:
        case Leaf() | Step(op="slice", arguments=(0, *_), source=Leaf()):
            yield expr
        case Join(parts=parts):
            for part in parts:
                yield from _reads(part)
        case Step(source=source):
            yield from _reads(source)


def _source(weight: Weight) -> WeightExpr:
    if weight.source is None or weight.dtype is None or weight.shape is None:
        raise InternalError(f"weight %{weight.name} has no source or no size")
    return weight.source


def _row_count(weight: Weight) -> int:
    """Its first size; a scalar is one row."""
    return int(weight.shape[0]) if weight.shape else 1


def _row_bytes(weight: Weight, expr: WeightExpr, rows: _Rows, count: int) -> int:
    stored = sum(_stored_bytes(part, rows) for part in dict.fromkeys(_reads(expr)))
    return max(stored, weight.bytes({})) // max(count, 1)


def _stored_bytes(part: WeightExpr, rows: _Rows) -> int:
    """The rows that `_reads` found; whether the tensor has rows at all is checked when they are read."""
    match part:
        case Step(arguments=(_, int(start), int(stop)), source=leaf):
            return np.atleast_1d(rows.whole(leaf))[start:stop].nbytes
        case _:
            return rows.whole(part).nbytes


def _piece(weight: Weight, expr: WeightExpr, rows: _Rows, start: int, stop: int, info: ModelInfo) -> Array:
    """Rows of a weight, checked against the type and shape that the graph expects."""
    source = list(dict.fromkeys(leaves(expr)))
    where = ", ".join(f"{Path(info.folder) / leaf.file}: {leaf.key}" for leaf in source)
    expected = _type(weight.dtype, weight.shape)
    hint = f"does {'the graph' if info.task == 'graph' else 'config.json'} belong to these files?"
    try:
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is looked for below
            piece = rows.piece(expr, start, stop) if weight.shape else rows.whole(expr)
        shape = (rows.count(expr), *piece.shape[1:]) if weight.shape else piece.shape
    except (ValueError, IndexError) as error:
        found = [list(rows.whole(leaf).shape) for leaf in source]
        message = f"expected a tensor that becomes {expected}, found {found}"
        raise ModelError(message, where=where, hint=hint) from error
    dtype = next((short for short, row in BY_SHORT.items() if row.numpy == piece.dtype), str(piece.dtype))
    if (dtype, shape) != (weight.dtype, weight.shape):
        raise ModelError(f"expected {expected}, found {_type(dtype, shape)}", where=where, hint=hint)
    if not _has_finite_scales(expr, piece):
        message = (
            "cannot be quantised: it holds a NaN, an infinity, or a number that float16 scales do not reach"
        )
        raise ModelError(message, where=where, hint="mend the checkpoint, or write `quantize: none`")
    return piece


def _has_finite_scales(expr: WeightExpr, piece: Array) -> bool:
    """Whether the scales in a piece, if it has any, are numbers."""
    if has_step(expr, "panels"):
        found = scales_of(piece)
    elif has_step(expr, "scales", "factors"):
        found = piece.astype(np.float32)
    else:
        return True
    return bool(np.isfinite(found).all())


def _type(dtype: str | None, shape: Sequence[object] | None) -> str:
    return f"{dtype}{list(shape or ())}"


def views_first(expr: WeightExpr) -> WeightExpr:
    """The same values, with what only rearranges elements before what changes each by itself.

    A transposed cast needs the whole cast; the cast of a mapped tensor that is seen transposed works row by row. Rows
    are chosen before anything that works row by row: of a tensor of experts only one is decoded.
    """
    match expr:
        case Leaf():
            return expr
        case Join(op=op, argument=argument, parts=parts):
            return Join(op, argument, tuple(views_first(part) for part in parts))
        case Step(op=op, arguments=arguments, source=source):
            inner = views_first(source)
            if op in VIEWS and isinstance(inner, Step) and inner.op in ELEMENTWISE:
                return Step(inner.op, inner.arguments, views_first(Step(op, arguments, inner.source)))
            if op == "slice" and arguments[0] == 0:
                return _sliced(inner, arguments)
            return Step(op, arguments, inner)
    raise InternalError(f"unknown weight transform in {expr}")


def _sliced(expr: WeightExpr, arguments: tuple[Argument, ...]) -> WeightExpr:
    """`expr |> slice(0, …)`, the rows chosen as early as can be."""
    match expr:
        case Step(op=op, arguments=own, source=source) if op in ROW_WISE and rows_of(expr) == 1:
            return Step(op, own, _sliced(source, arguments))
        case Join(op=op, argument=number, parts=parts) if op in MIXES_OF_ROWS and rows_of(expr) == 1:
            whole = MIXES_OF_ROWS[op].whole
            chosen = (part if at in whole else _sliced(part, arguments) for at, part in enumerate(parts))
            return Join(op, number, tuple(chosen))
        case Join(op="concat", argument=axis, parts=parts) if axis > 0:
            return Join("concat", axis, tuple(_sliced(part, arguments) for part in parts))
        case _:
            return Step("slice", arguments, expr)


class _Rows:
    """Evaluates expressions over the same tensors, a few rows at a time."""

    def __init__(self, read: Reader) -> None:
        self._read = read
        self._whole: dict[WeightExpr, Array] = {}
        self._pieces: dict[tuple[WeightExpr, int, int], Array] = {}

    def forget_pieces(self) -> None:
        """Forget the values that were computed for the last rows."""
        self._pieces.clear()

    def whole(self, expr: WeightExpr) -> Array:
        """All values of `expr`; a mere view where it only rearranges a tensor of the checkpoint."""
        if expr not in self._whole:
            self._whole[expr] = self._evaluate(expr)
        return self._whole[expr]

    def _evaluate(self, expr: WeightExpr) -> Array:
        match expr:
            case Leaf():
                return self._read(expr)
            case Join(op=op, argument=axis, parts=parts) if op in JOINS:
                return JOINS[op](int(axis), [self.whole(part) for part in parts])
            case Step() | Join() if is_row_wise(expr) and not self._is_scalar(expr):
                return self._in_pieces(expr)
            case Step(op=op, arguments=arguments, source=source) if op in STEPS:
                return STEPS[op](self.whole(source), *arguments)
        raise InternalError(f"unknown weight transform in {expr}")

    def _is_scalar(self, expr: WeightExpr) -> bool:
        while isinstance(expr, Step) and expr.op in ROW_WISE:
            expr = expr.source
        return not isinstance(expr, Join) and self.whole(expr).ndim == 0

    def _in_pieces(self, expr: WeightExpr) -> Array:
        """All values of what works row by row; what it is made from is never there as a whole."""
        count, stored = self.count(expr), sum(self.whole(leaf).nbytes for leaf in set(leaves(expr)))
        step = max(1, count * _PIECE_BYTES // max(stored, 1))
        whole = self._compute(expr, 0, min(step, count))
        if count > step:
            first, whole = whole, np.empty((count, *whole.shape[1:]), whole.dtype)
            whole[:step] = first
        for start in range(step, count, step):
            self.forget_pieces()
            whole[start : start + step] = self._compute(expr, start, min(start + step, count))
        self.forget_pieces()
        return whole

    def count(self, expr: WeightExpr) -> int:
        """The number of rows."""
        match expr:
            case Step(source=first) | Join(parts=(first, *_)) if is_row_wise(expr):
                return -(-self.count(first) // rows_of(expr))
            case Join(op="concat", argument=0, parts=parts):
                return sum(self.count(part) for part in parts)
            case Join(op="stack", argument=0, parts=parts):
                return len(parts)
            case _:
                return len(self.whole(expr))

    def piece(self, expr: WeightExpr, start: int, stop: int) -> Array:
        """The rows from `start` to before `stop`."""
        key = (expr, start, stop)
        if key not in self._pieces:
            self._pieces[key] = self._compute(expr, start, stop)
        return self._pieces[key]

    def _compute(self, expr: WeightExpr, start: int, stop: int) -> Array:
        match expr:
            case Step(op=op, arguments=arguments, source=source) if op in ROW_WISE:
                return STEPS[op](self.piece(source, *self._rows_for(expr, source, start, stop)), *arguments)
            case Join(op=op, argument=number, parts=parts) if op in MIXES_OF_ROWS:
                mix, rows = MIXES_OF_ROWS[op], self._rows_for(expr, parts[0], start, stop)
                given = (
                    self.whole(part) if at in mix.whole else self.piece(part, *rows)
                    for at, part in enumerate(parts)
                )
                return mix.make(number, *given)
            case Join(op="concat", argument=0, parts=parts):
                pieces = list(self._overlaps(parts, start, stop)) or [self.piece(parts[0], 0, 0)]
                return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            case Join(op="stack", argument=0, parts=parts) if start < stop:
                return np.stack([self._all_rows(part) for part in parts[start:stop]])
            case _:
                return self.whole(expr)[start:stop]

    def _rows_for(self, expr: Step | Join, source: WeightExpr, start: int, stop: int) -> tuple[int, int]:
        """The rows of a source that rows of `expr` come from."""
        many = rows_of(expr)
        return start * many, min(stop * many, self.count(source))

    def _all_rows(self, expr: WeightExpr) -> Array:
        """A part of a stack, which is forgotten with the rows that it is for; a scalar has no rows."""
        return self.whole(expr) if self._is_scalar(expr) else self.piece(expr, 0, self.count(expr))

    def _overlaps(self, parts: Sequence[WeightExpr], start: int, stop: int) -> Iterator[Array]:
        """The pieces of each part in the rows from `start` to before `stop`."""
        first = 0
        for part in parts:
            last = first + self.count(part)
            if max(start, first) < min(stop, last):
                yield self.piece(part, max(start, first) - first, min(stop, last) - first)
            first = last
