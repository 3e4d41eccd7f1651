"""Latency and bandwidth of links, by rings of real runners, encrypted as in real use.

LinguaLinked 3.1 sends one chunk and divides: its bandwidth has the latency in it. Here steps with messages of
several sizes go around a ring of two, and a line is fitted: seconds = latency + bytes / bandwidth. What a step
takes on devices is not taken from clocks of two machines but from one: a whole step on the source's clock,
without what both report as computing. Large messages go one way and a token the other, so that each
direction has its own bandwidth; of the latency only the sum of both ways can be known, and each gets half.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from partc.profiler.client import Fleet, end_ring
from partc.profiler.graphs import PAYLOAD_FLOATS
from partc.runtime.client.client import Client
from partc.runtime.client.results import Timings

TOKEN_BYTES = PAYLOAD_FLOATS * 4
"""Bytes that cross a link for every token of a prompt."""
PROMPTS = (16, 64, 256, 1024, 4096)
"""Tokens of the messages that are sent: 16 KiB to 4 MiB."""
_CALM = 0.1
_SKIPPED = 4
_PATIENCE_S = 1.0
"""No larger message is tried when one takes so long."""


@dataclass(frozen=True)
class Sample:
    """Messages of one size."""

    bytes: int
    seconds: float
    """Seconds of a whole step without its computing."""


@dataclass(frozen=True)
class Ring:
    """The costs of a ring's steps besides computing."""

    devices: tuple[str, ...]
    step_s: float
    """The smallest message each way."""
    samples: tuple[Sample, ...]
    """Larger ones from the first to the last; empty in a ring of one."""


@dataclass(frozen=True)
class LinkFigures:
    """One direction."""

    latency_s: float
    """Half of both ways, without the computing of either end."""
    bandwidth_bytes_per_s: float

    def seconds(self, count: float) -> float:
        """The time that a message of `count` bytes takes."""
        return self.latency_s + count / self.bandwidth_bytes_per_s


def measure_ring(fleet: Fleet, devices: Sequence[str], steps: int, repeats: int) -> Ring:
    """Let a ring of one or two devices work; raises RunError.

    The median of the steps counts; where a device is busy with other programs, a lower quantile, since they disturb
    most steps.
    """
    client = fleet.ring(devices)
    quantile = _CALM if any(map(fleet.is_busy, devices)) else 0.5
    try:
        step_s = _decode(client, steps, quantile)
        samples = tuple(_prefills(client, repeats, quantile)) if len(devices) == 2 else ()
    finally:
        end_ring(client)
    return Ring(tuple(devices), step_s, samples)


def _decode(client: Client, steps: int, quantile: float) -> float:
    result = client.generate([1], steps + _SKIPPED + 1, ignore_eos=True)
    idle = idle_s(result.timings, client.role.source)
    return float(np.quantile(idle[_SKIPPED:], quantile))


def _prefills(client: Client, repeats: int, quantile: float) -> list[Sample]:
    samples: list[Sample] = []
    for count in PROMPTS:
        seconds = []
        for _ in range(repeats + 1):
            result = client.generate([1] * count, 2, ignore_eos=True)
            seconds.append(idle_s(result.timings, client.role.source)[0])
        samples.append(Sample(count * TOKEN_BYTES, float(np.quantile(seconds[1:], quantile))))
        if samples[-1].seconds > _PATIENCE_S:
            break
    return samples


def idle_s(timings: Mapping[str, Timings], source: str) -> list[float]:
    """Seconds of each step but the last: from its start to the next one's on the source, without all computing."""
    started = timings[source].column("started_s")
    spans = np.diff(started)
    computing = sum(table.column("compute_s")[: len(spans)] for table in timings.values())
    return [float(value) for value in np.maximum(spans - computing, 0.0)]


def link_figures(there: Ring, back: Ring, alone: Mapping[str, float]) -> LinkFigures:
    """The link from `there`'s first device to its last.

    Args:
        there: the ring that sends the large messages this way.
        back: the one that sends them the other way.
        alone: what a step costs each device in a ring of one.
    """
    bandwidth = _slope(there.samples)
    smallest = TOKEN_BYTES / bandwidth
    both = [max(0.0, ring.step_s - alone[ring.devices[0]]) for ring in (there, back)]
    return LinkFigures(max(0.0, statistics.fmean(both) - smallest) / 2, bandwidth)


def _slope(samples: Sequence[Sample]) -> float:
    """Bytes per second of the line through the samples, least squares of the relative error.

    A larger message has a larger error, so that each counts by the inverse of its time.
    """
    size = np.array([sample.bytes for sample in samples], np.float64)
    seconds = np.array([sample.seconds for sample in samples], np.float64)
    weight = 1.0 / np.maximum(seconds, 1e-9)
    matrix = np.stack([weight, weight * size], axis=1)
    (_, per_byte), *_ = np.linalg.lstsq(matrix, np.ones(len(samples)), rcond=None)
    if len(samples) < 2 or per_byte <= 0:
        return float(size[-1] / max(seconds[-1], 1e-9))
    return float(1.0 / per_byte)
