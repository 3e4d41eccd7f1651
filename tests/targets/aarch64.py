"""Libraries for aarch64, run in an emulator on whatever machine this is."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tests.targets.numpy_attention import Array

ROOT = Path(__file__).parents[2]
COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64-static"
SYSTEM = "/usr/aarch64-linux-gnu"
"""The folder of Debian's cross compiler that has the C library of aarch64."""
RUNTIME = ("libtvm_ffi.so", "libtvm_runtime.so")

_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
"""DLPack's code of a type → numpy's."""


def missing_tools() -> list[str]:
    """The packages to install; see .ci/run."""
    tools = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    folder = os.environ.get("TVM_AARCH64", "")
    found = folder and all((Path(folder) / name).is_file() for name in RUNTIME)
    return tools if found else [*tools, f"TVM_AARCH64 with {' and '.join(RUNTIME)} for aarch64"]


@dataclass(frozen=True)
class Emulator:
    """Compiles programs for aarch64, and runs them here."""

    runtime: Path
    """Folder of TVM's libraries for aarch64."""
    scratch: Path

    def compile(self, source: Path) -> Path:
        """A program that uses TVM's runtime."""
        import tvm_ffi

        program = self.scratch / source.stem
        folders = [*tvm_ffi.libinfo.include_paths(), str(ROOT / "examples/embed")]
        options = ["-std=c++17", "-O1", *(f"-I{folder}" for folder in folders), f"-L{self.runtime}"]
        libraries = ["-Wl,--no-as-needed", "-ltvm_ffi", "-ltvm_runtime"]
        _output([COMPILER, *options, str(source), "-o", str(program), *libraries])
        return program

    def run(self, program: Path, *words: str) -> str:
        """The output of a program."""
        variables = [f"LD_LIBRARY_PATH={self.runtime}", "TVM_NUM_THREADS=1"]
        set_all = [word for variable in variables for word in ("-E", variable)]
        return _output([EMULATOR, "-L", SYSTEM, *set_all, str(program), *words])

    def call(self, program: Path, library: Path, function: str, arguments: Sequence[Array]) -> list[Array]:
        """The outputs of a function by the program `call_function`, then its arguments as it left them."""
        given, results = self.scratch / "arguments.safetensors", self.scratch / "results"
        save_file({str(n): np.ascontiguousarray(array) for n, array in enumerate(arguments)}, given)
        self.run(program, str(library.resolve()), function, str(given), str(results))
        return list(_tensors(results.read_bytes()))


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def _tensors(data: bytes) -> Iterator[Array]:
    start = 0
    while start < len(data):
        code, bits, axes = (int(number) for number in np.frombuffer(data, np.int64, 3, start))
        shape = tuple(int(size) for size in np.frombuffer(data, np.int64, axes, start + 24))
        dtype = np.dtype(f"{_KINDS[code]}{bits // 8}")
        start += 24 + 8 * axes
        yield np.frombuffer(data, dtype, int(np.prod(shape)), start).reshape(shape)
        start += int(np.prod(shape)) * dtype.itemsize
