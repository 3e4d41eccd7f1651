"""States of sub-modules: their memory by slot, and the form in which their rows travel.

A slot holds one request. A state has the declared shape `[batch, …, positions, d]`; its first axis counts the sequences
of the request. Outside an engine, the state of one sequence has three axes, whatever its layout inside:

| kind | a step | one sequence outside an engine |
| --- | --- | --- |
| `rows` | writes the rows at `position`, keeps the others | `[positions, heads, d]` |
| `whole` | rewrites all of it | `[1, 1, elements]`: a single row |

The axis of positions is the last but one, as the operator `partc.UpdateState` defines it; `d` is the last, and `heads`
are all axes between the first and that of positions, as one. Inside an engine a state has the layout that the build
says (`partc.format.layouts`): `rows_of` and `put_rows` turn one form into the other.
"""

from __future__ import annotations

import math
import mmap
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from partc.errors import RunError
from partc.format.build import State, Submodule, TensorType
from partc.format.dtypes import DTYPES, Array
from partc.format.layouts import ALIGNMENT, PANEL
from partc.format.state_kinds import is_rewritten

_IS_LINUX = sys.platform == "linux"


class LazyZeros:
    """Zeros in pages of their own, which take memory when they are first written to, and give it back when cleared."""

    def __init__(self, size: int) -> None:
        """`size` is in bytes."""
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if _IS_LINUX else {}
        self._pages = mmap.mmap(-1, max(1, size), **private)
        self._is_clear = True
        self.bytes = np.frombuffer(self._pages, np.uint8, size)
        """(size,) the memory; its address is a multiple of a page."""

    def clear(self) -> None:
        """Zero everything that may have been written since the last time."""
        if not self._is_clear and _IS_LINUX:
            self._pages.madvise(mmap.MADV_DONTNEED)  # Linux gives zeros where such pages are used again
        elif not self._is_clear:
            self.bytes.fill(0)
        self._is_clear = False


