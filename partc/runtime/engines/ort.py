"""The engine over ONNX Runtime.

Every session has one binding per slot. A state is bound once per request, the same memory as input and as
output, so that the operators update it in place. Binding is slow beside a small step: every step begins with an
interpreter whose code the weights of the last one have pushed out of the caches. So small tensors have memory that
stays bound from step to step: inputs are copied there, and an output lies where the last one did, once nobody has that
any more. Large ones are bound where they lie, and copied by nobody.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError, RunError
from partc.format.dtypes import DTYPES, Array
from partc.runtime.engines.contract import States
from partc.runtime.engines.huge_pages import in_huge_pages
from partc.runtime.engines.memory import MappedFiles, release_mapped
from partc.runtime.manifest import RECOMPILE, EngineSpec, Manifest, Submodule
from partc.runtime.shell.cores import usable_cores

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
_STAYS_BELOW_BYTES = 1 << 20
_SMALL_THINGS_BYTES = 32 << 20
"""Room for what sessions have beside weights."""
_READS_LENT_FILES = (1, 31)
"""The first onnxruntime of which we know that it uses files in memory where they lie; older ones copy them."""


@dataclass(slots=True)
class _Slot:
    """What is bound for one slot."""

    binding: Any
    inputs: dict[str, Array] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    """The small ones."""
    is_fresh: bool = True
    """Whether the states must be bound again."""
    dims: Mapping[str, int] | None = None
    """Of the last step."""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Those of the module's outputs under `dims`."""


@dataclass(slots=True)
class _Loaded:
    module: Submodule
    session: Any
    slots: list[_Slot]


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
        self._files, stored = _map_weights(manifest, folder)
        # MatMulNBits packs 4 bits each and a scale for 32 of them into 6/5 of that, all others into less.
        with in_huge_pages(stored * 6 // 5 + _SMALL_THINGS_BYTES), self._files.released():
            for module in manifest.submodules.values():
                session = _session(manifest.engine, folder, module, shares_arena, self._files)
                bound = [_Slot(session.io_binding()) for _ in slots]
                self._loaded[module.name] = _Loaded(module, session, bound)
                _check_interface(session, module, folder)
        release_mapped(folder)

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        """See `Engine`."""
        self._states.reset(slot, dims)
        for loaded in self._loaded.values():
            loaded.slots[slot].is_fresh = True

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        """See `Engine`."""
        loaded = self._loaded[submodule]
        bound = loaded.slots[slot]
        if bound.is_fresh:
            self._bind_states(loaded.module, bound, slot)
        for name, array in zip(loaded.module.inputs, inputs, strict=True):
            self._input(bound, name, array)
        if dims != bound.dims:
            bound.dims = dict(dims)
            bound.shapes = [self._types[name].sizes(dims) for name in loaded.module.outputs]
        pairs = zip(loaded.module.outputs, bound.shapes, strict=True)
        outputs = [self._output(bound, name, shape) for name, shape in pairs]
        try:
            loaded.session.run_with_iobinding(bound.binding)
        except Exception as error:
            message = f"{submodule} failed in onnxruntime: {error}"
            raise RunError(message, where=loaded.module.file, hint=RECOMPILE) from error
        return outputs

    def _bind_states(self, module: Submodule, bound: _Slot, slot: int) -> None:
        views = self._states.of(slot)
        for state in module.states:
            _bind(bound.binding.bind_input, state.input, state.type.dtype, views[state.name])
            _bind(bound.binding.bind_output, state.output, state.type.dtype, views[state.name])
        bound.is_fresh = False

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
"""What `sys.getrefcount` says of an array that a variable alone refers to; versions of Python differ."""


def _bind(bind: Any, name: str, dtype: str, array: Array) -> None:
    address = array.__array_interface__["data"][0]
    bind(name, "cpu", 0, _ONNX_TYPES[dtype] if dtype == "bfloat16" else array.dtype, array.shape, address)


def _map_weights(manifest: Manifest, folder: Path) -> tuple[MappedFiles, int]:
    """What sessions read from mappings of this process, nothing where they make their own; and the bytes of all files.

    Raises:
        BundleError: a file is not there, or is empty.
    """
    paths = {folder / file for module in manifest.submodules.values() for file in module.weights}
    lends = manifest.engine.provider == "cpu" and _reads_lent_files()
    try:
        return MappedFiles(paths if lends else ()), sum(path.stat().st_size for path in paths)
    except (OSError, ValueError) as error:
        raise BundleError(f"cannot map the weights: {error}", where=str(folder), hint=RECOMPILE) from error


def _reads_lent_files() -> bool:
    try:
        import onnxruntime
    except ImportError:
        return False
    major, minor, *_ = onnxruntime.__version__.split(".")
    return (int(major), int(minor)) >= _READS_LENT_FILES


def _session(
    engine: EngineSpec, folder: Path, module: Submodule, shares_arena: bool, files: MappedFiles
) -> Any:
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
    # ONNX names files as seen from where the graph lies.
    place = (folder / module.file).parent
    paths = [folder / name for name in module.weights]
    lent = {os.path.relpath(path, place): files.of[path] for path in paths if path in files.of}
    if lent:
        sizes = [len(data) for data in lent.values()]
        options.add_external_initializers_from_files_in_memory([*lent], [*lent.values()], sizes)
        options.add_session_config_entry("session.use_external_initializer_file_buffers_directly", "1")
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
