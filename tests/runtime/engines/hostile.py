"""Runs every kernel of a library on numbers that no plan should hand it, in a process of its own.

    python -m tests.runtime.engines.hostile LIBRARY KERNELS

Tensors lie between pages that nobody may touch, so that a kernel that takes such a number for a place ends the process.
Prints the name of every kernel before it runs.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from partc.format.dtypes import DTYPES, Array
from partc.format.kernel_plan import KernelCall, KernelFunction, KernelPlan, KernelTensor, Place
from partc.format.kernel_plan_rules import load_kernel_plan
from partc.runtime.engines.plan_frame import Frame
from partc.runtime.engines.plan_library import open_code
from tests.runtime.engines.damaged import guarded_zeros

_WORDS = (-1, -(2**63), 2**63 - 1, 2**31 - 1, 2**31, -(2**31), 2**32 + 3, 4096, 17, 0)
"""Places before, behind and far from every tensor, and some that 32 bits turn into others."""
_FLOATS = (np.nan, np.inf, -np.inf, 3e38, -2e9, 1e-40, 0)
"""Numbers that have no order, that no whole number has, or whose inverse is infinite."""


def check_kernels(folder: Path) -> None:
    """Assert that the kernels of the library in a device's folder keep to their tensors, whatever is in these."""
    command = [sys.executable, "-m", "tests.runtime.engines.hostile", str(folder / "library.so")]
    done = subprocess.run(
        [*command, str(folder / "kernels.json")], capture_output=True, text=True, timeout=300, check=False
    )
    last = done.stdout.splitlines()[-1:] or [done.stderr]
    assert done.returncode == 0, f"{last[0]} leaves its tensors"


def main(library: Path, kernels: Path) -> None:
    plan = load_kernel_plan(kernels)
    code, rng = open_code(library, library.read_bytes()), np.random.default_rng(7)
    for name, kernel in plan.kernels.items():
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        arrays = [guarded_zeros(kind.shape, DTYPES[kind.dtype]) for kind in kernel.parameters]
        frame = Frame(_library(plan, code, name), _call_of(plan, name), arrays)
        for word in _WORDS:
            for kind, array in zip(kernel.parameters, arrays, strict=True):
                _fill(array, kind, word, rng)
            frame.run()


def _library(plan: KernelPlan, code: ctypes.CDLL, kernel: str) -> Any:
    """As much of a `Library` as a frame takes."""
    address = ctypes.cast(getattr(code, f"__tvm_ffi_{kernel}"), ctypes.c_void_p).value
    return SimpleNamespace(plan=plan, kernels={kernel: address}, run=code.partc_run)


def _call_of(plan: KernelPlan, kernel: str) -> KernelFunction:
    parameters = plan.kernels[kernel].parameters
    places = tuple(Place("parameter", number) for number in range(len(parameters)))
    kinds = tuple(KernelTensor(kind.dtype, kind.shape) for kind in parameters)
    return KernelFunction(kinds, 0, (KernelCall(kernel, places),), ())


def _fill(array: Array, kind: KernelTensor, word: int, rng: np.random.Generator) -> None:
    """Every other whole number is `word`, as far as it has room there, and the rest any of the words.

    Half of the floats are odd ones, and truth values are any byte.
    """
    if array.dtype.kind in "iu":
        whole = rng.choice(np.array(_WORDS), array.shape).reshape(-1)
        whole[::2] = word
        array[...] = whole.reshape(array.shape).astype(array.dtype)
    elif kind.dtype == "bool":
        array.view(np.uint8)[...] = rng.choice((0, 1, 2, 255), array.shape)
    else:
        with np.errstate(over="ignore"):
            odd = rng.choice(_FLOATS, array.shape).astype(array.dtype)
        array[...] = np.where(rng.random(array.shape) < 0.5, odd, rng.standard_normal(array.shape))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
