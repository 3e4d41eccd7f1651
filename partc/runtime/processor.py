"""The processor of this machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def architecture() -> str:
    """`aarch64` or `x86_64`, however the system calls it; another name as it is."""
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


def usable_cores() -> int:
    """Cores that this process may run on; two threads of one core count once."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len({_core(number) for number in os.sched_getaffinity(0)})


def _core(number: int) -> str:
    """What all threads of a core have in common."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(number)
