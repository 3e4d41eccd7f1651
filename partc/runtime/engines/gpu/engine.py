"""The engine over code for a GPU and the plan of its launches (docs/bundle.md, "Target tvm").

Weights, states and everything between inputs and outputs lie on the device. A step copies its inputs there, starts the
launches of its function, which were prepared when a slot first used it, and copies its outputs back. States have the
largest batch; an entry with fewer sequences uses the beginning of each. Rows of states travel head by head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
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
from partc.runtime.engines.gpu.contract import PART_BYTES, Buffer, DriverError, open_driver
from partc.runtime.engines.gpu.library import GpuLibrary, open_gpu_library
from partc.runtime.engines.memory import aligned_zeros, map_tensors
from partc.runtime.engines.plan_checks import check_function, weight_tensor
from partc.runtime.engines.shared_steps import run_apart
from partc.runtime.engines.states import check_rows, runs_of
from partc.runtime.engines.weights import Weights


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of a function, side by side: one copy takes all of them to the device."""

    whole: Array
    buffer: Buffer
    arrays: list[Array]
    """The part of `whole` in which each is filled."""
    buffers: list[Buffer]
    """The memory from which the device reads each."""


@dataclass(frozen=True, slots=True)
class _Output:
    """An output of a function: where it is read, and where the device writes it."""

    array: Array
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with all its arguments, for one slot."""

    start: Callable[[], None]
    inputs: _Inputs
    outputs: list[_Output]


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
        self.device_name = self._driver.name
        """The name that the GPU gives itself."""
        self._role = role
        self._folder = folder
        self._functions = options.functions
        self._entries = Entries(role, options)
        self._modules: dict[str, Submodule] = {}
        self._libraries: dict[str, GpuLibrary] = {}
        self._weights = Weights(folder, self._read_weights)
        self._states: dict[tuple[str, int], dict[str, Buffer]] = {}
        self._inputs: dict[tuple[str, Entry], _Inputs] = {}
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
        except (BundleError, DriverError) as error:
            self._let_go(submodule)
            if isinstance(error, BundleError):
                raise
            message = f"{self._driver.name} does not take it: {error}"
            raise BundleError(message, where=module.file, hint="end other programs, then try again") from None
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

    def settle(self) -> bool:
        """See `Engine`; nothing lies elsewhere."""
        return False

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`; states have their largest sizes, whatever the request."""
        for module in list(self._modules.values()):
            with self._guarded(module):
                for buffer in self._states.get((module.name, slot), {}).values():
                    self._driver.clear(buffer)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        module = loaded(submodule, self._modules)
        sizes = self._entries.of(module, dims)
        with self._guarded(module):
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
        module = loaded(submodule, self._modules)
        declared, buffer = self._state(module, slot, state)
        runs = runs_of(declared, declared.buffer.sizes(self._role.dims), row, begin, end)
        found = np.empty(runs.sizes, DTYPES[declared.dtype])
        with self._guarded(module):
            for first, part in zip(runs.firsts, found, strict=True):
                if part.size:
                    self._driver.read(buffer, part, first * part.itemsize)
        return np.ascontiguousarray(found.swapaxes(0, 1))

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """See `Engine`."""
        module = loaded(submodule, self._modules)
        declared, buffer = self._state(module, slot, state)
        runs = runs_of(declared, declared.buffer.sizes(self._role.dims), row, begin, begin + len(rows))
        check_rows(declared, rows, (runs.sizes[0], runs.sizes[2]))
        parts = np.ascontiguousarray(rows.swapaxes(0, 1))
        with self._guarded(module):
            for first, part in zip(runs.firsts, parts, strict=True):
                if part.size:
                    self._driver.write(buffer, part, first * part.itemsize)

    @contextmanager
    def _guarded(self, module: Submodule) -> Iterator[None]:
        """Errors of the driver become errors of the request."""
        try:
            yield
        except DriverError as error:
            message = f"{module.name} failed on {self._driver.name}: {error}"
            raise RunError(
                message, where=self._role.device, hint="end other programs, or compile again"
            ) from error

    def _let_go(self, submodule: str) -> None:
        """Give back what a sub-module has, all of it or what it has so far."""
        tables: tuple[dict[Any, Any], ...] = (self._calls, self._inputs, self._states)
        for table in tables:
            for key in [key for key in list(table) if key[0] == submodule]:
                del table[key]
        self._weights.remove(submodule)

    def _run(self, call: _Call, sizes: Sizes, inputs: Sequence[Array]) -> list[Array]:
        for array, held, span in zip(inputs, call.inputs.arrays, sizes.inputs, strict=True):
            span.fill(held, array)
        self._driver.write(call.inputs.buffer, call.inputs.whole)
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
            *inputs.buffers,
            *(states[state.name] for state in module.states),
            *self._weights.of(module.name),
        ]
        library = self._libraries[module.file]
        function = library.plan.functions[function_name(module.name, entry)]
        start = library.prepare(function, parameters)
        outputs = [
            _Output(
                aligned_zeros(out.shape, DTYPES[out.dtype]), library.place(out.place, out.bytes, parameters)
            )
            for out in function.outputs
        ]
        call = self._calls[module.name, slot, entry] = _Call(start, inputs, outputs)
        return call

    def _inputs_of(self, module: Submodule, entry: Entry) -> _Inputs:
        """The same for every slot: one step runs at a time."""
        if (module.name, entry) not in self._inputs:
            sizes = self._entries.sizes(module, entry)
            kinds = [self._role.types[name] for name in module.inputs]
            ends = list(accumulate(-(-kind.bytes(sizes) // PART_BYTES) * PART_BYTES for kind in kinds))
            whole = aligned_zeros((max(1, *ends, 1),), np.dtype(np.uint8))
            buffer = self._driver.allocate(whole.nbytes)
            arrays, buffers = [], []
            for kind, begin in zip(kinds, [0, *ends], strict=False):
                part = whole[begin : begin + kind.bytes(sizes)]
                arrays.append(part.view(DTYPES[kind.dtype]).reshape(kind.sizes(sizes)))
                buffers.append(self._driver.part(buffer, begin, part.nbytes))
            self._inputs[module.name, entry] = _Inputs(whole, buffer, arrays, buffers)
        return self._inputs[module.name, entry]

    def _state(self, module: Submodule, slot: int, name: str) -> tuple[State, Buffer]:
        declared = {state.name: state for state in module.states}
        if name not in declared:
            raise RunError(f"no state {name!r} is loaded", where=module.name, cause="bug")
        return declared[name], self._states[module.name, slot][name]

    def _allocate(self, size: int) -> Buffer:
        try:
            return self._driver.allocate(max(1, size))
        except DriverError as error:
            hint = "end other programs, or compile with a smaller max_sequence or fewer max_requests"
            raise BundleError(f"{self._driver.name} has no {size} bytes left: {error}", hint=hint) from None

    def _read_weights(self, path: Path, entries: Sequence[WeightEntry]) -> list[Buffer]:
        """Tensors of a file on the device; raises BundleError where it is none."""
        mapped = map_tensors(path)
        buffers = []
        for entry in entries:
            array, _ = mapped[entry.name]
            buffers.append(self._allocate(array.nbytes))
            self._driver.write(buffers[-1], array)
        return buffers
