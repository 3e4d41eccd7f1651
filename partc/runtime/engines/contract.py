"""What computes a sub-module: the interface, and the table of those there are.

An engine loads every sub-module of a device once, allocates the states of all request slots once, and then
runs a sub-module of a slot as often as it is asked to. `null` computes nothing of use and needs nothing; it
is for tests of everything around it.
"""

from __future__ import annotations

import importlib
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from partc.errors import BundleError
from partc.format.dtypes import DTYPES, Array
from partc.runtime.engines.memory import ALIGNMENT, LazyZeros
from partc.runtime.manifest import Manifest, Submodule, TensorType


class Engine(Protocol):
    """Computes the sub-modules of one device."""

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """Begin a request in a slot: its states are zero and have the sizes that `dims` gives.

        Zero matters, or at least that they are finite: a step multiplies the rows that it masks by 0, and what an
        earlier request left there, an infinity or a NaN, would survive that.
        """

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """Compute a sub-module; its outputs in order. The states of the slot advance in place.

        Raises:
            RunError: the engine failed.
        """


_ENGINES = {
    "ort": ("partc.runtime.engines.ort", "OrtEngine"),
    "tvm": ("partc.runtime.engines.tvm", "TvmEngine"),
    "null": ("partc.runtime.engines.contract", "NullEngine"),
}


def load_engine(manifest: Manifest, folder: Path) -> Engine:
    """The engine that the manifest asks for, with all sub-modules loaded and all states allocated.

    Raises:
        BundleError: it is unknown, not installed, or cannot read a sub-module.
    """
    kind = manifest.engine.kind
    if kind not in _ENGINES:
        raise BundleError(
            f"no engine {kind!r}", where="engine.kind", hint=f"this partc has {', '.join(_ENGINES)}"
        )
    module, name = _ENGINES[kind]
    engine: Engine = getattr(importlib.import_module(module), name)(manifest, folder)
    return engine


class States:
    """The states of all slots: room for each at its largest size, taken once.

    Memory is used where a request has written: neither slots that nobody uses nor rows that no token has reached take
    any. A request with fewer sequences uses the beginning of each buffer.
    """

    def __init__(self, manifest: Manifest) -> None:
        states = [state for submodule in manifest.submodules.values() for state in submodule.states]
        self._types = {state.name: state.type for state in states}
        self._starts: dict[str, int] = {}
        size = 0
        for name, declared in self._types.items():
            self._starts[name] = size
            size += -(-_bytes(declared, manifest.dims) // ALIGNMENT) * ALIGNMENT
        self._slots = [LazyZeros(size) for _ in range(manifest.model.max_requests)]
        self._views: list[dict[str, Array]] = [{} for _ in self._slots]

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """Zero the states of a slot and give them the sizes of a request."""
        self._slots[slot].clear()
        memory = self._slots[slot].bytes
        for name, declared in self._types.items():
            start = self._starts[name]
            view = memory[start : start + _bytes(declared, dims)].view(DTYPES[declared.dtype])
            self._views[slot][name] = view.reshape(declared.sizes(dims))

    def of(self, slot: int) -> Mapping[str, Array]:
        """The states of a slot by name."""
        return self._views[slot]


def _bytes(declared: TensorType, dims: Mapping[str, int]) -> int:
    return math.prod(declared.sizes(dims)) * DTYPES[declared.dtype].itemsize


class NullEngine:
    """Outputs that depend on every bit of the inputs and of the state, and mean nothing."""

    def __init__(self, manifest: Manifest, folder: Path) -> None:
        """Nothing is read."""
        self._submodules = manifest.submodules
        self._types = manifest.types
        self._states = States(manifest)

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`."""
        self._states.reset(slot, dims)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        module = self._submodules[submodule]
        mark = zlib.crc32(submodule.encode())
        for array in (*inputs, *self._state_arrays(module, slot)):
            mark = zlib.crc32(np.ascontiguousarray(array).tobytes(), mark)
        for array in self._state_arrays(module, slot):
            array.reshape(-1)[:1] = mark % 97
        return [self._filled(name, mark + index, dims) for index, name in enumerate(module.outputs)]

    def _state_arrays(self, module: Submodule, slot: int) -> list[Array]:
        views = self._states.of(slot)
        return [views[state.name] for state in module.states]

    def _filled(self, name: str, mark: int, dims: Mapping[str, int]) -> Array:
        declared = self._types[name]
        shape = declared.sizes(dims)
        numbers = (np.arange(math.prod(shape), dtype=np.int64) * 2654435761 + mark) % 97
        return numbers.astype(DTYPES[declared.dtype]).reshape(shape)
