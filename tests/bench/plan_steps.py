"""A step of a kernel plan beside the same kernels under TVM's virtual machine, in turns in one process, one thread.

    python -m tests.bench.plan_steps --folder /tmp/plan_steps [--checkpoint examples/storyteller] [--rounds 30]

Both have the same inputs, states and weights in the same memory; a step is the call, and its outputs as arrays. Prints
for weights of float32 and of int4 the least and the median processor time of a decode step, and whether all logits and
states had the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from partc.cli.main import run
from partc.format.dtypes import Array
from partc.format.role import load_role
from partc.runtime.engines.contract import load_engine
from partc.runtime.engines.entries import function_name
from partc.runtime.engines.plan import PlanEngine
from tests.bench.speed.machine import Watch
from tests.targets.virtual_machine import MachineFrame, compiling_for_machine, open_machine

STEPS, PROMPT = 60, (1, 40, 77, 130, 25, 300, 12)
WEIGHTS = {"float32": "none", "int4": "int4"}
"""Name → `quantize` of model.yaml."""
MODEL = "task: text-generation\ndtype: float32\nmax_sequence: 256\nmax_batch: 1\nmax_requests: 1\n"
DEVICE = (
    "target: tvm, arch: host, threads: 1, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 8 GB, "
    "options: {chunks: [16]}"
)
Call = Callable[[], list[Array]]


def main() -> None:
    """Make what is missing, measure, print JSON."""
    parser = argparse.ArgumentParser(description="A kernel plan beside TVM's virtual machine.")
    parser.add_argument("--folder", type=Path, required=True, help="where the builds lie, and are made")
    parser.add_argument("--checkpoint", type=Path, default=Path("examples/storyteller"), help="of a model")
    parser.add_argument("--rounds", type=int, default=30, help=f"times {STEPS} steps of each")
    options = parser.parse_args()
    builds = {name: built(options.folder / name, options.checkpoint, how) for name, how in WEIGHTS.items()}
    watch = Watch()
    report: dict[str, Any] = {name: compared(*pair, options.rounds) for name, pair in builds.items()}
    report["machine"] = watch.machine().sentence
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


def built(folder: Path, checkpoint: Path, quantize: str) -> tuple[Path, Path]:
    """The device's folders of a build with a plan and of one for the virtual machine, made where they are missing."""
    model, devices = folder / "model.yaml", folder / "devices.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    model.write_text(f"model: {checkpoint.resolve()}\n{MODEL}quantize: {quantize}\n")
    devices.write_text(f"source: here\ndevices:\n  here: {{{DEVICE}}}\n")
    for kind in ("planned", "machine"):
        if (folder / kind).is_dir():
            continue
        with compiling_for_machine() if kind == "machine" else nullcontext():
            assert run(["compile", str(model), "--target", str(devices), "-o", str(folder / kind)]) == 0
    return folder / "planned" / "devices" / "here", folder / "machine" / "devices" / "here"


def compared(planned: Path, machine: Path, rounds: int) -> dict[str, Any]:
    """Times of both, taken in turns, their ratios, and whether they computed the same."""
    engine = load_engine(load_role(planned), planned)
    assert isinstance(engine, PlanEngine)
    functions = open_machine(machine / "library.so")
    kinds = {"plan": Generation(engine, None), "virtual machine": Generation(engine, functions)}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    bits = set()
    for _ in range(rounds):
        for kind, generation in kinds.items():
            spent, digest = generation.run()
            times[kind] += spent
            bits.add(digest)
    report: dict[str, Any] = {
        kind: {"min_us": min(found) * 1e6, "median_us": statistics.median(found) * 1e6}
        for kind, found in times.items()
    }
    ratios = {key: report["virtual machine"][key] / report["plan"][key] for key in ("min_us", "median_us")}
    return {**report, "ratios": ratios, "same_bits": len(bits) == 1}


class Generation:
    """A prompt and tokens after it, by the functions of a plan or those of a virtual machine."""

    def __init__(self, engine: PlanEngine, functions: Any) -> None:
        self._engine = engine
        self._module = next(iter(engine._modules.values()))
        self._functions = functions
        self._calls: dict[tuple[int, int], Call] = {}

    def run(self) -> tuple[list[float], bytes]:
        """Processor time of each decode step, seconds, and a digest of all outputs and states."""
        self._engine.reset(0, {"batch": 1, "sequence": len(PROMPT)})
        ids, position, spent, digest = list(PROMPT), 0, [], hashlib.sha256()
        for _ in range(STEPS + 1):
            call = self._prepare(ids, position)
            began = time.thread_time()
            outputs = call()
            spent.append(time.thread_time() - began)
            for output in outputs:
                digest.update(output.tobytes())
            position += len(ids)
            ids = [int(outputs[0].reshape(-1).argmax())]
        for array in self._engine._states.of(self._module.name, 0).values():
            digest.update(array.tobytes())
        return spent[1:], digest.digest()

    def _prepare(self, ids: list[int], position: int) -> Call:
        """The call of a step, its inputs written."""
        module, sizes = self._module, {"batch": 1, "sequence": len(ids)}
        span = self._engine._entries.of(module, sizes)
        key = (module.name, 0, span.entry)
        call = self._engine._calls.get(key) or self._engine._prepare(module, 0, span.entry)
        given = {"position": [position], "length": [len(ids)], "index": list(range(len(ids)))}
        values = [np.array(given.get(name, [ids]), np.int64) for name in module.inputs]
        for part, buffer, value in zip(span.inputs, call.inputs, values, strict=True):
            part.fill(buffer, value)
        if span.entry not in self._calls:
            self._calls[span.entry] = self._call_of(call.frame, span.entry)
        return self._calls[span.entry]

    def _call_of(self, frame: Any, entry: tuple[int, int]) -> Call:
        if self._functions is not None:
            frame = MachineFrame(self._functions[function_name(self._module.name, entry)], frame)

        def call() -> list[Array]:
            frame.run()
            return [np.array(output) for output in frame.outputs]

        return call


if __name__ == "__main__":
    main()
