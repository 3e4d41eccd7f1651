"""Predicted against measured: profile, compile with what was measured, run, compare. One command:

    python -m tests.bench.prediction                       # the example and a 110M-parameter Llama shape
    python -m tests.bench.prediction --runs 5 --keep /tmp/p

Three runners on this machine over loopback, encrypted. Each model is run several times; what is shown is the median,
and the load of the machine meanwhile, without which the figures say little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from partc.report.expected import device_s
from partc.report.figures import Plan
from partc.runtime.client.launch import launch_local
from partc.runtime.client.results import Timings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "storyteller"
LLAMA_MODEL = """\
model:
  config: {model_type: llama, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12,
    num_key_value_heads: 4, intermediate_size: 2048, vocab_size: 32000}
  seed: 0
task: text-generation
dtype: float32
max_sequence: 256
max_requests: 1
workload: {prompt: 32, generate: 64}
"""
LLAMA_DEVICES = """\
source: a
devices:
  a: {target: ort, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 250 MB}
  b: {target: ort, flops: 60 GFLOP/s, memory_bandwidth: 25 GB/s, memory: 250 MB}
  c: {target: ort, flops: 8 GFLOP/s, memory_bandwidth: 5 GB/s, memory: 250 MB}
links:
  default: {bandwidth: 100 Mbit/s, latency: 2 ms}
"""
PROMPT, GENERATE = 32, 64


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="requests of each model (default: 5)")
    parser.add_argument("--keep", type=Path, help="keep profiles and builds in this folder")
    parser.add_argument("--only", choices=["storyteller", "llama"], help="one of the two models")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if options.only != "llama":
            compare("storyteller", EXAMPLE / "model.yaml", EXAMPLE / "devices.yaml", folder, options.runs)
        if options.only != "storyteller":
            (folder / "llama.yaml").write_text(LLAMA_MODEL)
            (folder / "llama_devices.yaml").write_text(LLAMA_DEVICES)
            compare("llama", folder / "llama.yaml", folder / "llama_devices.yaml", folder, options.runs)


def compare(name: str, model: Path, devices: Path, folder: Path, runs: int) -> None:
    """Profile, compile, run; print predicted and measured times of a token, of the phases and of the devices."""
    profile, build = folder / f"{name}_profile", folder / f"{name}_build"
    before = os.getloadavg()[0]
    partc("profile", model, "--target", devices, "-o", profile)
    partc("compile", model, "--target", profile / "devices.yaml", "-o", build)
    middle = os.getloadavg()[0]
    plan = json.loads((build / "plan.json").read_text())
    found = measured(build, runs)
    print(f"\n{name}: load {before:.1f} before, {middle:.1f} after profiling, {os.getloadavg()[0]:.1f} after")
    known = plan["answer"]["explain"]["times"]
    print(
        f"{known['measured']} of {known['of']} times measured; assignment {spans(plan['answer']['assignment'])}"
    )
    print(f"{'':20}{'predicted':>12}{'measured':>12}{'ratio':>7}{'undisturbed':>12}{'ratio':>7}")
    for label, value in predicted(plan).items():
        real, calm = (statistics.median(one[kind][label] for one in found) for kind in (0, 1))
        cells = "".join(f"{time * 1e3:9.3f} ms{time / max(value, 1e-9):7.2f}" for time in (real, calm))
        print(f"{label:20}{value * 1e3:9.3f} ms{cells}")
    sys.stdout.flush()


def predicted(data: dict[str, Any]) -> dict[str, float]:
    """Seconds by label: of a token, of a step of each phase, of each device's computing, of what lies between."""
    plan = Plan(data)
    result = {"per token": plan.answer["value"]}
    for phase in plan.phases:
        result[f"{phase.phase} step"] = phase.latency_s
        computing = device_s(plan, phase)
        result[f"{phase.phase} between"] = phase.latency_s - sum(computing.values())
        result.update({f"{phase.phase} on {device}": time for device, time in computing.items()})
    return result


def measured(build: Path, runs: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Medians and lower deciles by label from the timings of requests, one after the other.

    The first request, which warms up, is left out. A busy machine disturbs most steps, hardly all of them.
    """
    prompt = [1 + number % 40 for number in range(PROMPT)]
    with launch_local(build) as ring, ring.client() as client:
        results = [client.generate(prompt, GENERATE, ignore_eos=True) for _ in range(runs + 1)]
        source = client.role.source
    timings = [result.timings for result in results[1:]]
    return [(_labelled(one, source, 0.5), _labelled(one, source, 0.1)) for one in timings]


def _labelled(timings: Mapping[str, Timings], source: str, quantile: float) -> dict[str, float]:
    """Seconds by their labels, over all steps of a phase but the very last step, which none follows."""
    spans_s = np.diff(timings[source].column("started_s"))
    found: dict[str, float] = {}
    for phase, steps in (("prefill", slice(0, 1)), ("decode", slice(1, len(spans_s)))):
        computing = {name: table.column("compute_s")[steps] for name, table in timings.items()}
        parts = {"step": spans_s[steps], "between": spans_s[steps] - sum(computing.values())}
        parts |= {f"on {name}": seconds for name, seconds in computing.items()}
        found.update({f"{phase} {name}": float(np.quantile(part, quantile)) for name, part in parts.items()})
    count = len(spans_s) + 1
    found["per token"] = (found["prefill step"] + (count - 1) * found["decode step"]) / count
    return found


def spans(assignment: list[str]) -> str:
    """`a 0-3, b 4-9`."""
    starts = [i for i, name in enumerate(assignment) if i == 0 or assignment[i - 1] != name]
    ends = [*(start - 1 for start in starts[1:]), len(assignment) - 1]
    return ", ".join(f"{assignment[a]} {a}-{b}" for a, b in zip(starts, ends, strict=True))


def partc(*arguments: object) -> str:
    """Run a command; its standard output."""
    command = [sys.executable, "-m", "partc.cli", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


if __name__ == "__main__":
    main()
