"""The processor of this machine: its kind, its features, its cores."""

from __future__ import annotations

import itertools
import os
import platform
from collections.abc import Sequence
from pathlib import Path

MOST_THREADS = 1024
"""Threads that are asked for, at most: no device has more cores, and thousands take minutes to start."""


def architecture() -> str:
    """`aarch64` or `x86_64`, however the system calls it; another name as it is."""
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


def processor_features() -> frozenset[str]:
    """The features of the first processor as Linux calls them; empty where it does not list them."""
    return frozenset(_cpuinfo("flags" if architecture() == "x86_64" else "Features").split())


def processor_vendor() -> str:
    """The maker of the first processor, `GenuineIntel` for instance; empty where Linux does not say it."""
    return _cpuinfo("vendor_id").strip()


def _cpuinfo(key: str) -> str:
    """The text in /proc/cpuinfo under a key, of the first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith(key)), "")


def usable_cores() -> int:
    """Cores that this process may run on; two threads of one core count once."""
    return len(_cores()) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_out(threads: Sequence[int]) -> list[set[int]] | None:
    """Cores of its own for each of several processes, by its number of threads; None where there are too few.

    A core is given by the numbers of its hardware threads, as Linux counts them.

    A process that wanders from core to core finds its caches empty, and one that sleeps between the steps of a ring
    wakes up where another is computing.
    """
    if not hasattr(os, "sched_setaffinity") or not all(threads) or sum(threads) > usable_cores():
        return None
    free = iter(_cores())
    return [set().union(*itertools.islice(free, count)) for count in threads]


def _cores() -> list[set[int]]:
    """The hardware threads of each core that this process may run on."""
    found: dict[str, set[int]] = {}
    for number in sorted(os.sched_getaffinity(0)):
        found.setdefault(_core(number), set()).add(number)
    return list(found.values())


def _core(number: int) -> str:
    """A text that all threads of a core share."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(number)
