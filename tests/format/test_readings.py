"""Limits beside readings."""

from __future__ import annotations

import pytest

from partc.format.readings import Limits, Readings, reached

ALL = Limits(battery=0.3, temperature_c=80.0, memory_bytes=300)


def test_what_is_missing_reaches_no_limit() -> None:
    assert reached(ALL, Readings()) == []


def test_without_limits_nothing_is_reached() -> None:
    worst = Readings(battery=0.0, temperature_c=150.0, memory_available_bytes=0, is_plugged=False)
    assert reached(None, worst) == reached(Limits(), worst) == []
    assert reached(ALL, worst) == ["battery", "temperature", "memory"]


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        (Readings(battery=0.30, is_plugged=False), []),
        (Readings(battery=0.29, is_plugged=False), ["battery"]),
        (Readings(battery=0.05, is_plugged=True), []),
        (Readings(battery=0.05), ["battery"]),
        (Readings(temperature_c=80.0), []),
        (Readings(temperature_c=80.1), ["temperature"]),
        (Readings(memory_available_bytes=300), []),
        (Readings(memory_available_bytes=299), ["memory"]),
    ],
)
def test_each_limit(readings: Readings, expected: list[str]) -> None:
    assert reached(ALL, readings) == expected
