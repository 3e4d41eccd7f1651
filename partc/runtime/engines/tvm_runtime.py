"""TVM's runtime in this process: found, loaded without the compiler, and given one library.

Needs the packages apache-tvm-ffi and, for its libtvm_runtime alone, apache-tvm; of the latter nothing is imported.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partc.errors import BundleError
from partc.format.build import EngineSpec, TvmOptions
from partc.format.files import verify_file
from partc.format.reading import RECOMPILE
from partc.format.role import Role
from partc.runtime.cores import architecture, processor_features
from partc.runtime.engines.tvm_memory import Memory

_CPU, _CUDA, _POOLED = 1, 2, 2
"""DLPack's numbers of devices, and TVM's of the allocator."""
_ALL_CORES = 1
"""TVM's number of the mode in which threads are not told where to run."""
_SPINS = 500
"""Rounds in which a thread without work looks for some before it sleeps: the time between kernels, not steps."""
_INSTALL = "pip install 'partc[tvm]'"
_FOLDER = "PARTC_TVM_LIBRARIES"


def start_runtime(engine: EngineSpec) -> Memory:
    """Load TVM's runtime; the memory that code computes in.

    Raises:
        BundleError: it is not installed.
    """
    on_gpu = engine.provider == "cuda"
    # Runners that share a machine would all bind themselves to its first cores.
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", str(_SPINS))
    os.environ["TVM_NUM_THREADS"] = str(engine.threads or _usual_threads())
    ffi = _import_ffi()
    for name in ("libtvm_runtime.so", *(("libtvm_runtime_cuda.so",) if on_gpu else ())):
        try:
            ctypes.CDLL(str(_find(name)), ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise BundleError(f"{name} cannot be loaded: {error}", hint=_remedy()) from error
    return Memory(ffi, on_gpu)


class Threads:
    """TVM's threads, of which every thread that calls its code has its own."""

    def __init__(self, engine: EngineSpec) -> None:
        """Nothing is started before `begin`."""
        self._count = engine.threads or _usual_threads()
        self._configure = _import_ffi().get_global_func("runtime.config_threadpool")
        self._caller = 0

    def begin(self) -> None:
        """Give the calling thread as many threads as the engine shall have."""
        if self._caller != threading.get_ident():
            self._caller = threading.get_ident()
            self._configure(_ALL_CORES, self._count)


def _usual_threads() -> int:
    """The first number of OMP_NUM_THREADS, which may be a list; else as many as this process has cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(asked) if asked.isdecimal() and int(asked) else len(os.sched_getaffinity(0))


def open_library(role: Role, folder: Path, name: str) -> Any:
    """TVM's virtual machine with the functions of the file `name`, after `start_runtime`.

    Raises:
        BundleError: it is not the file that the build describes, or for another kind of machine.
    """
    assert role.engine.tvm is not None
    path = folder / name
    # Code runs as soon as a library is loaded, so it is checked here, whoever checked the folder before.
    verify_file(folder, name, role.files[name])
    _check_machine(role.engine.tvm, path)
    gpu = [(_CUDA, 0, _POOLED)] if role.engine.provider == "cuda" else []
    try:
        machine = _import_ffi().load_module(str(path))["vm_load_executable"]()
        machine["vm_initialization"](*itertools.chain(*gpu, (_CPU, 0, _POOLED)))
    except Exception as error:
        raise BundleError(f"TVM cannot load it: {error}", where=str(path), hint=RECOMPILE) from error
    return machine


def _check_machine(options: TvmOptions, path: Path) -> None:
    """Whether the library is for a processor like this one; code for another would end the process."""
    here = architecture()
    if options.platform.partition("-")[0] != here:
        message = f"the library is for {options.platform}, and this machine is {here}"
        hint = f"copy the folder to the device that it is for, or compile with `arch: {here}`"
        raise BundleError(message, where=str(path), hint=hint)
    features = processor_features()
    missing = [name for name in options.needs if features and name not in features]
    if missing:
        message = f"the library uses {', '.join(missing)}, which this processor has not"
        hint = "compile with other `features` in the options of the device, or with `target: ort`"
        raise BundleError(message, where=str(path), hint=hint)


def _import_ffi() -> Any:
    """The package tvm_ffi. It would import torch where that is installed: 4 s and 190 MB, of no use here."""
    hides_torch = "torch" not in sys.modules and "tvm_ffi" not in sys.modules
    if hides_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tvm_ffi
    except ImportError as error:
        message = f"this bundle needs TVM's runtime, which is not installed: {error}"
        raise BundleError(message, hint=_INSTALL) from None
    finally:
        if hides_torch:
            del sys.modules["torch"]
    return tvm_ffi


def _find(name: str) -> Path:
    """The library of that name in the folder `PARTC_TVM_LIBRARIES`, else in the package tvm."""
    found = importlib.util.find_spec("tvm")
    package = [Path(place) / "lib" for place in (found.submodule_search_locations or ())] if found else []
    named = os.environ.get(_FOLDER)
    folders: Sequence[Path] = [Path(named)] if named else package
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise BundleError(f"this bundle needs TVM's {name}, which is not found", hint=_remedy())


def _remedy() -> str:
    if named := os.environ.get(_FOLDER):
        return f"{_FOLDER} is {named}: put the library of this machine's TVM there, or unset it"
    return f"{_INSTALL}, or set {_FOLDER} to the folder that has it"
