"""The engine over code for a GPU and the plan of its launches (docs/bundle.md, "Target tvm").

Weights, states and everything between inputs and outputs lie on the device. A step copies its inputs there, starts the
launches of its function, which were prepared when a slot first used it, and copies its outputs back. States have the
largest batch; an entry with fewer sequences uses the beginning of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError, RunError
from partc.format.build import State, Submodule
from partc.format.dtypes import DTYPES, Array
from partc.format.role import Role
from partc.format.safetensors import Entry as WeightEntry
from partc.runtime.engines.contract import loaded, submodule_named
from partc.runtime.engines.entries import Entries, Entry, Sizes, function_name
from partc.runtime.engines.gpu.contract import Buffer, DriverError, open_driver
from partc.runtime.engines.gpu.library import GpuLibrary, open_gpu_library
from partc.runtime.engines.memory import aligned_zeros, map_tensors
from partc.runtime.engines.plan_checks import check_function, weight_tensor
from partc.runtime.engines.shared_steps import run_apart
from partc.runtime.engines.states import put_rows, rows_of
from partc.runtime.engines.weights import Weights


@dataclass(frozen=True, slots=True)
class _Input:
    """An input of a function: where it is filled, and where the device reads it."""

    array: Array
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with all its arguments, for one slot."""

    start: Callable[[], None]
    inputs: list[_Input]
    outputs: list[_Input]


