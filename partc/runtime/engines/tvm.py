"""The engine over a library that TVM compiled.

The library has one function for every entry: a pair of batch and sequence. A step runs in the smallest entry that it
fits into, its inputs padded with zeros and its outputs cut to size. States have the largest batch; an entry with fewer
sequences uses the beginning of each. Tensors are handed to TVM once, when a slot first uses an entry: a step copies its
inputs into buffers, and calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import RunError
from partc.format.build import Submodule, TensorType
from partc.format.dims import factors, symbols
from partc.format.dtypes import DTYPES, Array
from partc.format.reading import RECOMPILE
from partc.format.role import Role
from partc.runtime.engines.contract import loaded, submodule_named
from partc.runtime.engines.memory import aligned_zeros
from partc.runtime.engines.states import States, put_rows, rows_of
from partc.runtime.engines.tvm_memory import Buffer, Weights
from partc.runtime.engines.tvm_runtime import Threads, open_library, start_runtime

_Entry = tuple[int, int]
"""Batch and sequence that a function is for."""
_KEPT_SIZES = 256


@dataclass(slots=True)
class _Call:
    """A function and all its arguments, for one slot."""

    function: Any
    inputs: list[Buffer]
    arguments: list[Any]
    """Inputs, states, weights."""
    memory: list[Array]
    """The memory of the inputs and states."""
    shares: list[bool] | None = None
    """Whether an output lies in that memory, and so has to be copied out of it; known after the first call."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The beginning of every axis of a tensor that has the sizes of an entry.

    Axes of `batch*sequence` are two here, since a row of padding stands behind every sequence.
    """

    whole: tuple[int, ...]
    """Sizes of the entry."""
    sizes: tuple[int, ...]
    """Sizes of the step."""
    shape: tuple[int, ...]
    """The same, with products multiplied."""

    def of(self, array: Array) -> Array:
        """A view of `array`, which is contiguous."""
        return array.reshape(self.whole)[tuple(slice(size) for size in self.sizes)]


def _part(kind: TensorType, entry: Mapping[str, int], step: Mapping[str, int]) -> _Part:
    apart = TensorType(kind.dtype, tuple(factor for dim in kind.shape for factor in factors(dim)))
    return _Part(apart.sizes(entry), apart.sizes(step), kind.sizes(step))


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The entry of a step, and what it asks for of each input and output."""

    entry: _Entry
    inputs: list[_Part]
    outputs: list[_Part]


