"""Sessions of onnxruntime: threads, weights where they are mapped, and how much memory activations take.

onnxruntime takes activations from an arena, which never gives memory back. Three settings keep it near what is alive at
a time, which is what plans count:

- Sessions share one arena, since one step runs at a time; else each keeps its own peak.
- The arena begins with one region that holds the activations of most models; only what is written takes memory. As it
  comes, it begins with 1 MiB and adds larger and larger regions, and no tensor lies in two of them.
- A free block is split for a smaller tensor. As it comes, the arena wastes up to 128 MiB, or half of the block.
- Every tensor has a block of its own until its last reader. As it comes, onnxruntime lets later tensors of the same
  size have the same block, which then stays taken in between (half as much again for a Llama), and packs all tensors
  of a known step into one block, beside those that the first step of the kind took one by one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from partc.errors import BundleError
from partc.extras import install_command
from partc.format.build import EngineSpec, Submodule
from partc.format.reading import RECOMPILE
from partc.runtime.engines.huge_pages import give_back, in_huge_pages
from partc.runtime.engines.memory import MappedFiles, release_mapped
from partc.runtime.processor import usable_cores

_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
_SMALL_THINGS_BYTES = 32 << 20
"""Room for what a session has beside weights."""
_READS_LENT_FILES = (1, 31)
"""The first onnxruntime of which we know that it uses files in memory where they lie; older ones copy them."""
_REGION_BYTES = 128 << 20
"""The arena's first region; its own notes take a 32nd of that."""
_SPLIT_BYTES = 1 << 20
"""A free block that is larger than a tensor by this much is split."""
_LARGE_BYTES = 8 << 20
"""Weights from which on all this pays: it costs 3 % of a step of 7 MB of weights (15 µs), and saves little there."""


class Session:
    """A session, and the mapped files that it reads its weights from."""

    def __init__(self, inner: Any, files: MappedFiles) -> None:
        self.inner = inner
        """onnxruntime's."""
        self.files = files
        """They must live as long as the session, which does not hold them."""


def check_provider(engine: EngineSpec) -> None:
    """Make sure that onnxruntime is there and has the provider.

    Raises:
        BundleError: says what to install.
    """
    onnxruntime = _import_onnxruntime()
    if _PROVIDERS.get(engine.provider) not in onnxruntime.get_available_providers():
        hint = "compile for another provider, or install the onnxruntime that has it"
        message = f"this onnxruntime has no provider {engine.provider!r}"
        raise BundleError(message, where="engine.provider", hint=hint)


def load_session(engine: EngineSpec, folder: Path, module: Submodule) -> Session:
    """Read a sub-module of the bundle `folder`.

    Raises:
        BundleError: a file is missing, or onnxruntime cannot read it.
    """
    files, stored = _map_weights(engine, folder, module)
    options = _options(engine, folder, module, files, stored)
    # For what TensorRT does not parse.
    behind = [_PROVIDERS["cuda"]] if engine.provider == "tensorrt" else []
    providers = list(dict.fromkeys((_PROVIDERS[engine.provider], *behind, _PROVIDERS["cpu"])))
    path = folder / module.file
    try:
        # MatMulNBits packs 4 bits each and a scale for 32 of them into 6/5 of that, all others into less.
        with in_huge_pages(stored * 6 // 5 + _SMALL_THINGS_BYTES), files.released():
            inner = _import_onnxruntime().InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise BundleError(f"onnxruntime cannot load it: {error}", where=str(path), hint=RECOMPILE) from error
    give_back()
    release_mapped(folder)
    return Session(inner, files)


def _options(engine: EngineSpec, folder: Path, module: Submodule, files: MappedFiles, stored: int) -> Any:
    options = _import_onnxruntime().SessionOptions()
    # Left to itself, onnxruntime takes cores that this process may not use, and binds its threads to them.
    options.intra_op_num_threads = engine.threads or usable_cores()
    options.log_severity_level = 3
    # Threads spin while a step is computed, but not until the next one comes: that is a trip around the ring away, and
    # runners that share cores (a ring on one machine) would take them from each other.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    _limit_memory(options, stored)
    _lend_files(options, folder, module, files)
    for key, value in engine.options.items():
        options.add_session_config_entry(str(key), str(value))
    return options


def _limit_memory(options: Any, stored: int) -> None:
    """See the top of the module; `stored` is the size of the weights in bytes."""
    is_large = stored >= _LARGE_BYTES
    _register_arena(_REGION_BYTES if is_large else _SPLIT_BYTES)
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.enable_mem_pattern = False
    options.enable_mem_reuse = not is_large


def _register_arena(first_bytes: int) -> None:
    """The arena of this process, once; its first session tells how it begins."""
    global _has_arena
    if _has_arena:
        return
    ort = _import_onnxruntime()
    place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    settings = {"initial_chunk_size_bytes": first_bytes, "max_dead_bytes_per_chunk": _SPLIT_BYTES}
    ort.create_and_register_allocator(place, ort.OrtArenaCfg(settings))
    _has_arena = True


_has_arena = False


def _lend_files(options: Any, folder: Path, module: Submodule, files: MappedFiles) -> None:
    """Let the session read weights where this process has mapped them."""
    # ONNX names files as seen from where the graph lies.
    place = (folder / module.file).parent
    paths = [folder / name for name in module.weights]
    lent = {os.path.relpath(path, place): files.of[path] for path in paths if path in files.of}
    if lent:
        sizes = [len(data) for data in lent.values()]
        options.add_external_initializers_from_files_in_memory([*lent], [*lent.values()], sizes)
        options.add_session_config_entry("session.use_external_initializer_file_buffers_directly", "1")


def _map_weights(engine: EngineSpec, folder: Path, module: Submodule) -> tuple[MappedFiles, int]:
    """The files that are lent to the session, none where it maps them by itself; and the size of all in bytes.

    Raises:
        BundleError: a file is not there, or is empty.
    """
    paths = [folder / file for file in dict.fromkeys(module.weights)]
    lends = engine.provider == "cpu" and _reads_lent_files()
    try:
        return MappedFiles(paths if lends else ()), sum(path.stat().st_size for path in paths)
    except (OSError, ValueError) as error:
        raise BundleError(f"cannot map the weights: {error}", where=str(folder), hint=RECOMPILE) from error


def _reads_lent_files() -> bool:
    major, minor, *_ = _import_onnxruntime().__version__.split(".")
    return (int(major), int(minor)) >= _READS_LENT_FILES


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        hint = install_command("ort")
        raise BundleError("this bundle needs onnxruntime, which is not installed", hint=hint) from None
    return onnxruntime
