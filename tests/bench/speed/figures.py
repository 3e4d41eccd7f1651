"""From samples to figures: medians with their spread, ratios within rounds, the limit that memory sets."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.random_models import MODELS
from tests.bench.speed.clocks import Sample
from tests.bench.speed.contestants import CONTESTANTS, ORT, TVM
from tests.bench.speed.engines.contract import CONTEXT
from tests.bench.speed.make import Bundle
from tests.bench.speed.places import Cell
from tests.bench.speed.turns import READ, Taken, context_of, is_decode


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
    """The figures of one cell."""

    cell: Cell
    clock: str
    """`wall` or `cpu`."""
    samples: Mapping[str, Mapping[str, Sequence[Sample]]]
    """Contestant → what was asked → one sample a round; of `READ`, the time of one byte."""
    absent: Mapping[str, str]
    """Contestant → why it is missing."""

    @property
    def names(self) -> list[str]:
        """The contestants."""
        return [name for name in self.samples if name != READ]

    @property
    def reference(self) -> str:
        """The contestant that others are held against: partc at its best."""
        return TVM if TVM in self.samples else ORT

    @property
    def contexts(self) -> list[int]:
        """The contexts that tokens were timed at; the one of the main columns first."""
        found = [context_of(asked) for asked in self.samples[READ]]
        return sorted(found, key=lambda context: (context != CONTEXT, context))

    def figure(self, name: str, asked: str) -> Figure | None:
        """The seconds that a contestant took; None where it was not asked."""
        found = self._seconds((name, asked))
        return Figure.of(found) if found else None

    def fastest(self, names: Iterable[str], asked: str) -> str | None:
        """The one of these contestants with the least median; None where none was measured."""
        found = {name: figure.median for name in names if (figure := self.figure(name, asked))}
        return min(found, key=lambda name: found[name], default=None)

    def speed(self, one: str, other: str, asked: str, clock: str | None = None) -> Figure | None:
        """How many times as fast one contestant is as another, round by round; None where one is missing."""
        return self.compare((one, asked), (other, asked), clock)

    def compare(
        self, one: tuple[str, str], other: tuple[str, str], clock: str | None = None
    ) -> Figure | None:
        """The same as `speed`, for two pairs of (contestant, request)."""
        ours, theirs = self._seconds(one, clock), self._seconds(other, clock)
        if not ours or not theirs:
            return None
        return Figure.of([b / a for a, b in zip(ours, theirs, strict=True)])

    def of_the_limit(self, name: str, asked: str) -> Figure | None:
        """The part of a contestant's time for a token that reading memory takes, round by round."""
        found = self.compare((name, asked), (READ, asked)) if is_decode(asked) else None
        size = self.read_bytes(name, context_of(asked)) if found else 0.0
        return found and Figure(*(size * part for part in (found.median, found.low, found.high)))

    def read_bytes(self, name: str, context: int) -> float:
        """The bytes that a token reads of weights and caches, and moves of states; those of others count as partc's."""
        files = CONTESTANTS[name].files
        if not isinstance(files, Bundle):
            files = Bundle("tvm" if self.reference == TVM else "ort")
        model = MODELS[self.cell.place.name]
        cache = files.cache_bytes(model.head) * model.row_values * context
        return files.weight_bytes(self.cell.kind) * model.matrix_values + cache + 8 * model.state_values

    def byte_s(self, asked: str) -> float:
        """Seconds that a streaming read took for a byte: the median of the same rounds."""
        return statistics.median(self._seconds((READ, asked)))

    def limit_s(self, asked: str) -> float:
        """The least that a token of the reference can take."""
        return self.read_bytes(self.reference, context_of(asked)) * self.byte_s(asked)

    def _seconds(self, key: tuple[str, str], clock: str | None = None) -> list[float]:
        name, asked = key
        return [seconds(one, clock or self.clock) for one in self.samples.get(name, {}).get(asked, ())]


def tabulate(cell: Cell, taken: Taken, clock: str) -> Table:
    """The results in one cell."""
    if READ not in taken.samples:
        raise SystemExit(f"memory could not be read: {taken.absent[READ]}")
    return Table(cell, clock, taken.samples, taken.absent)


def seconds(sample: Sample, clock: str) -> float:
    """By one of the clocks."""
    return sample.wall_s if clock == "wall" else sample.cpu_s
