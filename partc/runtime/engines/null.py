"""The engine that computes nothing of use and needs nothing, for tests of everything around it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from partc.format.build import Submodule
from partc.format.dtypes import DTYPES, Array
from partc.format.role import Role
from partc.format.state_kinds import by_kind
from partc.runtime.engines.contract import loaded, submodule_named
from partc.runtime.engines.shared_steps import run_apart
from partc.runtime.engines.states import States


class NullEngine:
    """Outputs that depend on every bit of the inputs and of the rows that a step may see, and mean nothing."""

    def __init__(self, role: Role, folder: Path) -> None:
        """Nothing is read."""
        self._role = role
        self._loaded: dict[str, Submodule] = {}
        self._states = States(role.dims, role.model.max_requests)

    def load(self, submodule: str) -> None:
        """See `Engine`."""
        if submodule not in self._loaded:
            module = submodule_named(submodule, self._role)
            self._states.add(module)
            self._loaded[submodule] = module

    def release(self, submodule: str) -> None:
        """See `Engine`."""
        if self._loaded.pop(submodule, None) is not None:
            self._states.remove(submodule)

    def settle(self) -> bool:
        """See `Engine`; nothing lies elsewhere."""
        return False

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`."""
        self._states.reset(slot, dims)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        module = loaded(submodule, self._loaded)
        held = self._states.of(submodule, slot)
        mark = zlib.crc32(submodule.encode())
        positions = dict(zip(module.inputs, inputs, strict=True)).get("position", ())
        states = [
            (held[state.name], by_kind(state.kind, rows=positions, whole=())) for state in module.states
        ]
        for array in (*inputs, *(seen for state, rows in states for seen in _seen(state, rows))):
            mark = zlib.crc32(np.ascontiguousarray(array).tobytes(), mark)
        for state, rows in states:
            _write(state, rows, dims.get("sequence", 1), mark)
        return [self._filled(name, mark + index, dims) for index, name in enumerate(module.outputs)]

    def run_shared(
        self, submodule: str, slots: Sequence[int], inputs: Sequence[Array], dims: Mapping[str, int]
    ) -> list[Array]:
        """See `Engine`; one slot after the other."""
        module = loaded(submodule, self._loaded)
        return run_apart(module, self._role.types, slots, inputs, dims, partial(self.run, submodule))

    def read_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        """See `Engine`."""
        return self._states.read(submodule, slot, state, row, begin, end)

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """See `Engine`."""
        self._states.write(submodule, slot, state, row, begin, rows)

    def _filled(self, name: str, mark: int, dims: Mapping[str, int]) -> Array:
        declared = self._role.types[name]
        shape = declared.sizes(dims)
        numbers = (np.arange(math.prod(shape), dtype=np.int64) * 2654435761 + mark) % 97
        return numbers.astype(DTYPES[declared.dtype]).reshape(shape)


def _seen(state: Array, positions: Sequence[int] | Array) -> Iterator[Array]:
    """The rows before `position`, as masks have it; without positions, everything."""
    if not len(positions):
        yield state
    for sequence, position in zip(state, positions, strict=False):
        yield sequence[..., : int(position), :]


def _write(state: Array, positions: Sequence[int] | Array, rows: int, mark: int) -> None:
    """Mark the rows of a step, which every later one reads; without positions, the first number of each sequence."""
    for sequence, start in zip(state, positions, strict=False):
        sequence[..., int(start) : int(start) + rows, :] = mark % 97
    if not len(positions):
        state.reshape(len(state), -1)[:, :1] = mark % 97
