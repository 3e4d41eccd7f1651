"""Predicted beside measured: run a ring, plan again with what that showed, and run what was planned. One command:

    python -m tests.bench.predictions                                 # storyteller and 110M, rings of 2 and 3
    python -m tests.bench.predictions --by profile --runs 5 --keep /tmp/p

Rings of local processes over loopback, encrypted; every run has processes of its own and one request, as `partc run`
has. Devices are unlike on paper and alike in truth, and no fewer of them hold the model. What is shown is the median of
the runs, with the least and the most, and the load of the machine meanwhile, without which the figures say little.

`--by runs` plans with the records of runs (`partc profile --from`), by default of one; `--by profile` with a profile.
A token is counted as the plan counts it: a prompt and the tokens behind it, over all tokens; of a run the median step
and the mean. `--strategy even` asks for a placement that did not run before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from partc.format.plan import Timeline
from partc.planner.model.plan_file import PLAN_FILE
from partc.report.expected import device_s
from partc.report.figures import Plan
from partc.report.measured import Measured
from partc.report.sources import read_subject
from partc.runs.records import RUNS, read_record, write_record
from partc.runtime.client.launch import launch_local
from tests.bench.llamas import SHAPES

ROOT = Path(__file__).resolve().parents[2]
GENERATE = 64
MODELS = {
    "storyteller": f"model: {ROOT / 'examples' / 'storyteller'}\nmax_batch: 2\nmax_requests: 4",
    "110M": f"model: {{config: {{model_type: llama, {', '.join(f'{k}: {v}' for k, v in SHAPES['110M'].items())}}},"
    " seed: 0}\nmax_requests: 1",
}
"""Name → the first lines of its model.yaml."""
MEMORY = {
    ("storyteller", 2): (15, 16, 0),
    ("storyteller", 3): (12, 13, 12),
    ("110M", 2): (340, 320, 0),
    ("110M", 3): (300, 280, 260),
}
"""(model, devices) → MB of each: no fewer devices hold the model."""
TOKEN, AIM = "token, median step", 0.1
"""The figure that is judged, and how far off it may be."""
FIGURES = {
    "a": "flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s",
    "b": "flops: 60 GFLOP/s, memory_bandwidth: 25 GB/s",
    "c": "flops: 8 GFLOP/s, memory_bandwidth: 5 GB/s",
}


def main() -> None:
    """Print a table for each model and ring."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        for model in options.models.split(","):
            for devices in map(int, options.rings.split(",")):
                place = folder / f"{model}{devices}"
                place.mkdir(parents=True, exist_ok=True)
                compare(place, model, devices, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.predictions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=10, help="runs of the second plan (default: 10)")
    parser.add_argument("--before", type=int, default=1, help="runs that the plan learns from (default: 1)")
    parser.add_argument("--by", choices=["runs", "profile"], default="runs", help="(default: runs)")
    parser.add_argument(
        "--strategy",
        default="optimal",
        help="of the second plan (default: optimal); `even` is a placement that was not run",
    )
    parser.add_argument("--models", default="storyteller,110M", help="(default: %(default)s)")
    parser.add_argument("--rings", default="2,3", help="numbers of devices (default: %(default)s)")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of the prompts (default: 32)")
    parser.add_argument("--threads", type=int, default=1, help="of each runner; 0: the engine's (default: 1)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep builds and profiles there")
    return parser


def compare(place: Path, name: str, count: int, options: argparse.Namespace) -> None:
    """Plan, run once, plan again with what that showed, run; print what was predicted and what was measured."""
    model, devices = write_inputs(place, name, count, options)
    profile, first, second = (place / part for part in ("profile", "first", "second"))
    before = os.getloadavg()[0]
    partc("compile", model, "--target", devices, "-o", first)
    for _ in range(options.before):
        run_once(first, options.prompt)
    way = ["--from", first / RUNS] if options.by == "runs" else []
    partc("profile", model, "--target", devices, "-o", profile, *way)
    planned = ("--strategy", options.strategy)
    partc("compile", model, "--target", profile / "devices.yaml", "-o", second, *planned)
    between = os.getloadavg()[0]
    runs = [run_once(second, options.prompt) for _ in range(options.runs)]
    print(f"\n{name}, ring of {count}, {options.threads} threads, prompts of {options.prompt}; ", end="")
    print(f"by {options.before} runs" if options.by == "runs" else "by a profile")
    print(f"load {before:.1f} at first, {between:.1f} before the runs, {os.getloadavg()[0]:.1f} after them")
    print(f"first {placed(first)}; then {placed(second)}")
    print_table(figures(read_subject(second).plan), runs)


