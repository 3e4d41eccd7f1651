"""Sensors: what the system tells of memory, load, temperature and battery.

| reading | file | without it |
| --- | --- | --- |
| memory available | /proc/meminfo, `MemAvailable` | missing |
| the process's own | /proc/self/statm, resident pages | missing |
| pressure | /proc/pressure/cpu and memory, `some avg10` | missing (a kernel without PSI) |
| temperature | /sys/class/thermal/thermal_zone*/temp, the hottest | missing (most phones deny it to programs) |
| battery, plugged | /sys/class/power_supply/* | missing |

`PARTC_SYS=DIR` takes another root than `/`, as a test does that needs a battery. Nothing is guessed: what cannot be
read is None.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from partc.format.readings import Readings

ROOT_VARIABLE = "PARTC_SYS"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_PLAUSIBLE_C = range(-40, 200)
"""Sensors that are switched off say -273 or worse."""


class Sensors:
    """The sensors of this machine; the folders are listed once."""

    def __init__(self, root: Path | None = None) -> None:
        """Find the sensors below `root`, by default what PARTC_SYS says, else `/`."""
        root = root or Path(os.environ.get(ROOT_VARIABLE) or "/")
        self._proc = root / "proc"
        self._zones = sorted((root / "sys/class/thermal").glob("thermal_zone*/temp"))
        supplies = sorted((root / "sys/class/power_supply").glob("*"))
        # A mouse or a headset has a battery as well.
        own = [supply for supply in supplies if _text(supply / "scope") != "Device"]
        self._batteries = [supply for supply in own if _text(supply / "type") == "Battery"]
        self._mains = [supply / "online" for supply in own if supply not in self._batteries]

    def read(self) -> Readings:
        """All readings; takes well below a millisecond."""
        return Readings(
            memory_available_bytes=_memory_available(_text(self._proc / "meminfo")),
            memory_own_bytes=_resident(_text(self._proc / "self/statm")),
            cpu_pressure=_pressure(_text(self._proc / "pressure/cpu")),
            memory_pressure=_pressure(_text(self._proc / "pressure/memory")),
            temperature_c=max(self._temperatures(), default=None),
            battery=self._charge(),
            is_plugged=self._is_plugged(),
        )

    def _temperatures(self) -> Iterator[float]:
        for zone in self._zones:
            degrees = _number(_text(zone))
            if degrees is not None and round(degrees / 1000) in _PLAUSIBLE_C:
                yield degrees / 1000

    def _charge(self) -> float | None:
        """The charge of all batteries together, as if they were of one size."""
        found = [_number(_text(battery / "capacity")) for battery in self._batteries]
        known = [min(max(percent, 0.0), 100.0) / 100 for percent in found if percent is not None]
        return sum(known) / len(known) if known else None

    def _is_plugged(self) -> bool | None:
        online = {_text(supply) for supply in self._mains}
        states = {_text(battery / "status") for battery in self._batteries}
        if "1" in online or states & {"Charging", "Full", "Not charging"}:
            return True
        return False if "0" in online or "Discharging" in states else None


def _text(path: Path) -> str:
    """The content of a file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _memory_available(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            kilobytes = _number(amount.removesuffix("kB"))
            return None if kilobytes is None else int(kilobytes * 1024)
    return None


def _resident(statm: str) -> int | None:
    _, _, rest = statm.partition(" ")
    pages = _number(rest.partition(" ")[0])
    return None if pages is None else int(pages) * _PAGE_BYTES


def _pressure(text: str) -> float | None:
    """The share behind `avg10=` in the line `some`."""
    for word in text.partition("\n")[0].split():
        if word.startswith("avg10="):
            percent = _number(word.removeprefix("avg10="))
            return None if percent is None else min(max(percent / 100, 0.0), 1.0)
    return None
