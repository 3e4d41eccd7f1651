"""Builds and rings of devices that are slow on purpose, on links that are slow on purpose."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from partc.format.plan import PlanFile
from partc.planner.groups.evaluate import evaluate_plan, evaluate_shared
from partc.planner.model.change import with_efficiency
from partc.planner.model.plan_file import PLAN_FILE
from partc.planner.model.problem_json import read_problem
from partc.runtime.client.client import Client
from partc.runtime.client.launch import launch_local
from partc.runtime.client.runners import PYTHON_RUNNER
from tests.living.network import Network, Speed
from tests.living.throttle import Throttle

MBIT_BYTES = 125_000.0
BYTES_PER_FLOP = 0.5
"""The speed of a device's memory beside that of its arithmetic: both are fitted as one."""
FIRST_GUESS = 10.0
"""GFLOP/s."""
PATIENCE_S = 120.0
APART = "-apart"
"""Behind the name of a strategy: tiles travel, and devices compute, one after the other."""
FAST_MBIT = 1000
"""Of the links on which numbers are fitted."""

Asked = Callable[[Client], float]
"""Makes a request; the seconds that count."""


@dataclass(frozen=True)
class Fit:
    """What is fitted."""

    gflops: float
    """Of a device."""
    message_s: float = 0.0
    """What a message takes besides the latency of its link."""
    efficiency: float = 1.0
    """Speed of a part of a block beside that of the whole."""


@dataclass(frozen=True)
class Field:
    """Alike devices, each with a share of a core, and what they run."""

    folder: Path
    """For builds."""
    model: Mapping[str, Any]
    """model.yaml."""
    weights_bytes: float
    """What a device needs to hold all of it."""
    count: int
    cores: float
    """Of each device."""
    phase: str
    """The phase whose steps are measured."""
    asked: Asked
    runs: int

    def fit(self, shared: str) -> Fit:
        """The numbers by which plans say what one device and the strategy `shared` take on fast links.

        In steps of many rows a part of a block is slower than its share, in steps of one row messages cost more.
        """
        guess, speed = Fit(FIRST_GUESS), Speed(FAST_MBIT * MBIT_BYTES)
        build = self.compiled("one", guess, speed)
        fitted = Fit(FIRST_GUESS * self.predicted_s(build, guess) / self.median_s(build, speed))
        build = self.compiled(shared, fitted, speed)
        taken = self.median_s(build, speed)
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            tried = self._with_cost(fitted, middle)
            low, high = (middle, high) if self.predicted_s(build, tried) < taken else (low, middle)
        return self._with_cost(fitted, high)

    def _with_cost(self, fit: Fit, cost: float) -> Fit:
        """From 0 to 1: tenths of a second for a message, or what parts of blocks lack in efficiency."""
        if self.phase == "decode":
            return replace(fit, message_s=0.1 * cost)
        return replace(fit, efficiency=1 - 0.9 * cost)

    def predicted_s(self, build: Path, fit: Fit, *, overlap: bool = True) -> float:
        """Seconds of a step, by the plan and the fitted efficiency; without `overlap` nothing travels meanwhile."""
        plan = plan_of(build)
        problem = with_efficiency(read_problem(plan.problem), fit.efficiency)
        links = (replace(link, latency_s=link.latency_s + fit.message_s) for link in problem.links)
        problem = replace(problem, links=tuple(links))
        shared = evaluate_shared(problem, plan.answer.phases, overlap=overlap) if plan.answer.phases else None
        steps = (shared or evaluate_plan(problem, plan.answer)).phases
        (found,) = (one.latency_s for one in steps if one.phase == self.phase)
        return float(found)

    def compiled(self, strategy: str, fit: Fit, speed: Speed) -> Path:
        """The build of a strategy, `one` or `pipeline` among them; made only if it is missing."""
        rate, latency = speed.bytes_per_s / MBIT_BYTES, speed.latency_s * 1e3
        place = self.folder / f"{strategy}-{fit.gflops:.2f}-{rate:g}-{latency:.3f}"
        if not (place / PLAN_FILE).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            model, devices = self.folder / "model.yaml", self.folder / "devices.yaml"
            model.write_text(json.dumps(self.model))
            devices.write_text(json.dumps(self._devices(strategy, fit, speed)))
            flags = [] if strategy in ("one", "pipeline") else ["--strategy", strategy.removesuffix(APART)]
            program = "tests.bench.sharing.apart" if strategy.endswith(APART) else "partc.cli"
            run_quietly(program, "compile", model, "--target", devices, "-o", place, *flags)
        return place

    def _devices(self, strategy: str, fit: Fit, speed: Speed) -> dict[str, Any]:
        room = 1.6 / self.count if strategy == "pipeline" else 1.6
        figures = {
            "arch": "x86_64", "threads": 1, "memory": f"{self.weights_bytes * room:.0f} B",
            "flops": f"{fit.gflops:.4f} GFLOP/s", "memory_bandwidth": f"{BYTES_PER_FLOP * fit.gflops:.4f} GB/s",
        }  # fmt: skip
        link = {
            "bandwidth": f"{speed.bytes_per_s:.0f} B/s",
            "latency": f"{speed.latency_s * 1e6:.1f} us",
        }
        names = "abcdefgh"[: 1 if strategy == "one" else self.count]
        return {"source": "a", "devices": dict.fromkeys(names, figures), "links": {"default": link}}

    def median_s(self, build: Path, speed: Speed) -> float:
        """The median of `measured_s`."""
        return statistics.median(self.measured_s(build, speed))

    def measured_s(self, build: Path, speed: Speed) -> list[float]:
        """Seconds of some requests, one after the other, on processes of their own; the first one is left out."""
        with throttled_ring(build, self.folder, self.cores, speed) as client:
            return [self.asked(client) for _ in range(self.runs + 1)][1:]


@contextmanager
def throttled_ring(build: Path, folder: Path, cores: float, speed: Speed) -> Iterator[Client]:
    """A client of a ring whose runners have a share of a core each, on slow links; `folder`: for files of theirs."""
    names = sorted(device.name for device in (build / "devices").iterdir())
    throttle = Throttle(folder / "throttle")
    for name in names:
        throttle.slow(name, 1 / cores)
    with ExitStack() as stack:
        network = stack.enter_context(Network(names, speed))
        runners = {name: network.command(name, PYTHON_RUNNER) for name in names}
        started = launch_local(
            build, listen=network.listen(), runners=runners, env=throttle.env, floor_s=PATIENCE_S
        )
        yield stack.enter_context(stack.enter_context(started).client())


def run_quietly(program: str, *arguments: object) -> None:
    """Run a module with a command; what it prints is for nobody."""
    command = [sys.executable, "-m", program, *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def plan_of(build: Path) -> PlanFile:
    """plan.json of a build."""
    return PlanFile.from_json(json.loads((build / PLAN_FILE).read_text()))
