"""Pieces of values: tiles of rows and slices of columns, which devices that share blocks send each other.

A whole model has no such values, but those that they are pieces of. A piece is compared with the same rows and columns
of the whole value: in all steps of a request, whose rows follow each other. What is still to be added to other shares
is no value of a whole model; the sum that it becomes is compared, on every way that it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt

from partc.format.build import TensorType
from partc.format.dims import symbols
from partc.format.placement import Placement
from partc.format.program import Add, Join, Program, Recv
from partc.planner.programs.exchanges import columns_name, tile_name
from partc.planner.programs.work import ROWS
from partc.runtime.client.results import Crossing

Array = npt.NDArray[Any]
Place = tuple[str, str, str]
"""(value, sender, receiver)."""


@dataclass(frozen=True)
class Piece:
    """A piece of a value, or all of it."""

    whole: str
    """Name of the value."""
    index: int = 0
    count: int = 1
    by_rows: bool = False
    """Whether it has some of the rows; else some of the columns."""

    @property
    def text(self) -> str:
        """`rows 2 of 3 of h`."""
        kind = "rows" if self.by_rows else "columns"
        return self.whole if self.count == 1 else f"{kind} {self.index + 1} of {self.count} of {self.whole}"


@dataclass(frozen=True)
class Crossed:
    """A piece as it crossed a link, in all steps."""

    piece: Piece
    array: Array
    """The rows of the steps, one behind the other."""
    shape: tuple[int, ...]
    """Of the whole value over all steps."""
    rows: tuple[int, npt.NDArray[np.intp]]
    """The axis of the rows, and which of them the piece has."""

    def take(self, whole: Array) -> Array:
        """The same rows and columns of a whole value of `shape`."""
        axis, rows = self.rows
        found = np.take(whole, rows, axis)
        if self.piece.by_rows or self.piece.count == 1:
            return found
        return found[..., slice(*_bounds(whole.shape[-1], self.piece))]


def shares_blocks(placement: Placement) -> bool:
    """Whether devices add values or join them: they share blocks then."""
    return any(isinstance(item, Add | Join) for item in _instructions(placement))


def pieces_of(placement: Placement, types: Mapping[str, TensorType]) -> dict[str, Piece]:
    """The values that programs name, but tokens and what is still to be added to, each as a piece of a whole one.

    `types`: of all values of all devices. O(values · devices).
    """
    items = list(_instructions(placement))
    unfinished = {name for item in items if isinstance(item, Add) for name in item.reads}
    named = {name for item in items for name in (*item.reads, *item.writes)}
    found = {name: Piece(name) for name in named}
    for whole in types:
        for count in range(2, len(placement.ring) + 1):
            for index in range(count):
                found[tile_name(whole, index, count)] = Piece(whole, index, count, by_rows=True)
                found[columns_name(whole, index, count)] = Piece(whole, index, count)
    kept = named - unfinished
    return {name: piece for name, piece in found.items() if name in kept and piece.whole not in unfinished}


def order_of(placement: Placement) -> dict[Place, float]:
    """(value, sender, receiver) → how far the receiver is in its step, from 0 to 1: devices of a group go abreast."""
    found: dict[Place, float] = {}
    for programs in placement.parsed.values():
        for device, program in programs.items():
            for at, item in enumerate(program):
                for name, peer in (
                    ((name, item.device) for name in item.values) if isinstance(item, Recv) else ()
                ):
                    found.setdefault((name, peer, device), at / len(program))
    return found


def crossed_pieces(
    trace: Sequence[Crossing],
    steps: Sequence[int],
    pieces: Mapping[str, Piece],
    types: Mapping[str, TensorType],
) -> dict[Place, Crossed]:
    """All pieces that crossed links, each with all its steps.

    Args:
        trace: of a request for one sequence.
        steps: rows of each step.
        pieces: `pieces_of` the build.
        types: of all values of all devices.
    """
    arrays: dict[Place, dict[int, Array]] = {}
    for crossing in trace:
        for name, array in crossing.values.items():
            if name in pieces and crossing.peer != crossing.device:
                arrays.setdefault((name, crossing.peer, crossing.device), {})[crossing.step] = array
    found = {}
    for place, by_step in arrays.items():
        piece = pieces[place[0]]
        axis = _row_axis(types.get(piece.whole))
        if axis is not None:
            found[place] = _crossed(piece, axis, by_step, steps, types[piece.whole])
    return found


def _crossed(
    piece: Piece, axis: int, by_step: Mapping[int, Array], steps: Sequence[int], kind: TensorType
) -> Crossed:
    starts = (0, *accumulate(steps))
    rows = []
    for step in sorted(by_step):
        first, last = _bounds(steps[step], piece) if piece.by_rows else (0, steps[step])
        rows.append(np.arange(starts[step] + first, starts[step] + last))
    array = np.concatenate([by_step[step] for step in sorted(by_step)], axis)
    shape = list(array.shape)
    shape[axis] = starts[-1]
    if not piece.by_rows and piece.count > 1:
        shape[-1] = int(kind.shape[-1])
    return Crossed(piece, array, tuple(shape), (axis, np.concatenate(rows)))


def _bounds(size: int, piece: Piece) -> tuple[int, int]:
    return size * piece.index // piece.count, size * (piece.index + 1) // piece.count


def _row_axis(kind: TensorType | None) -> int | None:
    """The axis of the rows, alone or with the batch; None where a value has none."""
    axes = enumerate(kind.shape if kind else ())
    return next((axis for axis, size in axes if isinstance(size, str) and ROWS in symbols(size)), None)


def _instructions(placement: Placement) -> Iterator[Any]:
    programs: Iterator[Program] = chain.from_iterable(by.values() for by in placement.parsed.values())
    return chain.from_iterable(programs)
