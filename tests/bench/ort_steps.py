"""What a step of engine `ort` takes beside onnxruntime's own work: in Python, and in the native runner.

    python -m tests.bench.ort_steps --folder /tmp/ort_steps [--checkpoint examples/storyteller] [--steps 2000]

Both run decode steps of one token by one thread, and calls of onnxruntime with everything bound, in turns. Prints the
least and the median time of each, and by how much the least step is longer than the least call. Needs the native
runner's programs (`native/README.md`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from partc.cli.main import run
from partc.format.build import TensorType
from partc.format.dtypes import DTYPES, Array
from partc.format.role import load_role
from partc.runtime.engines.contract import load_engine
from partc.runtime.engines.ort import OrtEngine
from partc.runtime.engines.ort_library import VARIABLE, library_path
from tests.bench.speed.machine import Watch
from tests.native.compiled import compile_native

MODEL = "task: text-generation\ndtype: float32\nmax_sequence: 256\nmax_batch: 1\nmax_requests: 1\n"
DEVICE = "target: ort, threads: 1, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 8 GB"
Times = list[tuple[float, float]]
"""Seconds of a step, and of a call of onnxruntime."""


def main() -> None:
    """Make what is missing, measure, print JSON."""
    parser = argparse.ArgumentParser(description="What engine `ort` adds to a step.")
    parser.add_argument("--folder", type=Path, required=True, help="where the build lies, and is made")
    parser.add_argument("--checkpoint", type=Path, default=Path("examples/storyteller"), help="of a model")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    place = built(options.folder, options.checkpoint)
    watch = Watch()
    report: dict[str, Any] = {
        "python": summary(in_python(place, options.steps)),
        "native": summary(in_native(place, options.steps)),
        "machine": watch.machine().sentence,
    }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


def built(folder: Path, checkpoint: Path) -> Path:
    """The device's folder, made where it is missing."""
    if not (folder / "build").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        model, devices = folder / "model.yaml", folder / "devices.yaml"
        model.write_text(f"model: {checkpoint.resolve()}\n{MODEL}")
        devices.write_text(f"source: here\ndevices:\n  here: {{{DEVICE}}}\n")
        assert run(["compile", str(model), "--target", str(devices), "-o", str(folder / "build")]) == 0
    return folder / "build" / "devices" / "here"


def summary(times: Times) -> dict[str, float]:
    """Microseconds."""
    steps, calls = ([pair[i] * 1e6 for pair in times] for i in (0, 1))
    return {
        "step_min_us": min(steps),
        "step_median_us": statistics.median(steps),
        "onnxruntime_min_us": min(calls),
        "onnxruntime_median_us": statistics.median(calls),
        "added_us": min(steps) - min(calls),
    }


def in_python(place: Path, steps: int) -> Times:
    """Times of Python's engine."""
    role = load_role(place)
    engine = load_engine(role, place)
    assert isinstance(engine, OrtEngine)
    (held,) = engine._loaded.values()
    dims = {**role.dims, "batch": 1, "sequence": 1}
    engine.reset(0, dims)
    inputs = [drawn(name, role.types[name], dims) for name in held.module.inputs]
    step: Callable[[], object] = lambda: engine.run(held.module.name, 0, inputs, dims)  # noqa: E731
    alone: Callable[[], object] = lambda: held.session.inner.run_with_iobinding(held.slots[0].binding)  # noqa: E731
    return [(seconds(step), seconds(alone)) for _ in range(steps)]


def drawn(name: str, kind: TensorType, dims: dict[str, int]) -> Array:
    """Zeros, and for numbers of tokens ones."""
    return np.full(kind.sizes(dims), int(name == "length"), DTYPES[kind.dtype])


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_native(place: Path, steps: int) -> Times:
    """Times of the native engine."""
    command = [str(compile_native("dev") / "ort_steps"), str(place), str(steps)]
    env = {**os.environ, VARIABLE: str(library_path() or "")}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout
    return [(int(step) / 1e9, int(call) / 1e9) for step, call in map(str.split, printed.splitlines())]


if __name__ == "__main__":
    main()
