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

from partc.errors import BundleError, RunError
from partc.format.dims import factors, symbols
from partc.format.dtypes import DTYPES, Array
from partc.runtime.engines.memory import aligned_zeros, map_tensors
from partc.runtime.engines.tvm_memory import Buffer
from partc.runtime.engines.tvm_runtime import open_library, start_runtime
from partc.runtime.manifest import RECOMPILE, Manifest, Submodule, TensorType

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
    """Of the inputs and states."""
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

    def __init__(self, manifest: Manifest, folder: Path) -> None:
        """Load the library, map the weights and allocate every state.

        Raises:
            BundleError: TVM's runtime is not installed, or a file is not what the manifest says.
        """
        options = manifest.engine.tvm
        assert options is not None
        self._types = manifest.types
        self._dims = manifest.dims
        self._modules = manifest.submodules
        self._functions = options.functions
        self._memory = start_runtime(manifest.engine)
        files = dict.fromkeys(module.file for module in self._modules.values())
        self._libraries = {file: open_library(manifest, folder, file) for file in files}
        self._weights = self._place_weights(folder)
        slots = range(manifest.model.max_requests)
        self._states = [self._place_states() for _ in slots]
        self._inputs: dict[tuple[str, _Entry], list[Buffer]] = {}
        self._calls: dict[tuple[str, int, _Entry], _Call] = {}
        self._sizes: dict[tuple[object, ...], _Sizes] = {}

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`; states have their largest sizes, whatever the request."""
        for state in self._states[slot].values():
            self._memory.clear(state)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        module = self._modules[submodule]
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
        states = [(state.type, self._states[slot][state.name]) for state in module.states]
        function = self._libraries[module.file][f"{module.name}_b{entry[0]}_s{entry[1]}"]
        arguments = [
            *(buffer.tensor for buffer in inputs),
            *(self._memory.beginning(state, kind.sizes(dims), kind.dtype) for kind, state in states),
            *self._weights[module.name],
        ]
        memory = [buffer.array for buffer in (*inputs, *(state for _, state in states))]
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

    def _place_states(self) -> dict[str, Buffer]:
        types = {state.name: state.type for module in self._modules.values() for state in module.states}
        return {
            name: self._memory.place(aligned_zeros(kind.sizes(self._dims), DTYPES[kind.dtype]), kind.dtype)
            for name, kind in types.items()
        }

    def _place_weights(self, folder: Path) -> dict[str, list[Any]]:
        """Sub-module → its weights in the order of the arguments; a tensor that several name is placed once."""
        files = dict.fromkeys(file for module in self._modules.values() for file in module.weights)
        mapped = {file: map_tensors(folder / file) for file in files}
        placed: dict[tuple[str, str], Any] = {}
        weights: dict[str, list[Any]] = {}
        for module in self._modules.values():
            homes = {name: file for file in module.weights for name in mapped[file]}
            names = self._functions[module.name].weights
            for name in names:
                if name not in homes:
                    message = f"no file of {module.name} has the weight {name!r}"
                    raise BundleError(message, where=str(folder), hint=RECOMPILE)
                if (homes[name], name) not in placed:
                    placed[homes[name], name] = self._memory.place(*mapped[homes[name]][name]).tensor
            weights[module.name] = [placed[homes[name], name] for name in names]
        return weights


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
