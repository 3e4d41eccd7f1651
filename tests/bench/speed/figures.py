"""From samples to figures: medians with their spread, ratios within rounds, the limit that memory sets."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.bench.llamas import cached_values, matrix_values
from tests.bench.speed.clocks import Sample
from tests.bench.speed.contestants import CONTESTANTS, UNCUT
from tests.bench.speed.engines.contract import CONTEXT
from tests.bench.speed.turns import READ, Cell, Taken

WEIGHT_BYTES = {
    "float32": 4.0, "int8": 1.0, "int4": 0.5 + 4 / 32, "int4-64": 0.5 + 4 / 64, "int4-128": 0.5 + 4 / 128,
}  # fmt: skip
"""Bytes per weight, scales included, as partc stores them. Q8_0 of llama.cpp has 1.0625, Q4_0 0.5625."""
CACHE_BYTES = 4
SINGLE_STREAM = ("decode", "prefill")


@dataclass(frozen=True)
class Figure:
    """A median and its spread over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """The figure of one value a round."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Table:
    """The figures of one model in one format with so many threads."""

    model: str
    kind: str
    threads: int
    clock: str
    """`wall` or `cpu`."""
    read_bytes: float
    """The bytes that a token has to read."""
    bandwidth: float
    """Bytes a second of a streaming read: the median of the same rounds."""
    seconds: Mapping[str, Mapping[str, Figure]]
    """Contestant → what was asked → seconds by `clock`."""
    samples: Mapping[str, Mapping[str, Sequence[Sample]]]
    """The same, every round by both clocks."""
    absent: Mapping[str, str]
    """Contestant → why it is missing."""

    @property
    def limit_s(self) -> float:
        """The least that a token can take."""
        return self.read_bytes / self.bandwidth

    def of_the_limit(self, name: str) -> float:
        """The part of a contestant's time that memory alone takes, for the bytes of its blocks."""
        least_s = read_bytes(self.model, CONTESTANTS[name].stored(self.kind)) / self.bandwidth
        return least_s / self.seconds[name]["decode"].median

    def speed(self, one: str, other: str, phase: str = "decode", clock: str | None = None) -> Figure | None:
        """How many times as fast one contestant is as another, round by round; None where one is missing."""
        return self.compare((one, phase), (other, phase), clock)

    def compare(
        self, one: tuple[str, str], other: tuple[str, str], clock: str | None = None
    ) -> Figure | None:
        """The same as `speed`, for two pairs of (contestant, request)."""
        ours, theirs = (self._seconds(*key, clock or self.clock) for key in (one, other))
        if not ours or not theirs:
            return None
        return Figure.of([b / a for a, b in zip(ours, theirs, strict=True)])

    def _seconds(self, name: str, phase: str, clock: str) -> list[float]:
        return [seconds(sample, clock) for sample in self.samples.get(name, {}).get(phase, ())]


def tabulate(cell: Cell, taken: Taken, clock: str) -> Table:
    """The results in one cell."""
    model = cell.place.name
    figures = {
        name: {asked: Figure.of([seconds(one, clock) for one in samples]) for asked, samples in found.items()}
        for name, found in taken.samples.items()
        if name != READ
    }
    if READ not in taken.samples:
        raise SystemExit(f"memory could not be read: {taken.absent[READ]}")
    byte_s = statistics.median(seconds(one, clock) for one in taken.samples[READ]["decode"])
    return Table(
        model=model,
        kind=cell.kind,
        threads=cell.threads,
        clock=clock,
        read_bytes=read_bytes(model, cell.kind),
        bandwidth=1 / byte_s,
        seconds=figures,
        samples=taken.samples,
        absent=taken.absent,
    )


def read_bytes(model: str, stored: str) -> float:
    """The bytes that a token reads of weights in that format and of the cache."""
    cache = CACHE_BYTES * cached_values(model, CONTEXT)
    return WEIGHT_BYTES[stored] * matrix_values(model) + cache


def seconds(sample: Sample, clock: str) -> float:
    """By one of the clocks."""
    return sample.wall_s if clock == "wall" else sample.cpu_s


def ratios(table: Table, reference: str = UNCUT) -> dict[str, dict[str, Figure]]:
    """How many times as fast `reference` is as each contestant, by phase."""
    found: dict[str, dict[str, Figure]] = {}
    for name in table.seconds:
        speeds = {phase: table.speed(reference, name, phase) for phase in SINGLE_STREAM}
        found[name] = {phase: speed for phase, speed in speeds.items() if speed is not None}
    return found
