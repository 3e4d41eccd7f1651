"""Memory alone: a streaming read, as fast as this machine does it."""

from __future__ import annotations

from pathlib import Path

from tests.bench.bandwidth import streaming_read
from tests.bench.speed.clocks import Sample, now
from tests.bench.speed.engines.contract import median


class Read:
    """Answers `decode` as the others do, but with the time of one byte."""

    def __init__(self, threads: int) -> None:
        self._read, self._bytes = streaming_read(threads)

    def decode(self, steps: int, context: int) -> Sample:
        """The median of so many reads."""
        return median([self._once() for _ in range(steps)])

    def _once(self) -> Sample:
        began = now()
        self._read()
        return began.until(now()).per(self._bytes)


def load(path: Path, threads: int, processes: int) -> Read:
    """The contestant that only reads memory."""
    return Read(threads)
