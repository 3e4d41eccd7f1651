"""`limits` of a device in devices.yaml: the point at which its work shall move to other devices."""

from __future__ import annotations

from partc.config.section import Section
from partc.config.units import parse_bytes, parse_celsius, parse_percent
from partc.format.readings import Limits

_KEYS = ("battery", "temperature", "memory")


def read_limits(device: Section) -> Limits | None:
    """The limits of a device; None where there are none.

    Raises:
        ConfigError: an unknown key, another unit, or a battery of more than 100 %.
    """
    if "limits" not in device:
        return None
    section = device.section("limits")
    section.allow(_KEYS)
    if not section.data:
        raise device.error(
            "`limits` is empty", "limits", hint="write `limits: {battery: 30 %}`, or remove it"
        )
    return Limits(
        battery=section.quantity("battery", parse_percent),
        temperature_c=section.quantity("temperature", parse_celsius),
        memory_bytes=section.quantity("memory", parse_bytes),
    )
