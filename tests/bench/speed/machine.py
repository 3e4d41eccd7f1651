"""The machine that figures were measured on, and how much of it others had meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import time
from dataclasses import dataclass
from pathlib import Path

IDLE = 0.1
"""Cores that others may have before the figures by the wall are doubtful."""


@dataclass(frozen=True)
class Machine:
    """Facts about the machine, to print beside figures."""

    processor: str
    cores: int
    memory_bytes: int
    load_before: float
    load_after: float
    others: float
    """Cores that other programs took, on average."""
    stolen: float
    """Cores that other virtual machines took, on average."""

    @property
    def idle(self) -> bool:
        """Whether times by the wall can be trusted."""
        return self.others + self.stolen < IDLE

    @property
    def sentence(self) -> str:
        """All of it, for people."""
        return (
            f"{self.processor}, {self.cores} cores, {self.memory_bytes / 2**30:.0f} GiB; load"
            f" {self.load_before:.2f} before and {self.load_after:.2f} after; other programs took"
            f" {self.others:.2f} cores meanwhile, other virtual machines {self.stolen:.2f}"
        )


class Watch:
    """From now on."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._began = time.monotonic()
        self._busy, self._stolen = _machine_s()
        self._own = _own_s()

    def machine(self) -> Machine:
        """The observations so far. Call it when all children have ended: only then is their time known."""
        took = time.monotonic() - self._began
        busy, stolen = _machine_s()
        others = busy - self._busy - (_own_s() - self._own)
        return Machine(
            processor=processor_name(),
            cores=os.cpu_count() or 1,
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            load_before=self._load,
            load_after=os.getloadavg()[0],
            others=max(0.0, others / took),
            stolen=(stolen - self._stolen) / took,
        )


def _machine_s() -> tuple[float, float]:
    """Seconds that all cores were busy, and that others had them, since the machine started."""
    user, nice, system, _, _, interrupt, soft, stolen = (
        int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + interrupt + soft) / ticks, stolen / ticks


def _own_s() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def processor_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [fields.get("cpu family"), fields.get("model")]
    return f"{name} (family {numbers[0]}, model {numbers[1]})" if all(numbers) else name
