"""The tvm target beside the ort target on this machine: random Llamas, float32, one and two threads.

    python -m tests.bench.tvm_speed --folder /tmp/bench [--models 110M,1.1B] [--threads 1,2] [--json]

Both engines take turns in one process, and with them a streaming read, so that what else runs on the machine hits all;
the median says what to expect and the minimum what is possible. One thread is timed by its own clock, which stands
still while others have the core; two by the clock on the wall, so that they mean something on an idle machine only: the
load is printed. The share of memory bandwidth is what decode reads (weights and cache) in its best time over what the
streaming read reads in its best. Checkpoints and bundles stay in the folder and are used again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.bandwidth import BLAS_THREADS, streaming_read
from tests.bench.llamas import cached_values, make_checkpoint, matrix_values
from tests.bench.uncut import Uncut

CONTEXT, PROMPT = 128, 512
SEQUENCES = {"110M": 1024, "1.1B": 256}
"""The longest prompt and its answer; the small model alone gets a prompt of `PROMPT`."""
TARGETS = {
    "tvm": "target: tvm, options: {features: [avx2], chunks: [16, 64, 512]}",
    "ort": "target: ort",
}
SECONDS = {"prefill": 20.0, "decode": 12.0}
"""Seconds that one measurement goes on."""


def main() -> None:
    """Make what is missing, measure, print a table."""
    parser = argparse.ArgumentParser(description="The tvm target beside the ort target.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--models", default=",".join(SEQUENCES))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        kind, *rest = options.part.split(":")
        print(json.dumps(_PARTS[kind](options.folder, *rest)))
        return
    report = {
        model: measure(options.folder, model, [int(n) for n in options.threads.split(",")])
        for model in options.models.split(",")
    }
    print(json.dumps(report, indent=1) if options.json else table(report))


def measure(folder: Path, model: str, threads: Sequence[int]) -> dict[str, Any]:
    """Everything about one model."""
    place = folder / model
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "checkpoint" / "model.safetensors").exists():
        _part(place, f"checkpoint:{model}")
    compiled = {target: build(place, model, target) for target in TARGETS}
    return {
        "compile": compiled,
        "start": {target: _part(place, f"start:{target}") for target in TARGETS},
        "speed": {n: _part(place, f"speed:{n}:{int(model == '110M')}") for n in threads},
    }


def _part(folder: Path, part: str) -> Any:
    """One measurement, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.tvm_speed", "--folder", str(folder), "--part", part]
    environment = {**os.environ, **BLAS_THREADS}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def build(folder: Path, model: str, target: str) -> dict[str, float]:
    """Compile for one device with all of `partc compile`; what it took, and the size of the library."""
    bundle, figures = folder / target, folder / f"{target}.json"
    if not bundle.exists():
        length = SEQUENCES[model]
        (folder / "model.yaml").write_text(
            "model: checkpoint\ntask: text-generation\ndtype: float32\nmax_batch: 1\nmax_requests: 1\n"
            f"max_sequence: {length}\nworkload: {{prompt: {length // 2}, generate: 64}}\n"
        )
        device = f"flops: 100 GFLOP/s, memory_bandwidth: 25 GB/s, memory: 16 GB, {TARGETS[target]}"
        (folder / f"{target}.yaml").write_text(f"source: host\ndevices:\n  host: {{{device}}}\n")
        command = [sys.executable, "-m", "partc.cli", "compile", str(folder / "model.yaml")]
        command += ["--target", str(folder / f"{target}.yaml"), "-o", str(bundle)]
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            raise SystemExit(f"{' '.join(command)} failed")
        library = bundle / "devices" / "host" / "library.so"
        figures.write_text(json.dumps({
            "wall_s": time.perf_counter() - started, "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_bytes": usage.ru_maxrss * 1024, "load": os.getloadavg()[0],
            "library_bytes": library.stat().st_size if library.exists() else 0,
        }))  # fmt: skip
    return json.loads(figures.read_text())  # type: ignore[no-any-return]


