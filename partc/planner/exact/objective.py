"""Objectives of the exact solver: latency, the bottleneck, or the devices needed for a given bottleneck.

A throughput is found in two steps: the smallest bottleneck (the largest weighted busy time of a device or
link), then the fewest devices that reach it. Each objective says what an interval and a message cost and
how costs combine; each is written once and used both for the lower bound (`bound.py`) and for exact
prefixes (`search.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np

from partc.planner.exact.tables import Array, Tables
from partc.planner.model.problem import Problem

TIE = 1e-12
"""Two plans whose values differ by less, relatively, are equal; the one with fewer devices wins."""


Kind = Literal["latency", "bottleneck", "devices"]


@dataclass(frozen=True)
class Objective:
    """A cost to be minimised over plans."""

    kind: Kind
    """`latency` (seconds, added up), `bottleneck` (seconds, the largest) or `devices` (a count)."""
    per_device: float
    """Added for each device besides the source; under `latency` it only decides between equal plans."""
    tolerance: float
    """Differences below this are none."""
    cap: float = np.inf
    """For `devices`: no busy time may be larger."""

    def combine(self, a: Array, b: Array) -> Array:
        """The cost of two parts together."""
        return a + b if self.adds_up else np.maximum(a, b)

    @property
    def adds_up(self) -> bool:
        """Whether the costs of parts are added; else the largest counts."""
        return self.kind != "bottleneck"

    @property
    def counts_devices(self) -> bool:
        """Whether a cost is a number of devices, and not seconds."""
        return self.kind == "devices"

    @property
    def counts_waiting(self) -> bool:
        """Whether it matters when an interval ends, and not only how long a device is busy."""
        return self.kind == "latency"

    def stage(self, tables: Tables, kind: int) -> Array:
        """[b, c]: least cost of the interval on a device of this type, infinite where it does not fit."""
        seconds = tables.weighted_seconds(kind)
        match self.kind:
            case "devices":
                return np.where(seconds <= self.cap, self.per_device, np.inf)
            case "bottleneck":
                return seconds
            case "latency":
                # Off the path an interval may run beside the others, so that only its device counts.
                beside = np.where(tables.fits[kind], 0.0, np.inf)
                return np.where(tables.on_path, seconds, beside) + self.per_device
            case _:
                assert_never(self.kind)

    def message(self, seconds: Array) -> Array:
        """Cost of messages that take these weighted seconds."""
        return np.where(seconds <= self.cap, 0.0, np.inf) if self.counts_devices else seconds


def latency_objective(tables: Tables) -> Objective:
    """Seconds, with a penalty for each device that only decides between equal plans."""
    scale = compute_scale(tables.problem) * TIE
    return Objective("latency", max(scale, 1e-30), scale / 4)


def bottleneck_objective(tables: Tables) -> Objective:
    """The largest busy time."""
    return Objective("bottleneck", 0.0, compute_scale(tables.problem) / len(tables.types) * TIE / 4)


def devices_objective(cap: float) -> Objective:
    """The number of devices, none of which and no link is busy for longer than `cap`."""
    return Objective("devices", 1.0, 0.5, cap * (1 + TIE))


def compute_scale(problem: Problem) -> float:
    """Weighted seconds of the whole model if every sub-module ran on the device that is fastest for it."""
    return sum(
        phase.weight * sum(min(times.values(), default=0.0) for times in phase.time_s)
        for phase in problem.steps
    )
