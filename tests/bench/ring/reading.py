"""What two processes read from memory at once over what one reads: the most that two requests in flight can win.

python -m tests.bench.ring.reading        (a reader: reads as often as a line asks it to, and answers with a line)
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Self

from tests.bench.bandwidth import BLAS_THREADS, streaming_read

READS = 2
"""Reads of a gigabyte in one turn: the second begins while the other process still reads its first."""


class Readers:
    """Two processes that read; a context that ends them."""

    def __init__(self) -> None:
        """Starts them."""
        self._stack = ExitStack()
        command = [sys.executable, "-m", "tests.bench.ring.reading"]
        self._processes = [
            self._stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                    env={**os.environ, **BLAS_THREADS},
                )
            )
            for _ in range(2)
        ]  # fmt: skip
        self._seconds(2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        self._stack.close()

    def gain(self) -> float:
        """Bytes a second of both at once over those of one alone."""
        return 2 * self._seconds(1) / self._seconds(2)

    def _seconds(self, count: int) -> float:
        """Seconds until so many of them have read."""
        began = time.perf_counter()
        asked = self._processes[:count]
        for process in asked:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in asked:
            assert process.stdout is not None
            process.stdout.readline()
        return time.perf_counter() - began


def _read() -> None:
    read, _ = streaming_read(1)
    for _ in sys.stdin:
        for _ in range(READS):
            read()
        print(flush=True)


if __name__ == "__main__":
    _read()
