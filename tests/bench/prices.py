"""Prices of sub-modules beside measured times, for every kind of weights. One command:

    python -m tests.bench.prices --folder /tmp/prices [--target tvm] [--models storyteller] [--weights none,int8,int4]

One device computes the whole model. It is profiled twice: *predicted* is the price of the first profile, *measured* the
time of the second, *roofline* what a plan reckons without times, by the rates that were measured. Sub-modules that are
alike have one row. The last row is the whole model: the sum of the prices beside a run of one compiled graph, whose
neighbours are fused over the borders of sub-modules. A verdict says whether predicted times are within 10 %.

The marker of a quiet machine (`--quiet FILE`) exists while something is measured; compiling does without.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.bench.predictions import AIM, GENERATE, MODELS, partc, run_once

PROMPT = 32
DEVICE = "threads: 1, arch: host, flops: 24 GFLOP/s, memory_bandwidth: 12 GB/s, memory: 4 GB"
_OF_A_PROFILE = "measured"


@dataclass(frozen=True)
class Row:
    """A sub-module and those like it, in one phase; seconds."""

    phase: str
    label: str
    predicted: float
    measured: float
    roofline: float
    count: int

    @property
    def ratio(self) -> float:
        """Measured by predicted."""
        return self.measured / self.predicted


def main() -> None:
    """Print a table for every model and kind of weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where profiles and builds lie")
    parser.add_argument("--target", default="tvm", help="(default: %(default)s)")
    parser.add_argument("--models", default="storyteller", help="(default: %(default)s)")
    parser.add_argument("--weights", default="none,int8,int4", help="`quantize` (default: %(default)s)")
    parser.add_argument("--quiet", type=Path, help="a file that is there while something is measured")
    options = parser.parse_args()
    for model in options.models.split(","):
        for weights in options.weights.split(","):
            show(model, weights, compare(options.folder / f"{model}-{weights}", model, weights, options))


def compare(place: Path, name: str, weights: str, options: argparse.Namespace) -> list[Row]:
    """Profile twice, plan with each and without, compile and run."""
    place.mkdir(parents=True, exist_ok=True)
    model, devices = place / "model.yaml", place / "devices.yaml"
    model.write_text(
        f"{MODELS[name]}\ntask: text-generation\ndtype: float32\nmax_sequence: 256\nquantize: {weights}\n"
        f"workload: {{prompt: {PROMPT}, generate: {GENERATE}}}\n"
    )
    devices.write_text(f"source: a\ndevices:\n  a: {{target: {options.target}, {DEVICE}}}\n")
    profiles = [place / "first", place / "second"]
    with quiet(options.quiet):
        for profile in profiles:
            partc("profile", model, "--target", devices, "-o", profile)
    first, second, roofline = (
        prices(model, profile / "devices.yaml") for profile in (*profiles, without_times(profiles[0]))
    )
    partc("compile", model, "--target", profiles[0] / "devices.yaml", "-o", place / "build")
    with quiet(options.quiet):
        runs = [run_once(place / "build", PROMPT) for _ in range(5)]
    return [row for phase in first for row in rows(phase, first[phase], second[phase], roofline[phase], runs)]


@contextmanager
def quiet(marker: Path | None) -> Iterator[None]:
    """Have the marker there, if one is named."""
    if marker:
        marker.touch()
    try:
        yield
    finally:
        if marker:
            marker.unlink()


def prices(model: Path, devices: Path) -> dict[str, list[float]]:
    """Phase → seconds of every sub-module, as a plan has them."""
    plan = json.loads(partc("plan", model, "--target", devices, "--json"))
    return {
        phase["name"]: [submodule["time_s"]["a"] for submodule in phase["submodules"]]
        for phase in plan["problem"]["phases"]
    }


def without_times(profile: Path) -> Path:
    """A folder with the rates of a profile alone."""
    found: dict[str, Any] = yaml.safe_load((profile / "devices.yaml").read_text())
    found.pop(_OF_A_PROFILE, None)
    folder = profile.with_name("rates")
    folder.mkdir(exist_ok=True)
    (folder / "devices.yaml").write_text(yaml.safe_dump(found))
    return folder


def rows(
    phase: str,
    first: list[float],
    second: list[float],
    roofline: list[float],
    runs: Sequence[Mapping[str, float]],
) -> Iterator[Row]:
    """One for every price of the first profile, and one for all of them."""
    alike: dict[float, list[int]] = defaultdict(list)
    for index, seconds in enumerate(first):
        alike[seconds].append(index)
    for seconds, members in alike.items():
        index = members[0]
        yield Row(phase, f"sub-module {index}", seconds, second[index], roofline[index], len(members))
    whole = statistics.median(run[f"{phase} on a"] for run in runs)
    yield Row(phase, "the whole model", sum(first), whole, sum(roofline), 1)


def show(model: str, weights: str, found: list[Row]) -> None:
    """The table, and the verdict."""
    print(f"\n{model}, weights {weights}; load {os.getloadavg()[0]:.1f}")
    print(f"{'':34}{'predicted':>10}{'measured':>10}{'ratio':>7}{'roofline':>10}   ms")
    for row in found:
        many = f" ({row.count} alike)" if row.count > 1 else ""
        times = "".join(f"{value * 1e3:10.4f}" for value in (row.predicted, row.measured))
        print(f"{row.phase:8} {row.label + many:25}{times}{row.ratio:7.2f}{row.roofline * 1e3:10.4f}")
    worst = max(found, key=lambda row: abs(math.log(row.ratio)))
    verdict = "yes" if abs(worst.ratio - 1) <= AIM else f"NO: {worst.phase}, {worst.label}, {worst.ratio:.2f}"
    print(f"all within {AIM:.0%} of the prediction: {verdict}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
