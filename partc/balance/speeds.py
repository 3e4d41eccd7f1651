"""Measured over planned seconds of every device and of the links, smoothed.

Links have one ratio together: what a step takes beyond all computing, over what the plan reckons for its messages. So
the planned seconds of a step, scaled, are those that were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

LINKS = "->"
"""Key of the links among the names of devices."""

WEIGHT = 1 / 8
"""The weight of the newest window, as TCP smooths round trips (RFC 6298). Noise of ±15 % becomes one of ±2 % (standard
deviation); half the speed shows as a quarter more time after two windows."""

Ratios = Mapping[str, float]
"""Device, or `LINKS` → measured over planned seconds."""
Seconds = Mapping[str, float]
"""Device, or `LINKS` → seconds of one step."""


@dataclass(frozen=True)
class Speed:
    """One device: how much longer it takes than planned."""

    ratio: float
    """Measured over planned seconds."""
    windows: int
    """Windows in it."""
    seen: float
    """Time of the last one, seconds."""


class Speeds:
    """The ratios of late.

    A device that computes nothing is not measured. It keeps its ratio until that is forgotten: then it counts as the
    median of the others does, so that a phone that was hot is tried again some time.
    """

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self._speeds: dict[str, Speed] = {}

    def update(self, measured: Seconds, planned: Seconds, now: float) -> None:
        """Take the seconds of one window."""
        for name, ratio in ratios_of(measured, planned).items():
            before = self._speeds.get(name)
            windows = before.windows + 1 if before else 1
            weight = max(WEIGHT, 1 / windows)  # the first windows have equal weights
            mean = ratio if before is None else before.ratio + weight * (ratio - before.ratio)
            self._speeds[name] = Speed(mean, windows, now)

    def forget(self, before: float) -> None:
        """Leave out what was measured before that time."""
        self._speeds = {name: speed for name, speed in self._speeds.items() if speed.seen >= before}

    def ratios(self, names: Iterable[str]) -> Ratios:
        """The ratio of each of these devices, and of the links."""
        return filled({name: speed.ratio for name, speed in self._speeds.items()}, names)


def ratios_of(measured: Seconds, planned: Seconds) -> dict[str, float]:
    """Measured over planned seconds, where both are above 0."""
    return {
        name: seconds / planned[name]
        for name, seconds in measured.items()
        if seconds > 0 and planned.get(name, 0) > 0
    }


def filled(known: Ratios, names: Iterable[str]) -> Ratios:
    """The ratios of all; a device's that is not known is the median of those that are: most errors are common."""
    devices = [ratio for name, ratio in known.items() if name != LINKS]
    usual = median(devices) if devices else 1.0
    return {LINKS: known.get(LINKS, 1.0), **{name: known.get(name, usual) for name in names}}