class TvmEngine:
    """Sub-modules as functions of one shared library."""

    def __init__(self, role: Role, folder: Path) -> None:
        """Start TVM's runtime; nothing is loaded yet.

        Raises:
            BundleError: TVM's runtime is not installed.
        """
        options = role.engine.tvm
        assert options is not None
        self._role = role
        self._folder = folder
        self._types = role.types
        self._dims = role.dims
        self._functions = options.functions
        self._memory = start_runtime(role.engine)
        self._threads = Threads(role.engine)
        self._modules: dict[str, Submodule] = {}
        self._libraries: dict[str, Any] = {}
        self._weights = Weights(self._memory, folder)
        self._states = States(role.dims, role.model.max_requests)
        self._buffers: dict[tuple[str, int], dict[str, Buffer]] = {}
        self._inputs: dict[tuple[str, _Entry], list[Buffer]] = {}
        self._calls: dict[tuple[str, int, _Entry], _Call] = {}
        self._sizes: dict[tuple[object, ...], _Sizes] = {}

    def load(self, submodule: str) -> None:
        """See `Engine`; sub-modules of one library read it once."""
        if submodule in self._modules:
            return
        module = submodule_named(submodule, self._role)
        if module.file not in self._libraries:
            self._libraries[module.file] = open_library(self._role, self._folder, module.file)
        self._weights.add(module, self._functions[submodule].weights)
        self._states.add(module)
        for slot in range(self._role.model.max_requests):
            self._buffers[submodule, slot] = self._place_states(module, slot)
        self._modules[submodule] = module

    def release(self, submodule: str) -> None:
        """See `Engine`."""
        module = self._modules.pop(submodule, None)
        if module is None:
            return
        tables: tuple[dict[Any, Any], ...] = (self._calls, self._inputs, self._buffers, self._sizes)
        for table in tables:
            for key in [key for key in list(table) if key[0] == submodule]:
                table.pop(key, None)  # a step of another sub-module may have emptied the table
        self._states.remove(submodule)
        self._weights.remove(submodule)
        if all(other.file != module.file for other in self._modules.values()):
            del self._libraries[module.file]

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`; states have their largest sizes, whatever the request."""
        self._states.reset(slot, self._dims)
        for (_, number), buffers in list(self._buffers.items()):
            for buffer in buffers.values() if number == slot else ():
                self._memory.update(buffer)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        module = loaded(submodule, self._modules)
        self._threads.begin()
        sizes = self._sizes_of(module, dims)
        call = self._calls.get((submodule, slot, sizes.entry)) or self._prepare(module, slot, sizes.entry)
        for array, buffer, part in zip(inputs, call.inputs, sizes.inputs, strict=True):
            _fill(buffer.array, array, part)
            self._memory.update(buffer)
        try:
            results = call.function(*call.arguments)
            outputs = [self._memory.fetch(*pair) for pair in zip(results, self._dtypes(module), strict=True)]
        except Exception as error:
            message = f"{submodule} failed in TVM: {error}"
            raise RunError(message, where=module.file, hint=RECOMPILE) from error
        if call.shares is None:
            call.shares = [any(np.may_share_memory(out, own) for own in call.memory) for out in outputs]
        return [
            _cut(output, part, copied=shared)
            for output, part, shared in zip(outputs, sizes.outputs, call.shares, strict=True)
        ]

    def read_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        """See `Engine`."""
        declared = self._states.find(submodule, state)
        array = self._memory.read(self._buffers[submodule, slot][state], declared.dtype)
        return rows_of(declared, array, row, begin, end)

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """See `Engine`."""
        declared = self._states.find(submodule, state)
        buffer = self._buffers[submodule, slot][state]
        array = self._memory.read(buffer, declared.dtype)
        put_rows(declared, array, row, begin, rows)
        self._memory.store(buffer, array, declared.dtype)

    def _dtypes(self, module: Submodule) -> list[str]:
        return [self._types[name].dtype for name in module.outputs]

    def _sizes_of(self, module: Submodule, dims: Mapping[str, int]) -> _Sizes:
        """Kept for the sizes of late: evaluating shapes takes longer than the rest of what Python does in a step."""
        key = (module.name, *dims.items())
        if key not in self._sizes:
            if len(self._sizes) == _KEPT_SIZES:
                self._sizes.clear()
            entry = self._entry_for(module, dims)
            wide = {**self._dims, "batch": entry[0], "sequence": entry[1]}
            inputs, outputs = (
                [_part(self._types[name], wide, dims) for name in names]
                for names in (module.inputs, module.outputs)
            )
            self._sizes[key] = _Sizes(entry, inputs, outputs)
        return self._sizes[key]

    def _entry_for(self, module: Submodule, dims: Mapping[str, int]) -> _Entry:
        kinds = [*(self._types[name] for name in module.inputs), *(state.type for state in module.states)]
        found = {symbol for kind in kinds for dim in kind.shape for symbol in symbols(dim)}
        batch, rows = (dims.get(symbol, 1) if symbol in found else 1 for symbol in ("batch", "sequence"))
        for entry in sorted(self._functions[module.name].entries):
            if entry[0] >= batch and entry[1] >= rows:
                return entry
        raise RunError(
            f"{module.name} has no code for {batch} sequences of {rows} tokens",
            where=module.file,
            hint="send less at once, or compile with a larger max_sequence and max_batch",
        )

    def _prepare(self, module: Submodule, slot: int, entry: _Entry) -> _Call:
        """Everything for calls of one function by one slot, kept for good."""
        dims = {**self._dims, "batch": entry[0], "sequence": entry[1]}
        inputs = self._inputs_of(module, entry, dims)
        held = self._buffers[module.name, slot]
        states = [(state, held[state.name]) for state in module.states]
        function = self._libraries[module.file][f"{module.name}_b{entry[0]}_s{entry[1]}"]
        arguments = [
            *(buffer.tensor for buffer in inputs),
            *(
                self._memory.beginning(buffer, state.buffer.sizes(dims), state.dtype)
                for state, buffer in states
            ),
            *self._weights.of(module.name),
        ]
        memory = [buffer.array for buffer in (*inputs, *(buffer for _, buffer in states))]
        call = self._calls[module.name, slot, entry] = _Call(function, inputs, arguments, memory)
        return call

    def _inputs_of(self, module: Submodule, entry: _Entry, dims: Mapping[str, int]) -> list[Buffer]:
        """The same for every slot: one step runs at a time."""
        if (module.name, entry) not in self._inputs:
            types = [self._types[name] for name in module.inputs]
            self._inputs[module.name, entry] = [
                self._memory.place(aligned_zeros(kind.sizes(dims), DTYPES[kind.dtype]), kind.dtype)
                for kind in types
            ]
        return self._inputs[module.name, entry]

    def _place_states(self, module: Submodule, slot: int) -> dict[str, Buffer]:
        arrays = self._states.of(module.name, slot)
        return {state.name: self._memory.place(arrays[state.name], state.dtype) for state in module.states}


def _cut(array: Array, part: _Part, *, copied: bool) -> Array:
    view = part.of(array)
    return (np.array(view) if copied else np.ascontiguousarray(view)).reshape(part.shape)


def _fill(buffer: Array, array: Array, part: _Part) -> None:
    """Copy `array` to the beginning of every axis; the rest is zeros."""
    if buffer.shape == array.shape:
        buffer[...] = array
        return
    buffer.fill(0)
    part.of(buffer)[...] = array.reshape(part.sizes)
