"""The engine over a library that TVM compiled for a GPU, run by TVM's virtual machine.

Tensors are handed to TVM once, when a slot first uses an entry: a step copies its inputs into buffers, and calls.
States have the largest batch; an entry with fewer sequences uses the beginning of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from partc.errors import RunError
from partc.format.build import Submodule
from partc.format.dtypes import DTYPES, Array
from partc.format.reading import RECOMPILE
from partc.format.role import Role
from partc.runtime.engines.contract import loaded, submodule_named
from partc.runtime.engines.entries import Entries, Entry, function_name
from partc.runtime.engines.memory import aligned_zeros
from partc.runtime.engines.shared_steps import run_apart
from partc.runtime.engines.states import States, put_rows, rows_of
from partc.runtime.engines.tvm_memory import Buffer
from partc.runtime.engines.tvm_runtime import open_library, start_runtime
from partc.runtime.engines.weights import Weights


@dataclass(frozen=True, slots=True)
class _Call:
    """A function and all its arguments, for one slot."""

    function: Any
    inputs: list[Buffer]
    arguments: list[Any]
    """Inputs, states, weights."""


class TvmEngine:
    """Sub-modules as functions of one shared library."""

    def __init__(self, role: Role, folder: Path) -> None:
        """Start TVM's runtime; nothing is loaded yet.

        Raises:
            BundleError: TVM's runtime is not installed.
        """
        options = role.engine.library
        assert options is not None
        self._role = role
        self._folder = folder
        self._functions = options.functions
        self._entries = Entries(role, options)
        self._memory = start_runtime()
        self._modules: dict[str, Submodule] = {}
        self._libraries: dict[str, Any] = {}
        self._weights = Weights(folder, self._memory.read_weights)
        self._states = States(role.dims, role.model.max_requests)
        self._buffers: dict[tuple[str, int], dict[str, Buffer]] = {}
        self._inputs: dict[tuple[str, Entry], list[Buffer]] = {}
        self._calls: dict[tuple[str, int, Entry], _Call] = {}

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
        tables: tuple[dict[Any, Any], ...] = (self._calls, self._inputs, self._buffers)
        for table in tables:
            for key in [key for key in list(table) if key[0] == submodule]:
                del table[key]
        self._states.remove(submodule)
        self._weights.remove(submodule)
        if all(other.file != module.file for other in self._modules.values()):
            del self._libraries[module.file]

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`; states have their largest sizes, whatever the request."""
        self._states.reset(slot, self._role.dims)
        for (_, number), buffers in list(self._buffers.items()):
            for buffer in buffers.values() if number == slot else ():
                self._memory.update(buffer)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        module = loaded(submodule, self._modules)
        sizes = self._entries.of(module, dims)
        call = self._calls.get((submodule, slot, sizes.entry)) or self._prepare(module, slot, sizes.entry)
        for array, buffer, span in zip(inputs, call.inputs, sizes.inputs, strict=True):
            span.fill(buffer.array, array)
            self._memory.update(buffer)
        try:
            results = call.function(*call.arguments)
            outputs = [self._memory.fetch(*pair) for pair in zip(results, self._dtypes(module), strict=True)]
        except Exception as error:
            message = f"{submodule} failed in TVM: {error}"
            raise RunError(message, where=module.file, hint=RECOMPILE) from error
        return [span.cut(output, copied=False) for output, span in zip(outputs, sizes.outputs, strict=True)]

    def run_shared(
        self, submodule: str, slots: Sequence[int], inputs: Sequence[Array], dims: Mapping[str, int]
    ) -> list[Array]:
        """See `Engine`; one slot after the other."""
        module = loaded(submodule, self._modules)
        return run_apart(module, self._role.types, slots, inputs, dims, partial(self.run, submodule))

    def read_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        """See `Engine`."""
        declared = self._states.find(submodule, state)
        array = self._memory.fetch(self._buffers[submodule, slot][state].tensor, declared.dtype)
        return rows_of(declared, array, row, begin, end)

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """See `Engine`."""
        declared = self._states.find(submodule, state)
        buffer = self._buffers[submodule, slot][state]
        array = self._memory.fetch(buffer.tensor, declared.dtype)
        put_rows(declared, array, row, begin, rows)
        self._memory.store(buffer, array, declared.dtype)

    def _dtypes(self, module: Submodule) -> list[str]:
        return [self._role.types[name].dtype for name in module.outputs]

    def _prepare(self, module: Submodule, slot: int, entry: Entry) -> _Call:
        """Everything for calls of one function by one slot, kept for good."""
        sizes = self._entries.sizes(module, entry)
        inputs = self._inputs_of(module, entry, sizes)
        held = self._buffers[module.name, slot]
        states = [(state, held[state.name]) for state in module.states]
        function = self._libraries[module.file][function_name(module.name, entry)]
        arguments = [
            *(buffer.tensor for buffer in inputs),
            *(
                self._memory.beginning(buffer, state.buffer.sizes(sizes), state.dtype)
                for state, buffer in states
            ),
            *self._weights.of(module.name),
        ]
        call = self._calls[module.name, slot, entry] = _Call(function, inputs, arguments)
        return call

    def _inputs_of(self, module: Submodule, entry: Entry, sizes: Mapping[str, int]) -> list[Buffer]:
        """The same for every slot: one step runs at a time."""
        if (module.name, entry) not in self._inputs:
            types = [self._role.types[name] for name in module.inputs]
            self._inputs[module.name, entry] = [
                self._memory.place(aligned_zeros(kind.sizes(sizes), DTYPES[kind.dtype]), kind.dtype)
                for kind in types
            ]
        return self._inputs[module.name, entry]

    def _place_states(self, module: Submodule, slot: int) -> dict[str, Buffer]:
        arrays = self._states.of(module.name, slot)
        return {state.name: self._memory.place(arrays[state.name], state.dtype) for state in module.states}
