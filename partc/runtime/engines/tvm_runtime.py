"""TVM's runtime for a GPU in this process: found, loaded without the compiler, and given one library.

Needs the packages apache-tvm-ffi and, for its runtime alone, apache-tvm; of the latter nothing is imported.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partc.errors import BundleError
from partc.extras import install_command
from partc.format.files import verify_file
from partc.format.reading import RECOMPILE
from partc.format.role import Role
from partc.runtime.engines.processor import check_processor
from partc.runtime.engines.tvm_memory import Memory

_CPU, _CUDA, _POOLED = 1, 2, 2
"""DLPack's numbers of devices, and TVM's of the allocator."""
_DEVICES = (_CUDA, 0, _POOLED, _CPU, 0, _POOLED)
"""The first GPU, then the processor."""
_LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_cuda.so")
_FOLDER = "PARTC_TVM_LIBRARIES"


def start_runtime() -> Memory:
    """Load TVM's runtime; the memory that code computes in.

    Raises:
        BundleError: it is not installed.
    """
    ffi = _import_ffi()
    for name in _LIBRARIES:
        try:
            ctypes.CDLL(str(_find(name)), ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise BundleError(f"{name} cannot be loaded: {error}", hint=_remedy()) from error
    return Memory(ffi)


def open_library(role: Role, folder: Path, name: str) -> Any:
    """TVM's virtual machine with the functions of the file `name`, after `start_runtime`.

    Raises:
        BundleError: it is not the file that the build describes, or for another kind of machine.
    """
    assert role.engine.library is not None
    path = folder / name
    # Code runs as soon as a library is loaded, so it is checked here, whoever checked the folder before.
    verify_file(folder, name, role.files[name])
    check_processor(role.engine.library, path)
    try:
        machine = _import_ffi().load_module(str(path))["vm_load_executable"]()
        machine["vm_initialization"](*_DEVICES)
    except Exception as error:
        raise BundleError(f"TVM cannot load it: {error}", where=str(path), hint=RECOMPILE) from error
    return machine


def _import_ffi() -> Any:
    """The package tvm_ffi. It would import torch where that is installed: 4 s and 190 MB, of no use here."""
    hides_torch = "torch" not in sys.modules and "tvm_ffi" not in sys.modules
    if hides_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tvm_ffi
    except ImportError as error:
        message = f"this bundle needs TVM's runtime, which is not installed: {error}"
        raise BundleError(message, hint=install_command("tvm")) from None
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
    return f"{install_command('tvm')}, or set {_FOLDER} to the folder that has it"
