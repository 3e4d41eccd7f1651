"""Quantities with units, read strictly and written for tables.

Units are case-sensitive and never guessed: a GB is 1e9 bytes, a GiB is 2**30; a Mbit/s is an eighth of a
MB/s. Everything is converted once, here, to bytes, bytes per second, seconds, FLOP per second, parts of 1 and degrees
Celsius.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from partc.errors import ConfigError

_QUANTITY = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z\u00b5\u03bc/%]*)\s*$")


_LARGEST = 1e18
"""No quantity is larger, in its base unit: products and ratios of such are numbers still."""


@dataclass(frozen=True)
class Kind:
    """A physical quantity and the units that it may be written in."""

    name: str
    """The name of the quantity in messages."""
    units: Mapping[str, float]
    """Unit as written -> its size in the base unit."""
    example: str
    """A correct value, shown in messages."""
    least: float = 0.0
    """No value above zero is smaller, in the base unit: at a lower rate a step would practically never end."""

    def parse(self, value: object, *, where: str | None = None, allow_zero: bool = False) -> float:
        """The value in the base unit.

        Raises:
            ConfigError: no unit, another unit, not a number, negative, or zero where zero means nothing.
        """
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self._refuse(f"{value!r} is not {self.name}", where)
        match = _QUANTITY.match(str(value))
        if match is None:
            raise self._refuse(f"{str(value)!r} is not {self.name}", where)
        number, unit = float(match[1]), match[2].replace("\u03bc", "\u00b5")
        if not unit:
            raise self._refuse(f"{str(value).strip()!r} has no unit", where)
        if unit not in self.units:
            raise self._refuse(f"{unit!r} is not a unit of {self.name}", where, self._nearest(unit))
        if number < 0 or (number == 0 and not allow_zero):
            raise self._refuse(
                f"{str(value).strip()!r} must be {'zero or more' if allow_zero else 'more than zero'}", where
            )
        result = number * self.units[unit]
        if result > _LARGEST or 0 < result < self.least:
            unit, size = next(iter(self.units.items()))
            bounds = f"partc takes {self.least / size:g} to {_LARGEST / size:g} {unit}"
            raise self._refuse(f"{str(value).strip()!r} is out of range: {bounds}", where)
        return result

    def _nearest(self, unit: str) -> str:
        if re.fullmatch("[kKMG]?bps", unit):  # bits, whatever looks most like it
            return f"did you mean {unit[:-3].replace('K', 'k')}bit/s? "
        folded = {known.lower(): known for known in self.units}
        near = difflib.get_close_matches(unit.lower(), folded, n=1)
        return f"did you mean {folded[near[0]]}? " if near else ""

    def _refuse(self, message: str, where: str | None, advice: str = "") -> ConfigError:
        hint = f"{advice}accepted units: {', '.join(self.units)}; for example: {self.example}"
        return ConfigError(message, where=where, hint=hint)


BYTES = Kind(
    "a size in bytes",
    {
        "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
        "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
    },
    "6 GiB",
)  # fmt: skip
BANDWIDTH = Kind(
    "a bandwidth",
    {
        "bit/s": 1 / 8, "kbit/s": 1e3 / 8, "Mbit/s": 1e6 / 8, "Gbit/s": 1e9 / 8,
        "B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12,
    },
    "100 Mbit/s",
    least=1e-3,
)  # fmt: skip
TIME = Kind("a time", {"s": 1, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "ns": 1e-9}, "2 ms")
FLOPS = Kind(
    "a compute speed",
    {"FLOP/s": 1, "MFLOP/s": 1e6, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15},
    "12 GFLOP/s",
    least=1.0,
)

PERCENT = Kind("a percentage", {"%": 0.01}, "30 %")
TEMPERATURE = Kind("a temperature", {"C": 1}, "80 C")


def parse_bytes(value: object, *, where: str | None = None, allow_zero: bool = False) -> int:
    """A size in whole bytes: `6 GiB` is 6442450944."""
    return round(BYTES.parse(value, where=where, allow_zero=allow_zero))


def parse_bandwidth(value: object, *, where: str | None = None) -> float:
    """A bandwidth in bytes per second: `100 Mbit/s` is 12.5e6."""
    return BANDWIDTH.parse(value, where=where)


def parse_seconds(value: object, *, where: str | None = None, allow_zero: bool = True) -> float:
    """A time in seconds: `2 ms` is 0.002."""
    return TIME.parse(value, where=where, allow_zero=allow_zero)


def parse_flops(value: object, *, where: str | None = None) -> float:
    """A compute speed in floating point operations per second: `12 GFLOP/s` is 12e9."""
    return FLOPS.parse(value, where=where)


def parse_percent(value: object, *, where: str | None = None) -> float:
    """A part of a whole: `30 %` is 0.3.

    Raises:
        ConfigError: no percentage, or more than 100 %.
    """
    part = PERCENT.parse(value, where=where)
    if part > 1:
        raise ConfigError(f"{str(value).strip()!r} is more than all of it", where=where, hint="at most 100 %")
    return part


def parse_celsius(value: object, *, where: str | None = None) -> float:
    """A temperature in degrees Celsius: `80 C` is 80."""
    return TEMPERATURE.parse(value, where=where)


def format_bytes(count: float) -> str:
    """Bytes in binary units, three significant digits: `1.50 GiB`."""
    return _scaled(count, 1024.0, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def format_seconds(seconds: float) -> str:
    """A time in the unit that reads best: `46.7 ms`."""
    if not math.isfinite(seconds):
        return "never" if seconds > 0 else str(seconds)
    if abs(seconds) >= 1e7:
        return f"{seconds:.3g} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("\u00b5s", 1e-6)):
        if abs(seconds) >= size * 0.9995:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds * 1e9)} ns" if seconds else "0 s"


def format_ranges(numbers: Iterable[int]) -> str:
    """`0-3, 7`."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _scaled(value: float, step: float, units: tuple[str, ...]) -> str:
    """`value` in the largest unit of which it has at least one."""
    index = 0
    while abs(value) >= step * 0.9995 and index + 1 < len(units):
        value /= step
        index += 1
    return (
        f"{value:g} {units[0]}" if index == 0 and value == int(value) else f"{_digits(value)} {units[index]}"
    )


def _digits(value: float) -> str:
    """Three significant digits without an exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
