"""Copies of other devices' rows, kept in memory as long as nobody needs them (`mirrors` in placement.json).

The owner of a sub-module sends the rows of every step that is over to the device that would run it after its loss. A
copy counts from step to step without a gap; one that misses a part stays where it is, which costs no more than some
steps that are computed again. Its memory is touched row by row, and given back with the request.

DéjàVu and KevlarFlow replicate rows in the same way, to devices that hold the weights already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from partc.format.dtypes import Array
from partc.format.messages import Rows
from partc.format.role import Role


@dataclass(slots=True)
class Copy:
    """The rows of one request in one sub-module."""

    have: int = 0
    """Steps whose rows are all here."""
    sequences: int = 0
    _part: int = 0
    _rows: dict[tuple[str, int], Array] = field(default_factory=dict)
    """(state, sequence) → [max_sequence, heads, d]"""
    _ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def take(self, rows: Rows, array: Array, most: int) -> None:
        """Take a part; one that does not follow is ignored."""
        if (rows.begin, rows.part) != (self.have, self._part):
            return
        key = rows.state, rows.row
        if key not in self._rows:
            self._rows[key] = np.zeros((most, *array.shape[1:]), array.dtype)
        end = rows.position + len(array)
        self._rows[key][rows.position : end] = array
        self._ends[key], self.sequences, self._part = end, rows.sequences, rows.part + 1
        if self._part == rows.parts:
            self.have, self._part = rows.end, 0

    def all_rows(self) -> Iterator[tuple[str, int, Array]]:
        """(state, sequence, rows from the first one on) of everything; rows of steps that are not whole do no harm."""
        for (state, row), array in self._rows.items():
            yield state, row, array[: self._ends[state, row]]


@dataclass(slots=True)
class Copies:
    """All copies that this device keeps."""

    role: Role
    _copies: dict[tuple[int, str], Copy] = field(default_factory=dict)

    def take(self, owner: str, rows: Rows, array: Array) -> None:
        """Take a part of a sub-module that this device keeps a copy of and `owner` runs, in the placement in force."""
        placement = self.role.placement
        if rows.submodule not in placement.running.get(owner, ()):
            return
        is_kept = placement.mirrors.get(rows.submodule) == self.role.device
        if rows.epoch == placement.epoch and is_kept and not self.role.rewrites(rows.submodule):
            copy = self._copies.setdefault((rows.request, rows.submodule), Copy())
            copy.take(rows, array, self.role.model.max_sequence)
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Keep no more requests than there are slots: the end of one may have got lost."""
        numbers = sorted({request for request, _ in self._copies})
        for number in numbers[: -self.role.model.max_requests]:
            self.close(number)

    def of(self, request: int, submodule: str) -> Copy | None:
        """The copy of a request's rows."""
        return self._copies.get((request, submodule))

    def close(self, request: int) -> None:
        """A request is over."""
        for key in [key for key in self._copies if key[0] == request]:
            del self._copies[key]

    def adopt(self, role: Role) -> None:
        """Another placement is in force: owners send everything again, to whom it says."""
        self.role = role
        self._copies.clear()
