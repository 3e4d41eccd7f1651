"""Metrics of rings and their devices, in Prometheus' text format, from what their sources told last.

Nothing here asks a ring: the server watches its rings all the time, slowly. A device that is not connected has no
figures but `present` and `losses_total`; a ring that does not stand has none at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from partc.format.readings import Readings
from partc.format.status import DeviceStatus, RingStatus
from partc.serve.metrics import escaped, samples

Samples = Mapping[str, float]
"""Labels → value."""


@dataclass(frozen=True, slots=True)
class KnownRing:
    """A ring as its source told last."""

    ring: RingStatus
    planned: Mapping[str, float]
    """Device → seconds that it computes in a step, by the plan."""
    age_s: float
    """Seconds since it was told."""


@dataclass(frozen=True, slots=True)
class RingMetric:
    """A metric of every ring."""

    name: str
    kind: str
    about: str
    value: Callable[[KnownRing], float | None]


@dataclass(frozen=True, slots=True)
class DeviceMetric:
    """A metric of every device."""

    name: str
    kind: str
    about: str
    values: Callable[[DeviceStatus, KnownRing], Samples]
    """Further labels → value; those of a single value are empty."""


RING_METRICS = (
    RingMetric(
        "partc_epoch", "gauge", "Epoch of the placement in force; each change raises it.",
        lambda known: known.ring.epoch,
    ),
    RingMetric(
        "partc_moves_total", "counter", "Changes of placement that clients asked for.", lambda known: known.ring.moves
    ),
    RingMetric(
        "partc_step_seconds", "gauge", "Time of a step round the ring, the median of the last 32.",
        lambda known: None if known.ring.main_steps is None else known.ring.main_steps.seconds,
    ),
    RingMetric(
        "partc_planned_step_seconds", "gauge", "The same by the plan.",
        lambda known: known.ring.predicted.get(f"{known.ring.phase}_s"),
    ),
    RingMetric(
        "partc_status_age_seconds", "gauge", "Time since the source of the ring told all this.",
        lambda known: known.age_s,
    ),
)  # fmt: skip


def _one(value: float | None) -> Samples:
    return {} if value is None else {"": value}


def _reading(read: Callable[[Readings], float | None]) -> Callable[[DeviceStatus, KnownRing], Samples]:
    return lambda device, known: {} if device.vitals is None else _one(read(device.vitals.readings))


def _links(device: DeviceStatus, known: KnownRing) -> Samples:
    links = {} if device.vitals is None else device.vitals.links
    return {f'peer="{escaped(peer)}"': int(stands) for peer, stands in links.items()}


def _limits(device: DeviceStatus, known: KnownRing) -> Samples:
    reached = () if device.vitals is None else device.vitals.reached
    return {f'limit="{limit}"': 1 for limit in reached}


DEVICE_METRICS = (
    DeviceMetric(
        "partc_device_present", "gauge", "1 while the device is connected to the source.",
        lambda device, known: _one(int(device.is_present)),
    ),
    DeviceMetric(
        "partc_device_losses_total", "counter", "Times that the device was lost: disconnected, or silent for too long.",
        lambda device, known: _one(device.losses),
    ),
    DeviceMetric(
        "partc_device_answering", "gauge", "1 where the device has answered the last question of the source.",
        lambda device, known: _one(int(device.answer_s is not None) if device.is_present else None),
    ),
    DeviceMetric(
        "partc_device_submodules", "gauge", "Sub-modules that the device computes.",
        lambda device, known: _one(sum(last - first + 1 for first, last in device.submodules)),
    ),
    DeviceMetric(
        "partc_device_step_seconds", "gauge", "Time that the device computes in a step, by medians of the last 32.",
        lambda device, known: _one(device.step_s(known.ring.phase)),
    ),
    DeviceMetric(
        "partc_device_planned_step_seconds", "gauge", "The same by the plan.",
        lambda device, known: _one(known.planned.get(device.device)),
    ),
    DeviceMetric(
        "partc_device_queue", "gauge", "Requests that could go on, and wait for the engine of the device.",
        lambda device, known: _one(None if device.vitals is None else device.vitals.queue),
    ),
    DeviceMetric(
        "partc_device_memory_resident_bytes", "gauge", "Resident memory of the runner.",
        _reading(lambda readings: readings.memory_own_bytes),
    ),
    DeviceMetric(
        "partc_device_memory_available_bytes", "gauge", "Memory that programs can still take without swapping.",
        _reading(lambda readings: readings.memory_available_bytes),
    ),
    DeviceMetric(
        "partc_device_temperature_celsius", "gauge", "The hottest thermal zone.",
        _reading(lambda readings: readings.temperature_c),
    ),
    DeviceMetric(
        "partc_device_battery_ratio", "gauge", "Charge of the battery, 0 to 1.",
        _reading(lambda readings: readings.battery),
    ),
    DeviceMetric(
        "partc_device_plugged", "gauge", "1 while the device has power from outside.",
        _reading(lambda readings: None if readings.is_plugged is None else int(readings.is_plugged)),
    ),
    DeviceMetric("partc_device_link_up", "gauge", "1 while the link to a peer stands.", _links),
    DeviceMetric("partc_device_limit_reached", "gauge", "1 where a limit of devices.yaml is reached.", _limits),
)  # fmt: skip


def ring_lines(known: Mapping[str, KnownRing]) -> Iterator[str]:
    """All samples of rings that stand, by name."""
    for metric in RING_METRICS:
        of_rings = {_ring(name): metric.value(one) for name, one in known.items()}
        yield from samples(
            metric.name,
            metric.kind,
            metric.about,
            {key: value for key, value in of_rings.items() if value is not None},
        )
    for kind in DEVICE_METRICS:
        found = {
            ",".join(filter(None, (_ring(name), f'device="{escaped(device.device)}"', further))): value
            for name, one in known.items()
            for device in one.ring.devices
            for further, value in kind.values(device, one).items()
        }
        yield from samples(kind.name, kind.kind, kind.about, found)


def _ring(name: str) -> str:
    return f'ring="{escaped(name)}"'
