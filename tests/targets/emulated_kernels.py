"""Single kernels for aarch64, called in an emulator on whatever machine this is."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from partc.format.dtypes import Array
from targets.tvm.linker import Linker, find_linker, link_objects
from targets.tvm.machine import Machine, machine_of
from tests.targets.aarch64 import COMPILER, EMULATOR, ROOT, SYSTEM

_CODES = {"i": 0, "u": 1, "f": 2}
"""numpy's kind of a type → DLPack's code."""
_LINE = 64


def call_emulated(kernel: Any, machine: Machine, arrays: tuple[Array, ...]) -> list[Array]:
    """The arrays after the PrimFunc `kernel`, compiled for `machine`, ran over them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = _library(kernel, machine, folder)
        memory = folder / "memory"
        memory.write_bytes(b"".join(_filled(array.tobytes()) for array in arrays))
        types = [f"{_CODES[a.dtype.kind]},{a.itemsize * 8},{','.join(map(str, a.shape))}" for a in arrays]
        _run([EMULATOR, "-L", SYSTEM, str(_program()), str(library), str(memory), *types])
        return _parts(memory.read_bytes(), arrays)


def _library(kernel: Any, machine: Machine, folder: Path) -> Path:
    import tvm

    made = tvm.compile(
        tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")}), target=machine.target()
    )
    made.mod.write_to_file(str(folder / "kernel.o"), "o")
    library = folder / "kernel.so"
    link_objects(_linker(machine.name), machine.platform, [str(folder / "kernel.o")], library)
    return library


@cache
def _linker(platform: str) -> Linker:
    return find_linker(machine_of("", platform, (), "cpu", ""))


@cache
def _program() -> Path:
    program = Path(tempfile.mkdtemp()) / "call_kernel"
    source = ROOT / "tests/targets/call_kernel.cpp"
    _run([COMPILER, "-std=c++17", "-O1", "-rdynamic", str(source), "-o", str(program), "-ldl"])
    return program


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout


def _filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % _LINE)


def _parts(memory: bytes, arrays: tuple[Array, ...]) -> list[Array]:
    found, at = [], 0
    for array in arrays:
        found.append(np.frombuffer(memory, array.dtype, array.size, at).reshape(array.shape))
        at += len(_filled(array.tobytes()))
    return found
