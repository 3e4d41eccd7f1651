"""Libraries for aarch64, run in an emulator on whatever machine this is."""

from __future__ import annotations

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

_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
"""DLPack's code of a type → numpy's."""


def missing_tools() -> list[str]:
    """The packages to install; see .ci/run."""
    return [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]


@dataclass(frozen=True)
class Emulator:
    """Compiles programs for aarch64, and runs them here."""

    scratch: Path

    def compile(self, source: Path) -> Path:
        """A program that uses libraries of the tvm target, compiled once."""
        program = self.scratch / source.stem
        if not program.exists():
            options = ["-std=c++17", "-O1", f"-I{ROOT / 'examples/embed'}"]
            _output([COMPILER, *options, str(source), "-o", str(program), "-ldl"])
        return program

    def run(self, program: Path, *words: str) -> str:
        """The output of a program."""
        return _output([EMULATOR, "-L", SYSTEM, str(program), *words])

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