def start(folder: Path, target: str) -> dict[str, float]:
    """From nothing to the first token, and what a process holds then."""
    began = time.perf_counter()
    model = Uncut(folder / target, "host")  # held, or its memory would be gone before it is looked at
    model.step(1, 0)
    took = time.perf_counter() - began
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    held = {name: int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}
    return {"first_token_s": took, "resident_bytes": held["VmRSS"], "private_bytes": held["RssAnon"]}


def speed(folder: Path, threads: str, prefill: str) -> dict[str, Any]:
    """Both engines in turns."""
    clock = time.thread_time if int(threads) == 1 else time.perf_counter
    models = {target: Uncut(folder / target, "host", int(threads)) for target in TARGETS}
    apart = {target: model.step(CONTEXT, 0) for target, model in models.items()}
    difference = float(np.abs(apart["tvm"] - apart["ort"]).max())
    result: dict[str, Any] = {"load": os.getloadavg()[0], "difference": difference}
    if int(prefill):
        steps = {target: partial(model.step, PROMPT, 0) for target, model in models.items()}
        result["prefill"] = take_turns(steps, SECONDS["prefill"], clock)
    steps = {target: partial(model.step, 1, CONTEXT) for target, model in models.items()}
    read, size = streaming_read(int(threads))
    result["decode"] = take_turns({**steps, "read": read}, SECONDS["decode"], clock)
    result["read_bytes"] = 4 * (matrix_values(folder.name) + cached_values(folder.name, CONTEXT))
    result["bandwidth"] = size / result["decode"]["read"]["min"]
    result["of_memory"] = result["read_bytes"] / result["decode"]["tvm"]["min"] / result["bandwidth"]
    return result


def take_turns(
    steps: Mapping[str, Callable[[], Any]], seconds: float, clock: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Median and least time of each, one call of each in turn, until the time is up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        for name, step in steps.items():
            began = clock()
            step()
            times[name].append(clock() - began)
    return {name: {"median": statistics.median(took), "min": min(took)} for name, took in times.items()}


_PARTS: dict[str, Callable[..., Any]] = {"checkpoint": make_checkpoint, "start": start, "speed": speed}


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = []
    for model, figures in report.items():
        lines.append(f"{model}")
        for target, built in figures["compile"].items():
            begun = figures["start"][target]
            lines.append(
                f"  {target}: partc compile {built['wall_s']:.0f} s ({built['cpu_s']:.0f} s of a core, load"
                f" {built['load']:.1f}), peak {built['peak_bytes'] / 1e6:.0f} MB, library"
                f" {built['library_bytes'] / 1e3:.0f} kB; first token after {begun['first_token_s']:.2f} s, resident"
                f" {begun['resident_bytes'] / 1e6:.0f} MB of which {begun['private_bytes'] / 1e6:.0f} MB private"
            )
        for threads, found in figures["speed"].items():
            lines.append(
                f"  {threads} thread(s), load {found['load']:.1f}, logits apart {found['difference']:.1e}"
            )
            for phase in ("prefill", "decode"):
                if phase in found:
                    lines.append(f"    {phase:8}" + _compared(found[phase]))
            lines.append(
                f"    decode reads {found['read_bytes'] / 1e6:.0f} MB: {found['of_memory']:.0%} of"
                f" {found['bandwidth'] / 1e9:.1f} GB/s"
            )
    return "\n".join(lines)


def _compared(times: dict[str, dict[str, float]]) -> str:
    parts = [
        f"{kind} tvm {times['tvm'][kind] * 1e3:8.2f} ms, ort {times['ort'][kind] * 1e3:8.2f} ms:"
        f" {times['ort'][kind] / times['tvm'][kind]:.2f}x"
        for kind in ("median", "min")
    ]
    return "; ".join(parts)


if __name__ == "__main__":
    main()
