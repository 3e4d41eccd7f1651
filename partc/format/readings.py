"""Readings of a device's sensors, and which of its limits (`limits:` in devices.yaml) they have reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from partc.format.fields import Count

Share = Annotated[float, Meta(ge=0, le=1)]

LimitName = Literal["battery", "temperature", "memory"]


class Readings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Readings of a device's sensors. Null: the system does not tell."""

    memory_available_bytes: Count | None = None
    """Memory that programs can still take without swapping."""
    memory_own_bytes: Count | None = None
    """Memory of the runner's process that is resident."""
    cpu_pressure: Share | None = None
    """Share of the last 10 s in which some task of the machine waited for a core."""
    memory_pressure: Share | None = None
    """Share of the last 10 s in which some task of the machine waited for memory."""
    temperature_c: float | None = None
    """The hottest thermal zone, degrees Celsius."""
    battery: Share | None = None
    """Charge of the battery."""
    is_plugged: bool | None = None
    """Whether the machine has power from outside."""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one device; a ring moves its sub-modules elsewhere where it reaches one. Null: no limit."""

    battery: Share | None = None
    """The least charge; it does not count while the device is plugged in."""
    temperature_c: float | None = None
    """The highest temperature, degrees Celsius."""
    memory_bytes: Count | None = None
    """The least memory available, bytes."""


def reached(limits: Limits | None, readings: Readings) -> list[LimitName]:
    """The limits that a device has reached; a limit whose reading is missing is not reached."""
    return [] if limits is None else list(_reached(limits, readings))


def _reached(limits: Limits, readings: Readings) -> Iterator[LimitName]:
    if not readings.is_plugged and _is_less(readings.battery, limits.battery):
        yield "battery"
    if _is_less(limits.temperature_c, readings.temperature_c):
        yield "temperature"
    if _is_less(readings.memory_available_bytes, limits.memory_bytes):
        yield "memory"


def _is_less(low: float | None, high: float | None) -> bool:
    """Whether both are known, and the first is less than the second."""
    return low is not None and high is not None and low < high