class States:
    """The states of loaded sub-modules in all slots, each with room for its largest size.

    Memory is used where a request has written: neither slots that nobody uses nor rows that no token has reached take
    any. A request with fewer sequences uses the beginning of each buffer. Sub-modules come and go in one thread while
    another one begins requests.
    """

    def __init__(self, largest: Mapping[str, int], slots: int) -> None:
        """`largest` binds every symbol to its largest value; `slots` is the number of requests in flight."""
        self._largest = largest
        self._dims: list[Mapping[str, int]] = [largest] * slots
        self._declared: dict[str, dict[str, State]] = {}
        self._rooms: dict[tuple[str, int], LazyZeros] = {}
        self._views: dict[tuple[str, int], dict[str, Array]] = {}
        self._changing = threading.Lock()
        """Held where the set of sub-modules and the sizes of requests must fit each other."""

    def add(self, submodule: Submodule) -> None:
        """Make room for a sub-module; in slots that are in use, its states are zero and fit the request."""
        declared = {state.name: state for state in submodule.states}
        size = sum(_room(state.buffer, self._largest) for state in submodule.states)
        with self._changing:
            for slot, dims in enumerate(self._dims):
                self._rooms[submodule.name, slot] = LazyZeros(size)
                self._clear(submodule.name, slot, declared, dims)
            self._declared[submodule.name] = declared

    def remove(self, submodule: str) -> None:
        """Give the memory of a sub-module back."""
        with self._changing:
            del self._declared[submodule]
            for slot in range(len(self._dims)):
                del self._views[submodule, slot], self._rooms[submodule, slot]

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """Zero the states of a slot and give them the sizes of a request."""
        with self._changing:
            self._dims[slot] = dict(dims)
            for submodule, declared in self._declared.items():
                self._clear(submodule, slot, declared, dims)

    def of(self, submodule: str, slot: int) -> Mapping[str, Array]:
        """The states of a sub-module in a slot by name, in the order in which it declares them.

        It is another mapping after every `reset`.
        """
        return self._views[submodule, slot]

    def find(self, submodule: str, state: str) -> State:
        """The declaration of a state; raises RunError where no loaded sub-module has it."""
        try:
            return self._declared[submodule][state]
        except KeyError:
            raise RunError(f"no state {state!r} is loaded", where=submodule, cause="bug") from None

    def read(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        """See `Engine.read_rows`."""
        return rows_of(self.find(submodule, state), self.of(submodule, slot)[state], row, begin, end)

    def write(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """See `Engine.write_rows`."""
        put_rows(self.find(submodule, state), self.of(submodule, slot)[state], row, begin, rows)

    def _clear(
        self, submodule: str, slot: int, declared: Mapping[str, State], dims: Mapping[str, int]
    ) -> None:
        room = self._rooms[submodule, slot]
        room.clear()
        start, views = 0, {}
        for name, state in declared.items():
            view = room.bytes[start : start + state.buffer.bytes(dims)].view(DTYPES[state.dtype])
            views[name] = view.reshape(state.buffer.sizes(dims))
            start += _room(state.buffer, self._largest)
        self._views[submodule, slot] = views


def rows_of(state: State, array: Array, row: int, begin: int, end: int) -> Array:
    """A contiguous copy of positions begin to end (exclusive) of one sequence, `[end - begin, heads, d]`.

    Args:
        state: what the build declares.
        array: the state as an engine holds it, contiguous, in the declared layout.
        row: number of the sequence in the request.
        begin: the first position.
        end: the one behind the last.

    Raises:
        RunError: the request has no such sequence, or the state no such positions.
    """
    return np.array(_sequence(state, array, row)[_places(state, array, begin, end)], order="C")


def put_rows(state: State, array: Array, row: int, begin: int, rows: Array) -> None:
    """Copy rows to the positions from `begin` on; the other arguments, and errors, are those of `rows_of`.

    Raises:
        RunError: also where the rows do not fit in shape or element type.
    """
    held = _sequence(state, array, row)
    place = _places(state, array, begin, begin + len(rows))
    check_rows(state, rows, held.shape[-2:])
    held[place] = rows


def check_rows(state: State, rows: Array, sizes: Sequence[int]) -> None:
    """Refuse rows that are not `[rows, heads, d]` of a state with these sizes, or of another element type."""
    expected, dtype = (len(rows), *sizes), DTYPES[state.dtype]
    if (rows.shape, rows.dtype) != (expected, dtype):
        message = f"expected rows {dtype}{list(expected)}, found {rows.dtype}{list(rows.shape)}"
        raise RunError(message, where=state.name)


@dataclass(frozen=True)
class Runs:
    """Where some positions of a sequence lie in a state of the plain layout: side by side for each head."""

    firsts: list[int]
    """Head → its first number, counted from the beginning of the state."""
    sizes: tuple[int, int, int]
    """Heads, positions, d."""


def runs_of(state: State, sizes: Sequence[int], row: int, begin: int, end: int) -> Runs:
    """Where positions begin to end (exclusive) of a sequence lie; `sizes`: of the state, as an engine holds it.

    Raises:
        RunError: the request has no such sequence, or the state no such positions.
    """
    _check_sequence(state, sizes, row)
    one = (1, math.prod(sizes[1:])) if is_rewritten(state.kind) or len(sizes) < 3 else sizes[1:]
    heads, positions, d = math.prod(one[:-2]), one[-2], one[-1]
    _check_positions(state, positions, begin, end)
    firsts = [((row * heads + head) * positions + begin) * d for head in range(heads)]
    return Runs(firsts, (heads, end - begin, d))


def _sequence(state: State, array: Array, row: int) -> Array:
    """A view of one sequence, `[positions, heads, d]`; in panels `[panels, PANEL, heads, d]`."""
    _check_sequence(state, array.shape, row)
    one: Array = array[row, ...]  # a view even where a sequence has a single number
    if state.layout == "panels":
        return one.transpose(1, 3, 0, 2)
    whole = is_rewritten(state.kind) or one.ndim < 2
    return np.swapaxes(one.reshape(1, 1, -1) if whole else one.reshape(-1, *one.shape[-2:]), 0, 1)


def _places(state: State, array: Array, begin: int, end: int) -> Any:
    """The index of positions begin to end (exclusive) in what `_sequence` gives."""
    _check_positions(state, _positions(state, array), begin, end)
    if state.layout == "panels":
        return np.divmod(np.arange(begin, end), PANEL)
    return slice(begin, end)


def _check_sequence(state: State, sizes: Sequence[int], row: int) -> None:
    if not 0 <= row < sizes[0]:
        raise RunError(f"there is no sequence {row} of {sizes[0]}", where=state.name)


def _check_positions(state: State, most: int, begin: int, end: int) -> None:
    if not 0 <= begin <= end <= most:
        raise RunError(f"rows {begin} to {end} are none of its {most}", where=state.name)


def _positions(state: State, array: Array) -> int:
    """The positions of a sequence; behind them, the last panel has room that is not its own."""
    if state.layout == "panels":
        return int(state.shape[-2])
    return 1 if is_rewritten(state.kind) or array.ndim < 3 else array.shape[-2]


def _room(kind: TensorType, dims: Mapping[str, int]) -> int:
    return -(-kind.bytes(dims) // ALIGNMENT) * ALIGNMENT