class GpuEngine:
    """Sub-modules as lists of launches."""

    def __init__(self, role: Role, folder: Path) -> None:
        """Take the first GPU; nothing is loaded yet.

        Raises:
            BundleError: the machine has none.
        """
        options = role.engine.library
        assert options is not None
        try:
            self._driver = open_driver(role.engine.provider)
        except DriverError as error:
            hint = "run `partc` on a machine with a GPU and its driver, or compile with `provider: cpu`"
            raise BundleError(f"no GPU: {error}", where="engine.provider", hint=hint) from None
        self._role = role
        self._folder = folder
        self._functions = options.functions
        self._entries = Entries(role, options)
        self._modules: dict[str, Submodule] = {}
        self._libraries: dict[str, GpuLibrary] = {}
        self._weights = Weights(folder, self._read_weights)
        self._states: dict[tuple[str, int], dict[str, Buffer]] = {}
        self._inputs: dict[tuple[str, Entry], list[_Input]] = {}
        self._calls: dict[tuple[str, int, Entry], _Call] = {}

    def load(self, submodule: str) -> None:
        """See `Engine`; sub-modules of one file read it once."""
        if submodule in self._modules:
            return
        module = submodule_named(submodule, self._role)
        library = self._libraries.get(module.file) or open_gpu_library(
            self._role, self._folder, module.file, self._driver
        )
        names = self._functions[submodule].weights
        weights = [weight_tensor(entry) for entry in self._weights.entries(module, names)]
        for entry in self._functions[submodule].entries:
            sizes = self._entries.sizes(module, entry)
            check_function(self._role, module, sizes, entry, library.plan, weights, library.plan_path)
        try:
            self._weights.add(module, names)
            for slot in range(self._role.model.max_requests):
                self._states[submodule, slot] = {
                    state.name: self._allocate(state.buffer.bytes(self._role.dims)) for state in module.states
                }
        except BundleError:
            self._let_go(submodule)
            raise
        self._libraries[module.file] = library
        self._modules[submodule] = module

    def release(self, submodule: str) -> None:
        """See `Engine`."""
        module = self._modules.pop(submodule, None)
        if module is None:
            return
        self._let_go(submodule)
        if all(other.file != module.file for other in self._modules.values()):
            del self._libraries[module.file]

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`; states have their largest sizes, whatever the request."""
        for (submodule, number), buffers in list(self._states.items()):
            with self._failing(submodule):
                for buffer in buffers.values() if number == slot else ():
                    self._driver.clear(buffer)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        module = loaded(submodule, self._modules)
        sizes = self._entries.of(module, dims)
        with self._failing(submodule):
            call = self._calls.get((submodule, slot, sizes.entry)) or self._prepare(module, slot, sizes.entry)
            return self._run(call, sizes, inputs)

    def run_shared(
        self, submodule: str, slots: Sequence[int], inputs: Sequence[Array], dims: Mapping[str, int]
    ) -> list[Array]:
        """See `Engine`; one slot after the other."""
        module = loaded(submodule, self._modules)
        return run_apart(module, self._role.types, slots, inputs, dims, partial(self.run, submodule))

    def read_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        """See `Engine`."""
        declared, buffer = self._state(submodule, slot, state)
        return rows_of(declared, self._fetched(declared, buffer), row, begin, end)

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """See `Engine`."""
        declared, buffer = self._state(submodule, slot, state)
        array = self._fetched(declared, buffer)
        put_rows(declared, array, row, begin, rows)
        with self._failing(submodule):
            self._driver.write(buffer, array)

    @contextmanager
    def _failing(self, submodule: str) -> Iterator[None]:
        """Errors of the driver, while a request runs, as those of the request."""
        try:
            yield
        except DriverError as error:
            message = f"{submodule} failed on {self._driver.name}: {error}"
            hint = "end other programs, or compile again"
            raise RunError(message, where=self._role.device, hint=hint) from error

    def _let_go(self, submodule: str) -> None:
        """Give back what a sub-module has, all of it or what it has so far."""
        tables: tuple[dict[Any, Any], ...] = (self._calls, self._inputs, self._states)
        for table in tables:
            for key in [key for key in list(table) if key[0] == submodule]:
                del table[key]
        self._weights.remove(submodule)

    def _run(self, call: _Call, sizes: Sizes, inputs: Sequence[Array]) -> list[Array]:
        for array, held, span in zip(inputs, call.inputs, sizes.inputs, strict=True):
            span.fill(held.array, array)
            self._driver.write(held.buffer, held.array)
        call.start()
        for output in call.outputs:
            self._driver.read(output.buffer, output.array)
        return [
            span.cut(out.array, copied=True) for out, span in zip(call.outputs, sizes.outputs, strict=True)
        ]

    def _prepare(self, module: Submodule, slot: int, entry: Entry) -> _Call:
        """Everything for calls of one function by one slot, kept for good."""
        inputs = self._inputs_of(module, entry)
        states = self._states[module.name, slot]
        parameters = [
            *(one.buffer for one in inputs),
            *(states[state.name] for state in module.states),
            *self._weights.of(module.name),
        ]
        library = self._libraries[module.file]
        function = library.plan.functions[function_name(module.name, entry)]
        start = library.prepare(function, parameters)
        outputs = [
            _Input(
                aligned_zeros(out.shape, DTYPES[out.dtype]), library.place(out.place, out.bytes, parameters)
            )
            for out in function.outputs
        ]
        call = self._calls[module.name, slot, entry] = _Call(start, inputs, outputs)
        return call

    def _inputs_of(self, module: Submodule, entry: Entry) -> list[_Input]:
        """The same for every slot: one step runs at a time."""
        if (module.name, entry) not in self._inputs:
            sizes = self._entries.sizes(module, entry)
            types = [self._role.types[name] for name in module.inputs]
            arrays = [aligned_zeros(kind.sizes(sizes), DTYPES[kind.dtype]) for kind in types]
            self._inputs[module.name, entry] = [
                _Input(array, self._driver.allocate(array.nbytes)) for array in arrays
            ]
        return self._inputs[module.name, entry]

    def _state(self, submodule: str, slot: int, name: str) -> tuple[State, Buffer]:
        declared = {state.name: state for state in loaded(submodule, self._modules).states}
        if name not in declared:
            raise RunError(f"no state {name!r} is loaded", where=submodule, cause="bug")
        return declared[name], self._states[submodule, slot][name]

    def _fetched(self, state: State, buffer: Buffer) -> Array:
        array = np.zeros(state.buffer.sizes(self._role.dims), DTYPES[state.dtype])
        with self._failing(state.name):
            self._driver.read(buffer, array)
        return array

    def _allocate(self, size: int, content: Array | None = None) -> Buffer:
        """Memory for something that is loaded, with this content or zeros."""
        try:
            buffer = self._driver.allocate(max(1, size))
            if content is not None:
                self._driver.write(buffer, content)
            return buffer
        except DriverError as error:
            hint = "end other programs, or compile with a smaller max_sequence or fewer max_requests"
            raise BundleError(f"{self._driver.name} has no {size} bytes left: {error}", hint=hint) from None

    def _read_weights(self, path: Path, entries: Sequence[WeightEntry]) -> list[Buffer]:
        """Tensors of a file on the device; raises BundleError where it is none."""
        mapped = map_tensors(path)
        arrays = (mapped[entry.name][0] for entry in entries)
        return [self._allocate(array.nbytes, array) for array in arrays]
