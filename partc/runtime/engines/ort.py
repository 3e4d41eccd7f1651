"""The engine over onnxruntime.

Every session has one binding per slot. A state is bound once per request, the same memory as input and as
output, so that the operators update it in place. Binding is slow beside a small step: every step begins with an
interpreter whose code the weights of the last one have pushed out of the caches. So small tensors have memory that
stays bound from step to step: inputs are copied there, and an output lies where the last one did, once nobody has that
any more. Large ones are bound where they lie, and copied by nobody.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError, RunError
from partc.format.build import Submodule
from partc.format.dtypes import BY_LONG, DTYPES, Array
from partc.format.reading import RECOMPILE
from partc.format.role import Role
from partc.runtime.engines.contract import loaded, submodule_named
from partc.runtime.engines.huge_pages import give_back
from partc.runtime.engines.ort_session import Session, check_provider, load_session
from partc.runtime.engines.shared_steps import run_apart
from partc.runtime.engines.states import States

_STAYS_BELOW_BYTES = 1 << 20
"""Smaller tensors have memory that stays bound."""


@dataclass(slots=True)
class _Slot:
    """The bindings of one slot."""

    binding: Any
    inputs: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    """The small ones."""
    states: Mapping[str, Array] | None = None
    """Those that are bound."""
    dims: Mapping[str, int] | None = None
    """Sizes of the last step."""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Those of the module's outputs under `dims`."""


@dataclass(slots=True)
class _Loaded:
    module: Submodule
    session: Session
    slots: list[_Slot]


class OrtEngine:
    """Sub-modules as ONNX files."""

    def __init__(self, role: Role, folder: Path) -> None:
        """Nothing is loaded yet.

        Raises:
            BundleError: onnxruntime is not installed, or lacks the provider.
        """
        check_provider(role.engine)
        self._role = role
        self._folder = folder
        self._types = role.types
        self._states = States(role.dims, role.model.max_requests)
        self._loaded: dict[str, _Loaded] = {}

    def load(self, submodule: str) -> None:
        """See `Engine`."""
        if submodule in self._loaded:
            return
        module = submodule_named(submodule, self._role)
        session = load_session(self._role.engine, self._folder, module)
        _check_interface(session.inner, module, self._folder)
        self._states.add(module)
        slots = [_Slot(session.inner.io_binding()) for _ in range(self._role.model.max_requests)]
        self._loaded[submodule] = _Loaded(module, session, slots)

    def release(self, submodule: str) -> None:
        """See `Engine`."""
        held = self._loaded.pop(submodule, None)
        if held is None:
            return
        held.slots.clear()  # bindings hold the session, which reads the mapped files
        del held
        self._states.remove(submodule)
        give_back()

    def settle(self) -> bool:
        """See `Engine`; nothing lies elsewhere."""
        return False

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`."""
        self._states.reset(slot, dims)

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        held = loaded(submodule, self._loaded)
        module, bound = held.module, held.slots[slot]
        states = self._states.of(submodule, slot)
        if bound.states is not states:  # the slot was reset
            _bind_states(module, bound, states)
        for name, array in zip(module.inputs, inputs, strict=True):
            self._input(bound, name, array)
        if dims != bound.dims:
            bound.dims = dict(dims)
            bound.shapes = [self._types[name].sizes(dims) for name in module.outputs]
        pairs = zip(module.outputs, bound.shapes, strict=True)
        outputs = [self._output(bound, name, shape) for name, shape in pairs]
        try:
            held.session.inner.run_with_iobinding(bound.binding)
        except Exception as error:
            message = f"{submodule} failed in onnxruntime: {error}"
            raise RunError(message, where=module.file, hint=RECOMPILE) from error
        return outputs

    def run_shared(
        self, submodule: str, slots: Sequence[int], inputs: Sequence[Array], dims: Mapping[str, int]
    ) -> list[Array]:
        """See `Engine`; one slot after the other."""
        module = loaded(submodule, self._loaded).module
        return run_apart(module, self._types, slots, inputs, dims, partial(self.run, submodule))

    def read_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, end: int) -> Array:
        """See `Engine`."""
        return self._states.read(submodule, slot, state, row, begin, end)

    def write_rows(self, submodule: str, slot: int, state: str, row: int, begin: int, rows: Array) -> None:
        """See `Engine`."""
        self._states.write(submodule, slot, state, row, begin, rows)

    def _input(self, bound: _Slot, name: str, array: Array) -> None:
        is_small = array.nbytes < _STAYS_BELOW_BYTES
        mine = bound.inputs.get(name)
        if is_small and mine is not None and (mine.shape, mine.dtype) == (array.shape, array.dtype):
            mine[...] = array
            return
        mine = bound.inputs[name] = np.array(array, order="C") if is_small else np.ascontiguousarray(array)
        _bind(bound.binding.bind_input, name, self._types[name].dtype, mine)

    def _output(self, bound: _Slot, name: str, shape: tuple[int, ...]) -> Array:
        mine = bound.outputs.pop(name, None)
        if mine is None or mine.shape != shape or sys.getrefcount(mine) > _ALONE:
            dtype = self._types[name].dtype
            mine = np.empty(shape, DTYPES[dtype])
            _bind(bound.binding.bind_output, name, dtype, mine)
        if mine.nbytes < _STAYS_BELOW_BYTES:
            bound.outputs[name] = mine
        return mine


def _references_of_a_variable() -> int:
    mine = np.empty(0)
    return sys.getrefcount(mine)


_ALONE = _references_of_a_variable()
"""The `sys.getrefcount` of an array that a variable alone refers to; versions of Python differ."""


def _bind(bind: Any, name: str, dtype: str, array: Array) -> None:
    address = array.__array_interface__["data"][0]
    bind(name, "cpu", 0, BY_LONG[dtype].onnx if dtype == "bfloat16" else array.dtype, array.shape, address)


def _bind_states(module: Submodule, bound: _Slot, states: Mapping[str, Array]) -> None:
    for state in module.states:
        _bind(bound.binding.bind_input, state.input, state.type.dtype, states[state.name])
        _bind(bound.binding.bind_output, state.output, state.type.dtype, states[state.name])
    bound.states = states


def _check_interface(session: Any, module: Submodule, folder: Path) -> None:
    """The file has exactly the inputs and outputs that the build says."""
    states = module.states
    pairs = (
        ("inputs", session.get_inputs(), {*module.inputs, *(state.input for state in states)}),
        ("outputs", session.get_outputs(), {*module.outputs, *(state.output for state in states)}),
    )
    for what, nodes, expected in pairs:
        found = {node.name for node in nodes}
        if found != expected:
            difference = ", ".join(sorted(found ^ expected))
            message = f"its {what} are not those of the build: {difference}"
            raise BundleError(message, where=str(folder / module.file), hint=RECOMPILE)
