"""Functions of compiled libraries by size of step: the one that a step runs in, and what fills it up.

A library has one function for every entry: a pair of batch and sequence, or of batch and source in a sub-module that a
request runs once. A step runs in the smallest entry that it fits into, its inputs padded with zeros and its outputs cut
to size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from partc.errors import BundleError, RunError
from partc.format.build import LibraryOptions, Submodule, TensorType
from partc.format.dims import factors, symbols
from partc.format.dtypes import Array
from partc.format.names import BUILD_FILE
from partc.format.program import row_symbol
from partc.format.reading import RECOMPILE
from partc.format.role import Role

Entry = tuple[int, int]
"""Batch and `row_symbol` that a function is for."""
_KEPT_SIZES = 256


@dataclass(frozen=True, slots=True)
class Span:
    """The beginning of every axis of a tensor that has the sizes of an entry.

    Axes of `batch*sequence` are two here, since a row of padding stands behind every sequence.
    """

    whole: tuple[int, ...]
    """Sizes of the entry."""
    sizes: tuple[int, ...]
    """Sizes of the step."""
    shape: tuple[int, ...]
    """The same, with products multiplied."""

    def fill(self, buffer: Array, array: Array) -> None:
        """Copy the `array` of a step to the beginning of every axis of `buffer`; the rest is zeros."""
        if buffer.shape == array.shape:
            buffer[...] = array
            return
        buffer.fill(0)
        self._of(buffer)[...] = array.reshape(self.sizes)

    def cut(self, array: Array, *, copied: bool) -> Array:
        """The step's part of `array`, without gaps; a copy where that is asked for, or where it has gaps."""
        view = self._of(array)
        return (np.array(view) if copied else np.ascontiguousarray(view)).reshape(self.shape)

    def _of(self, array: Array) -> Array:
        """A view of `array`, which is contiguous."""
        return array.reshape(self.whole)[tuple(slice(size) for size in self.sizes)]


def _span(kind: TensorType, entry: Mapping[str, int], step: Mapping[str, int]) -> Span:
    apart = TensorType(kind.dtype, tuple(factor for dim in kind.shape for factor in factors(dim)))
    return Span(apart.sizes(entry), apart.sizes(step), kind.sizes(step))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The entry of a step, and what it asks for of each input and output."""

    entry: Entry
    inputs: list[Span]
    outputs: list[Span]


class Entries:
    """The entries of all sub-modules of a device."""

    def __init__(self, role: Role, options: LibraryOptions) -> None:
        """Reads nothing but the build.

        Entries of a single token may have a row for each request, which could share a step, or for each token of one.

        Raises:
            BundleError: an entry is larger than states are.
        """
        batch = role.dims.get("batch", math.inf)
        for name, functions in options.functions.items():
            most = role.dims.get(row_symbol(name), math.inf)
            for entry in functions.entries:
                widest = (
                    max(batch, role.model.max_requests, role.model.max_sequence) if entry[1] == 1 else batch
                )
                if entry[0] > widest or entry[1] > most:
                    message = f"engine.library.functions: {name} has an entry {list(entry)}, which `dims` do not allow"
                    raise BundleError(message, where=BUILD_FILE, hint=RECOMPILE)
        self._types = role.types
        self._dims = role.dims
        self._functions = options.functions
        self._sizes: dict[tuple[object, ...], Sizes] = {}

    def of(self, module: Submodule, dims: Mapping[str, int]) -> Sizes:
        """The entry for a step, kept for the sizes of late: to evaluate shapes takes longer than the rest of a step.

        Raises:
            RunError: no entry is large enough.
        """
        key = (module.name, *dims.items())
        found = self._sizes.get(key)
        if found is None:
            if len(self._sizes) == _KEPT_SIZES:
                self._sizes.clear()
            found = self._sizes[key] = self._new(module, dims)
        return found

    def exactly(self, module: Submodule, entry: Entry, dims: Mapping[str, int]) -> Sizes:
        """The sizes of a step in an entry that the caller names."""
        key = (module.name, entry, *dims.items())
        if key not in self._sizes:
            self._sizes[key] = self._spans(module, entry, dims)
        return self._sizes[key]

    def sizes(self, module: Submodule, entry: Entry) -> dict[str, int]:
        """The value of every symbol in the function of an entry."""
        return {**self._dims, "batch": entry[0], row_symbol(module.name): entry[1]}

    def _new(self, module: Submodule, dims: Mapping[str, int]) -> Sizes:
        return self._spans(module, self._entry_for(module, dims), dims)

    def _spans(self, module: Submodule, entry: Entry, dims: Mapping[str, int]) -> Sizes:
        wide = self.sizes(module, entry)
        inputs, outputs = (
            [_span(self._types[name], wide, dims) for name in names]
            for names in (module.inputs, module.outputs)
        )
        return Sizes(entry, inputs, outputs)

    def _entry_for(self, module: Submodule, dims: Mapping[str, int]) -> Entry:
        kinds = [*(self._types[name] for name in module.inputs), *(state.type for state in module.states)]
        found = {symbol for kind in kinds for dim in kind.shape for symbol in symbols(dim)}
        of_step = ("batch", row_symbol(module.name))
        batch, rows = (dims.get(symbol, 1) if symbol in found else 1 for symbol in of_step)
        for entry in sorted(self._functions[module.name].entries):
            if self._dims.get("batch", math.inf) >= entry[0] >= batch and entry[1] >= rows:
                return entry
        raise RunError(
            f"{module.name} has no code for {batch} sequences of {rows} tokens",
            where=module.file,
            hint="send less at once, or compile with a larger max_sequence and max_batch",
        )


def function_name(submodule: str, entry: Entry) -> str:
    """The name of a function: `part_0_b2_s64`."""
    return f"{submodule}_b{entry[0]}_s{entry[1]}"
