"""The engine over a compiled library and the plan of its kernels (docs/bundle.md, "Target tvm").

Everything about the addresses of a function and a slot is put together when a step first needs it (`plan_frame.py`).
A step then copies its inputs, makes one call, and copies its outputs. States have the largest batch; an entry with
fewer sequences uses the beginning of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import RunError
from partc.format.build import Submodule
from partc.format.dtypes import DTYPES, Array
from partc.format.role import Role
from partc.runtime.engines.contract import loaded, submodule_named
from partc.runtime.engines.entries import Entries, Entry, Sizes, function_name
from partc.runtime.engines.mapped_weights import WeightMappings
from partc.runtime.engines.memory import aligned_zeros
from partc.runtime.engines.plan_checks import check_function, weight_tensor
from partc.runtime.engines.plan_frame import Frame, KernelError
from partc.runtime.engines.plan_library import Library, plan_file
from partc.runtime.engines.plan_shared import shared_calls
from partc.runtime.engines.shared_steps import run_in_groups
from partc.runtime.engines.states import States
from partc.runtime.engines.weights import Weights


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with all its arguments, for one slot."""

    frame: Frame
    inputs: list[Array]


class PlanEngine:
    """Sub-modules as lists of kernels."""

    def __init__(self, role: Role, folder: Path) -> None:
        """Nothing is loaded yet."""
        options = role.engine.library
        assert options is not None
        self._role = role
        self._folder = folder
        self._functions = options.functions
        self._entries = Entries(role, options)
        self._modules: dict[str, Submodule] = {}
        self._libraries: dict[str, Library] = {}
        self._mappings = WeightMappings()
        self._weights = Weights(folder, self._mappings.map)
        self._states = States(role.dims, role.model.max_requests)
        self._inputs: dict[tuple[str, Entry], list[Array]] = {}
        self._calls: dict[tuple[str, int, Entry], _Call] = {}
        self._is_shared = role.model.most_rows > 1
        self._together: dict[str, list[int]] = {}
        """Sub-module → requests of a step that there is code for."""
        self._shared: dict[tuple[str, int], _Call] = {}
        """(sub-module, requests) → their step; it is pointed to their states."""
        self._places: dict[tuple[str, int], list[int]] = {}

    def load(self, submodule: str) -> None:
        """See `Engine`; sub-modules of one library open it once."""
        if submodule in self._modules:
            return
        module = submodule_named(submodule, self._role)
        library = self._libraries.get(module.file) or Library(self._role, self._folder, module.file)
        names = self._functions[submodule].weights
        weights = [weight_tensor(entry) for entry in self._weights.entries(module, names)]
        for entry in self._functions[submodule].entries:
            sizes, where = self._entries.sizes(module, entry), self._folder / plan_file(module.file)
            check_function(self._role, module, sizes, entry, library.plan, weights, where)
        self._weights.add(module, names)
        self._libraries[module.file] = library
        self._states.add(module)
        self._prepare_shared(module)
        self._modules[submodule] = module

    def release(self, submodule: str) -> None:
        """See `Engine`."""
        module = self._modules.pop(submodule, None)
        if module is None:
            return
        tables: tuple[dict[Any, Any], ...] = (self._calls, self._inputs, self._shared, self._places)
        for table in tables:
            for key in [key for key in list(table) if key[0] == submodule]:
                del table[key]
        self._states.remove(submodule)
        self._weights.remove(submodule)
        if all(other.file != module.file for other in self._modules.values()):
            self._libraries.pop(module.file).close()

    def settle(self) -> bool:
        """See `Engine`."""
        return self._mappings.settle()

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`; states have their largest sizes, whatever the request."""
        self._states.reset(slot, self._role.dims)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        module = loaded(submodule, self._modules)
        sizes = self._entries.of(module, dims)
        call = self._calls.get((submodule, slot, sizes.entry)) or self._prepare(module, slot, sizes.entry)
        return self._run(module, call, sizes, inputs)

    def run_shared(
        self, submodule: str, slots: Sequence[int], inputs: Sequence[Array], dims: Mapping[str, int]
    ) -> list[Array]:
        """See `Engine`; in steps of as many requests as there is code for."""
        module = loaded(submodule, self._modules)
        run = partial(self._run_together, module, dims)
        return run_in_groups(
            module, self._role.types, self._groups(submodule, len(slots)), slots, inputs, run
        )

    def _groups(self, submodule: str, count: int) -> list[int]:
        """How many requests each step has: the most that there is code for, then the most of the rest."""
        have = self._together[submodule]
        groups: list[int] = []
        while count:
            groups.append(max(size for size in have if size <= count))
            count -= groups[-1]
        return groups

    def _run_together(
        self, module: Submodule, dims: Mapping[str, int], slots: Sequence[int], inputs: Sequence[Array]
    ) -> list[Array]:
        own = {**dims, "batch": len(slots)}
        if len(slots) == 1:
            return self.run(module.name, slots[0], inputs, own)
        call = self._shared[module.name, len(slots)]
        if module.states:
            call.frame.point([self._addresses(module, slot) for slot in slots], len(module.inputs))
        return self._run(module, call, self._entries.exactly(module, (len(slots), 1), own), inputs)

    def _run(self, module: Submodule, call: _Call, sizes: Sizes, inputs: Sequence[Array]) -> list[Array]:
        for array, buffer, span in zip(inputs, call.inputs, sizes.inputs, strict=True):
            span.fill(buffer, array)
        try:
            call.frame.run()
        except KernelError as error:
            raise RunError(
                f"{module.name}: there is not enough memory for the kernel {error}",
                where=module.file,
                hint="end other programs, or compile with a smaller max_sequence",
            ) from None
        # The next call overwrites them.
        return [
            span.cut(output, copied=True)
            for output, span in zip(call.frame.outputs, sizes.outputs, strict=True)
        ]

    def read_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        """See `Engine`."""
        return self._states.read(submodule, slot, state, row, begin, end)

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """See `Engine`."""
        self._states.write(submodule, slot, state, row, begin, rows)

    def _prepare(self, module: Submodule, slot: int, entry: Entry) -> _Call:
        """Everything for calls of one function by one slot, kept for good."""
        sizes = self._entries.sizes(module, entry)
        inputs = self._inputs_of(module, entry)
        held = self._states.of(module.name, slot)
        states = [_beginning(held[state.name], state.buffer.sizes(sizes)) for state in module.states]
        library = self._libraries[module.file]
        function = library.plan.functions[function_name(module.name, entry)]
        frame = Frame(library, function, [*inputs, *states, *self._weights.of(module.name)])
        call = self._calls[module.name, slot, entry] = _Call(frame, inputs)
        return call

    def _addresses(self, module: Submodule, slot: int) -> list[int]:
        """Where the states of a slot lie, in the order of parameters; `reset` does not move them."""
        key = (module.name, slot)
        if key not in self._places:
            held = self._states.of(*key)
            self._places[key] = [int(held[state.name].ctypes.data) for state in module.states]
        return self._places[key]

    def _prepare_shared(self, module: Submodule) -> None:
        """Everything for steps of several requests, of the sizes that there is code for."""
        library, first = self._libraries[module.file], len(module.inputs)
        self._together[module.name] = [1]
        one = library.plan.functions.get(function_name(module.name, (1, 1)))
        for entry in self._functions[module.name].entries:
            if one is None or entry[0] == 1 or entry[1] != 1 or not self._is_shared:
                continue
            many = library.plan.functions[function_name(module.name, entry)]
            states = range(first, first + len(module.states))
            calls = shared_calls(library.plan, one, many, states, entry[0])
            if calls is None:
                continue
            inputs = self._inputs_of(module, entry)
            parameters = [*inputs, *[None] * len(states), *self._weights.of(module.name)]
            self._shared[module.name, entry[0]] = _Call(Frame(library, many, parameters, calls), inputs)
            self._together[module.name].append(entry[0])

    def _inputs_of(self, module: Submodule, entry: Entry) -> list[Array]:
        """The same for every slot: one step runs at a time."""
        if (module.name, entry) not in self._inputs:
            sizes = self._entries.sizes(module, entry)
            types = [self._role.types[name] for name in module.inputs]
            self._inputs[module.name, entry] = [
                aligned_zeros(kind.sizes(sizes), DTYPES[kind.dtype]) for kind in types
            ]
        return self._inputs[module.name, entry]


def _beginning(state: Array, shape: tuple[int, ...]) -> Array:
    """A view of the first elements, which are the first sequences."""
    return state.reshape(-1)[: int(np.prod(shape))].reshape(shape)
