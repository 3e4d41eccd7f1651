"""States of sub-modules: their memory by slot, and the form in which their rows travel.

A slot holds one request. A state has the declared shape `[batch, …, positions, d]`; its first axis counts the sequences
of the request. Outside an engine, the state of one sequence has three axes, whatever its layout inside:

| kind | a step | one sequence outside an engine |
| --- | --- | --- |
| `rows` | writes the rows at `position`, keeps the others | `[positions, heads, d]` |
| `whole` | rewrites all of it | `[1, 1, elements]`: a single row |

The axis of positions is the last but one, as the operator `partc.UpdateState` defines it; `d` is the last, and `heads`
are all axes between the first and that of positions, as one.
"""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Mapping

import numpy as np

from partc.errors import RunError
from partc.format.build import State, Submodule, TensorType
from partc.format.dtypes import DTYPES, Array
from partc.runtime.engines.memory import ALIGNMENT

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
        size = sum(_room(state.type, self._largest) for state in submodule.states)
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
        place = rows_of(self.find(submodule, state), self.of(submodule, slot)[state], row, begin, end)
        return np.array(place, order="C")

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
            view = room.bytes[start : start + state.type.bytes(dims)].view(DTYPES[state.type.dtype])
            views[name] = view.reshape(state.type.sizes(dims))
            start += _room(state.type, self._largest)
        self._views[submodule, slot] = views


def rows_of(state: State, array: Array, row: int, begin: int, end: int) -> Array:
    """A view of positions begin to end (exclusive) of one sequence, `[end - begin, heads, d]`.

    Args:
        state: what the build declares.
        array: the state as an engine holds it, contiguous, in the declared layout.
        row: number of the sequence in the request.
        begin: the first position.
        end: the one behind the last.

    Raises:
        RunError: the request has no such sequence, or the state no such positions.
    """
    if not 0 <= row < array.shape[0]:
        raise RunError(f"there is no sequence {row} of {array.shape[0]}", where=state.name)
    one: Array = array[row]
    whole = state.kind == "whole" or one.ndim < 2
    heads = one.reshape(1, 1, -1) if whole else one.reshape(-1, *one.shape[-2:])
    if not 0 <= begin <= end <= heads.shape[1]:
        raise RunError(f"rows {begin} to {end} are none of its {heads.shape[1]}", where=state.name)
    return np.swapaxes(heads[:, begin:end], 0, 1)


def put_rows(state: State, array: Array, row: int, begin: int, rows: Array) -> None:
    """Copy rows to the positions from `begin` on; the other arguments, and errors, are those of `rows_of`.

    Raises:
        RunError: also where the rows do not fit in shape or element type.
    """
    place = rows_of(state, array, row, begin, begin + len(rows))
    if (rows.shape, rows.dtype) != (place.shape, place.dtype):
        message = f"expected rows {place.dtype}{list(place.shape)}, found {rows.dtype}{list(rows.shape)}"
        raise RunError(message, where=state.name)
    place[...] = rows


def _room(kind: TensorType, dims: Mapping[str, int]) -> int:
    return -(-kind.bytes(dims) // ALIGNMENT) * ALIGNMENT
