"""Runs damaged kernel plans, in a process of its own: `python -m tests.runtime.engines.damaged FOLDER COUNT SEED`.

All memory that a step is given ends where a page begins that nobody may touch, and begins behind another one: a kernel
that reads or writes elsewhere ends the process. Prints how many plans were read, and how many of these ran to the end.
"""

from __future__ import annotations

import copy
import ctypes
import json
import math
import mmap
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError, RunError
from partc.format.build import Submodule
from partc.format.dtypes import BY_SHORT, DTYPES, Array
from partc.format.kernel_plan import KERNELS_FILE, KernelPlan, KernelTensor
from partc.format.kernel_plan_rules import parse_kernel_plan
from partc.format.role import load_role
from partc.format.safetensors import Entry
from partc.runtime.engines import plan, plan_library, states
from partc.runtime.engines.entries import function_name
from partc.runtime.engines.mapped_weights import WeightMappings
from partc.runtime.engines.plan import PlanEngine
from partc.runtime.engines.plan_checks import check_function
from partc.runtime.engines.plan_library import Library
from tests.bundle.tiny import VOCAB
from tests.format.mutations import mutate

_SYSTEM = ctypes.CDLL(None)
_NO_ACCESS = 0
_kept: list[Array] = []


def guarded_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Zeros at an aligned address, between two pages that nobody may touch; for good."""
    size = math.prod(shape) * dtype.itemsize
    room = -(-size // 64) * 64
    inner = max(1, -(-room // mmap.PAGESIZE)) * mmap.PAGESIZE
    pages = mmap.mmap(-1, inner + 2 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block = np.frombuffer(pages, np.uint8)
    _kept.append(block)
    for guard in (0, mmap.PAGESIZE + inner):
        address = ctypes.c_void_p(block.ctypes.data + guard)
        assert _SYSTEM.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), _NO_ACCESS) == 0
    end = mmap.PAGESIZE + inner
    return block[end - room : end - room + size].view(dtype).reshape(shape)


class GuardedZeros:
    """Stands in for `LazyZeros`."""

    def __init__(self, size: int) -> None:
        self.bytes = guarded_zeros((size,), np.dtype(np.uint8))

    def clear(self) -> None:
        """Zero all of it."""
        self.bytes.fill(0)


class GuardedWeights(WeightMappings):
    """Stands in for `WeightMappings`."""

    def map(self, path: Path, entries: Sequence[Entry]) -> list[Array]:
        """Copies, each with its guards."""
        read = super().map(path, entries)
        arrays = [guarded_zeros(array.shape, array.dtype) for array in read]
        for array, source in zip(arrays, read, strict=True):
            array[...] = source
        return arrays


def engine_between_guards(folder: Path) -> PlanEngine:
    """The engine of a device's folder, with all of its memory guarded."""
    for module in (plan, plan_library):
        module.aligned_zeros = guarded_zeros  # type: ignore[attr-defined]
    plan.WeightMappings = GuardedWeights  # type: ignore[attr-defined]
    states.LazyZeros = GuardedZeros  # type: ignore[misc, assignment]
    engine = PlanEngine(load_role(folder), folder)
    for submodule in load_role(folder).running:
        engine.load(submodule)
    return engine


def give(engine: PlanEngine, library: Library, found: KernelPlan) -> None:
    """Let the library have another plan, as if it had been opened with it."""
    library.kernels = library._addresses(found)
    library.plan = found
    library.constants = [plan_library._aligned(constant) for constant in found.constants]
    library.arena = guarded_zeros((found.arena_bytes,), np.dtype(np.uint8))
    engine._calls.clear()


def run(engine: PlanEngine, module: Submodule) -> None:
    """A prompt and a token, as far as there are functions for them; ids are those of the last token there is."""
    engine.reset(0, {"batch": 1, "sequence": 4})
    for position, rows in ((0, 4), (4, 1)):
        dims = {"batch": 1, "sequence": rows}
        given = {
            "position": [position],
            "length": [rows],
            "index": range(rows),
            "input_ids": [[VOCAB - 1] * rows],
        }
        kinds = {name: engine._role.types[name] for name in module.inputs}
        ones = {name: np.ones(kind.sizes(dims), DTYPES[kind.dtype]) for name, kind in kinds.items()}
        inputs = [np.array(given[name]) if name in given else ones[name] for name in module.inputs]
        engine.run(module.name, 0, inputs, dims)


def main(folder: Path, count: int, seed: int) -> None:
    engine, rng = engine_between_guards(folder), random.Random(seed)
    (module,), (library,) = engine._modules.values(), engine._libraries.values()
    whole = json.loads((folder / KERNELS_FILE).read_text())
    entries, names = [(1, 1), (1, 4)], engine._functions[module.name].weights
    types = [KernelTensor(BY_SHORT[e.dtype].long, e.shape) for e in engine._weights.entries(module, names)]
    few = [function_name(module.name, entry) for entry in entries]
    whole["functions"] = {name: whole["functions"][name] for name in few}
    run(engine, module)
    accepted = ran = 0
    for _ in range(count):
        data = copy.deepcopy(whole)
        for _ in range(rng.randint(1, 2)):
            mutate(data, rng)
        try:
            give(engine, library, parse_kernel_plan(data, KERNELS_FILE))
            for entry in entries:
                sizes = engine._entries.sizes(module, entry)
                check_function(engine._role, module, sizes, entry, library.plan, types, Path(KERNELS_FILE))
            accepted += 1
            run(engine, module)
            ran += 1
        except (BundleError, RunError):
            continue
    sys.stdout.write(f"{accepted} {ran}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