def print_table(predicted: Mapping[str, float], runs: Sequence[Mapping[str, float]]) -> None:
    """Predicted seconds by label beside those of the runs, and whether a token came out as it should."""
    print(f"{'':22}{'predicted':>12}{'measured':>12}{'ratio':>7}   least - most")
    ratios = {}
    for label, seconds in predicted.items():
        found = [one[label] for one in runs]
        middle = statistics.median(found)
        ratios[label] = middle / max(seconds, 1e-9)
        spread = f"{min(found) * 1e3:9.3f} - {max(found) * 1e3:.3f} ms"
        print(f"{label:22}{seconds * 1e3:9.3f} ms{middle * 1e3:9.3f} ms{ratios[label]:7.2f}{spread}")
    verdict = "yes" if abs(ratios[TOKEN] - 1) <= AIM else "NO"
    print(f"{TOKEN}: within {AIM:.0%} of the prediction: {verdict}")
    sys.stdout.flush()


def write_inputs(place: Path, name: str, count: int, options: argparse.Namespace) -> tuple[Path, Path]:
    """model.yaml and devices.yaml."""
    model, devices = place / "model.yaml", place / "devices.yaml"
    model.write_text(
        f"{MODELS[name]}\ntask: text-generation\ndtype: float32\nmax_sequence: {max(256, options.prompt + GENERATE)}\n"
        f"workload: {{prompt: {options.prompt}, generate: {GENERATE}}}\n"
    )
    lines = [
        f"  {device}: {{target: ort, threads: {options.threads}, memory: {memory} MB, {figures}}}"
        for (device, figures), memory in zip(FIGURES.items(), MEMORY[name, count], strict=True)
        if memory
    ]
    links = ["links:", "  default: {bandwidth: 100 Mbit/s, latency: 2 ms}", ""]
    devices.write_text("\n".join(["source: a", "devices:", *lines, *links]))
    return model, devices


def run_once(build: Path, length: int) -> dict[str, float]:
    """One request to processes of its own, recorded as `partc run` does it; its figures by label, seconds."""
    prompt = [1 + number % 40 for number in range(length)]
    started = datetime.now(UTC)
    with launch_local(build) as ring, ring.client() as client:
        result = client.generate(prompt, GENERATE, ignore_eos=True)
        plan_id = client.role.plan_id
    file = write_record(build, plan_id, [result], started, local=True)
    measured = Measured(read_subject(build).plan, read_record(file))
    found = {TOKEN: measured.median_s or 0.0, "token, mean step": measured.value_s or 0.0}
    (steps,) = measured.steps
    last = len(steps.lasted) - 1
    for phase, numbers in (("prefill", [0]), ("decode", range(1, last))):
        found[f"{phase} step"] = _median(steps.lasted[number] for number in numbers)
        found[f"{phase} between"] = _median(steps.between_s[number] for number in numbers)
        for device, computed in steps.computed_s.items():
            found[f"{phase} on {device}"] = _median(computed[number] for number in numbers)
    return found


def figures(plan: Plan) -> dict[str, float]:
    """The plan's seconds by the same labels."""
    value = float(plan.answer["value"])
    found = {TOKEN: value, "token, mean step": value}
    for phase in plan.phases:
        found |= _predicted(plan, phase)
    return found


def _predicted(plan: Plan, phase: Timeline) -> dict[str, float]:
    computing = device_s(plan, phase)
    return {
        f"{phase.phase} step": float(phase.latency_s),
        **{f"{phase.phase} on {device}": seconds for device, seconds in computing.items()},
        f"{phase.phase} between": float(phase.latency_s) - sum(computing.values()),
    }


def placed(build: Path) -> str:
    """`a 0-3, b 4-9`."""
    stages = read_subject(build / PLAN_FILE).plan.case.stages
    return ", ".join(f"{stage.device} {stage.first}-{stage.last}" for stage in stages)


def partc(*arguments: object) -> str:
    """Run a command; what it printed."""
    command = [sys.executable, "-m", "partc.cli", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env, text=True).stdout


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    main()
