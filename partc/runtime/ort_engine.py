"""The engine over ONNX Runtime.

Every session has one binding per slot. A state is bound once per request, the same memory as input and as
output, so that the operators update it in place; inputs are bound where they lie (the frame that they arrived
in, as a rule), outputs to memory of exactly their size. No tensor is copied by the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError, RunError
from partc.runtime.dtypes import DTYPES, Array
from partc.runtime.engine import States
from partc.runtime.huge_pages import use_huge_pages
from partc.runtime.manifest import RECOMPILE, EngineSpec, Manifest, Submodule
from partc.runtime.memory import release_mapped
from partc.runtime.processor import usable_cores

_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_ONNX_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}


@dataclass(slots=True)
class _Loaded:
    module: Submodule
    session: Any
    bindings: list[Any]
    fresh: list[bool]
    """Per slot: whether the states must be bound again."""


class OrtEngine:
    """Sub-modules as ONNX files."""

    def __init__(self, manifest: Manifest, folder: Path) -> None:
        """Load every sub-module and allocate every state.

        Raises:
            BundleError: onnxruntime is not installed, or cannot read a file.
        """
        self._types = manifest.types
        self._states = States(manifest)
        slots = range(manifest.model.max_requests)
        self._loaded: dict[str, _Loaded] = {}
        shares_arena = len(manifest.submodules) > 1
        for module in manifest.submodules.values():
            session = _session(manifest.engine, folder, module, shares_arena)
            bindings = [session.io_binding() for _ in slots]
            self._loaded[module.name] = _Loaded(module, session, bindings, [True for _ in slots])
            _check_interface(session, module, folder)
        use_huge_pages()
        release_mapped(folder)

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`."""
        self._states.reset(slot, dims)
        for loaded in self._loaded.values():
            loaded.fresh[slot] = True

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        loaded = self._loaded[submodule]
        binding = loaded.bindings[slot]
        if loaded.fresh[slot]:
            self._bind_states(loaded, slot)
        held = [np.ascontiguousarray(array) for array in inputs]
        for name, array in zip(loaded.module.inputs, held, strict=True):
            _bind(binding.bind_input, name, self._types[name].dtype, array)
        outputs = [self._output(binding, name, dims) for name in loaded.module.outputs]
        try:
            loaded.session.run_with_iobinding(binding)
        except Exception as error:
            message = f"{submodule} failed in onnxruntime: {error}"
            raise RunError(message, where=loaded.module.file, hint=RECOMPILE) from error
        return outputs

    def _bind_states(self, loaded: _Loaded, slot: int) -> None:
        views = self._states.of(slot)
        for state in loaded.module.states:
            _bind(loaded.bindings[slot].bind_input, state.input, state.type.dtype, views[state.name])
            _bind(loaded.bindings[slot].bind_output, state.output, state.type.dtype, views[state.name])
        loaded.fresh[slot] = False

    def _output(self, binding: Any, name: str, dims: Mapping[str, int]) -> Array:
        declared = self._types[name]
        array = np.empty(declared.sizes(dims), DTYPES[declared.dtype])
        _bind(binding.bind_output, name, declared.dtype, array)
        return array


def _bind(bind: Any, name: str, dtype: str, array: Array) -> None:
    address = array.__array_interface__["data"][0]
    bind(name, "cpu", 0, _ONNX_TYPES[dtype] if dtype == "bfloat16" else array.dtype, array.shape, address)


def _session(engine: EngineSpec, folder: Path, module: Submodule, shares_arena: bool) -> Any:
    try:
        import onnxruntime
    except ImportError:
        hint = "pip install 'partc[ort]'"
        raise BundleError("this bundle needs onnxruntime, which is not installed", hint=hint) from None
    options = onnxruntime.SessionOptions()
    # Left to itself, onnxruntime takes cores that this process may not use, and binds its threads to them.
    options.intra_op_num_threads = engine.threads or usable_cores()
    options.log_severity_level = 3
    # Threads spin while a step is computed, but not until the next one comes: that is a trip around the ring away, and
    # runners that share cores (a ring on one machine) would take them from each other.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if shares_arena:
        _register_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
    for key, value in engine.options.items():
        options.add_session_config_entry(str(key), str(value))
    provider = _PROVIDERS.get(engine.provider)
    if provider not in onnxruntime.get_available_providers():
        hint = "compile for another provider, or install the onnxruntime that has it"
        raise BundleError(
            f"this onnxruntime has no provider {engine.provider!r}", where="engine.provider", hint=hint
        )
    behind = [_PROVIDERS["cuda"]] if engine.provider == "tensorrt" else []  # for what TensorRT does not parse
    providers = list(dict.fromkeys((provider, *behind, _PROVIDERS["cpu"])))
    try:
        return onnxruntime.InferenceSession(str(folder / module.file), options, providers=providers)
    except Exception as error:
        message = f"onnxruntime cannot load it: {error}"
        raise BundleError(message, where=str(folder / module.file), hint=RECOMPILE) from error


@cache
def _register_arena() -> None:
    """One pool of memory for the activations of all sessions of this process.

    A session of its own keeps what its largest step took, though only one runs at a time: a device with several
    sub-modules would hold the sum of their peaks, where the plan counts the largest.
    """
    import onnxruntime as ort

    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(place, ort.OrtArenaCfg({}))


def _check_interface(session: Any, module: Submodule, folder: Path) -> None:
    """The file has exactly the inputs and outputs that the manifest says."""
    states = module.states
    pairs = (
        ("inputs", session.get_inputs(), {*module.inputs, *(state.input for state in states)}),
        ("outputs", session.get_outputs(), {*module.outputs, *(state.output for state in states)}),
    )
    for what, nodes, expected in pairs:
        found = {node.name for node in nodes}
        if found != expected:
            difference = ", ".join(sorted(found ^ expected))
            message = f"its {what} are not those of the manifest: {difference}"
            raise BundleError(message, where=str(folder / module.file), hint=RECOMPILE)
