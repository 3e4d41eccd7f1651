"""Time by the wall and by the processors, of this process and of others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

CPU_CLOCK = 2
"""`CPUCLOCK_SCHED` of Linux: nanoseconds that all threads of a process computed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Wall and processor time of something."""

    wall_s: float
    cpu_s: float
    """Processor time of all processes concerned; waits and other programs do not count."""

    def per(self, count: int) -> Sample:
        """The share of one of `count`."""
        return Sample(self.wall_s / count, self.cpu_s / count)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, by both clocks."""

    wall_s: float
    cpu_s: float

    def until(self, later: Mark) -> Sample:
        """The time between the two moments."""
        return Sample(later.wall_s - self.wall_s, later.cpu_s - self.cpu_s)


def now(others: Iterable[int] = ()) -> Mark:
    """This moment, for this process and `others` by their ids."""
    cpu = sum(time.clock_gettime(process_clock(pid)) for pid in (os.getpid(), *others))
    return Mark(time.perf_counter(), cpu)


def process_clock(pid: int) -> int:
    """The clock that `clock_getcpuclockid(3)` gives for a process on Linux."""
    return (~pid << 3) | CPU_CLOCK
