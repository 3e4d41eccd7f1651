"""Facts of this machine: processor, cores, memory, and how busy it is."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

from partc.runtime.processor import architecture


def waited_s() -> float:
    """For how long threads of this process were ready to run and had no core, since they began; 0 if not known."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread that has just ended
            waited += int(path.read_text().split()[1])
    return waited / 1e9


def cpu_pressure() -> float:
    """The part of the last ten seconds in which somebody here waited for a core, as Linux tells; 0 if it does not."""
    try:
        some = Path("/proc/pressure/cpu").read_text().split()
        return float(some[1].removeprefix("avg10=")) / 100
    except (OSError, ValueError, IndexError):
        return 0.0


def machine_facts() -> dict[str, Any]:
    """Facts about this machine for a client; memory in bytes, 0 where it is not known."""
    return {
        "measures": True,
        "cpu": _of_proc("/proc/cpuinfo", "model name") or platform.processor() or "unknown CPU",
        "arch": architecture(),
        "cores": os.cpu_count() or 1,
        "pressure": cpu_pressure(),
        "memory_bytes": 1024 * int((_of_proc("/proc/meminfo", "MemAvailable") or "0").split()[0]),
    }


def _of_proc(file: str, key: str) -> str | None:
    """The first value of `key` in a file of lines `key : value`."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in found if name.strip() == key), None)
