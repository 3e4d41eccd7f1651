"""The table of `partc watch`: a ring as it is, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from partc.cli.status_feed import Line
from partc.cli.tables import table
from partc.config.units import format_bytes, format_seconds
from partc.format.logs import ranges_text
from partc.format.readings import LimitName, Readings
from partc.format.status import Change, DeviceStatus

_MISSING = "-"
_SHOWN_CHANGES = 3
_WIDTH = 80
_COLUMNS = ("device", "state", "modules", "step", "plan", "queue", "own", "free", "temp", "power", "links")


def _state(device: DeviceStatus, line: Line) -> str:
    """`ok`, or the reason why nothing is known of a device now."""
    if line.lost_s is not None:
        return "unknown"
    if not device.is_present:
        return "absent" if device.away_s is None else "lost"
    return "silent" if device.answer_s is None else "ok"


def status_blocks(line: Line) -> list[Table | str]:
    """The table, and below it the pace, what is wrong, and the last changes of placement."""
    ring = line.ring
    rows = [_row(device, line) for device in ring.devices]
    if line.lost_s is not None:
        lost = (
            f"The source has told nothing for {format_seconds(line.lost_s)}; this is how its ring was placed."
        )
        return [
            table(f"Ring at {line.time}, epoch {ring.epoch}", _COLUMNS, rows, right=_COLUMNS[3:], tight=True),
            lost,
        ]
    title = f"Ring at {line.time}, epoch {ring.epoch} (+ plugged in)"
    return [
        table(title, _COLUMNS, rows, right=_COLUMNS[3:], tight=True),
        _pace(line),
        *(text for device in ring.devices for text in _remarks(device)),
        *(_change(change) for change in ring.changes[-_SHOWN_CHANGES:]),
        *line.cannot,
    ]


def _row(device: DeviceStatus, line: Line) -> Sequence[str]:
    state = _state(device, line)
    # Figures of before would look like those of now.
    vitals = device.vitals if state == "ok" else None
    measured = device.step_s(line.ring.phase) if state == "ok" else None
    planned = line.planned_s.get(device.device) if state == "ok" else None
    readings = Readings() if vitals is None else vitals.readings
    return [
        device.device,
        state,
        ranges_text(device.submodules),
        _MISSING if measured is None else format_seconds(measured),
        _MISSING if planned is None else format_seconds(planned),
        _MISSING if vitals is None else str(vitals.queue),
        _short(readings.memory_own_bytes),
        _short(readings.memory_available_bytes),
        _MISSING if readings.temperature_c is None else f"{readings.temperature_c:.0f} C",
        _power(readings),
        _MISSING if vitals is None else f"{sum(vitals.links.values())}/{len(vitals.links)}",
    ]


def _bytes(count: int | None) -> str:
    return _MISSING if count is None else format_bytes(count)


def _short(count: int | None) -> str:
    """Bytes in at most seven characters, so that a row has room in 80 columns: `77 MiB`, `2.2 GiB`."""
    if count is None:
        return _MISSING
    number, unit = format_bytes(count).split()
    return f"{float(number):.{0 if float(number) >= 10 else 1}f} {unit}"


def _power(readings: Readings) -> str:
    charge = _MISSING if readings.battery is None else f"{readings.battery:.0%}"
    return f"{charge}+" if readings.is_plugged else charge


def _pace(line: Line) -> str:
    """`5.80 ms per token (plan: 5.74 ms); requests: 1 in flight, 0 waiting`."""
    ring = line.ring
    unit = "token" if ring.phase == "decode" else "step"
    steps = ring.main_steps
    pace = f"{format_seconds(steps.seconds)} per {unit}" if steps else f"no {unit} so far"
    predicted = ring.predicted.get(f"{ring.phase}_s")
    plan = "" if predicted is None else f" (plan: {format_seconds(predicted)})"
    return f"{pace}{plan}; requests: {ring.running} in flight, {ring.waiting} waiting"


def _remarks(device: DeviceStatus) -> Iterator[str]:
    """Sentences about what is wrong with a device."""
    name, vitals = device.device, device.vitals
    if not device.is_present:
        since = "not connected" if device.away_s is None else f"lost {format_seconds(device.away_s)} ago"
        yield f"{name}: {since}"
        return
    elif device.answer_s is None:
        last = "" if device.age_s is None else f"; the last one came {format_seconds(device.age_s)} ago"
        yield f"{name}: no answer{last}"
    if vitals is None:
        return
    for peer, stands in vitals.links.items():
        if not stands:
            yield f"{name}: no link to {peer}"
    for limit in vitals.reached:
        yield f"{name}: limit reached: {limit} ({_reading(limit, vitals.readings)})"


def _reading(limit: LimitName, readings: Readings) -> str:
    match limit:
        case "battery":
            return _power(readings)
        case "temperature":
            return _MISSING if readings.temperature_c is None else f"{readings.temperature_c:.1f} C"
        case "memory":
            return f"{_bytes(readings.memory_available_bytes)} available"


def _change(change: Change) -> str:
    head = f"epoch {change.epoch}, {format_seconds(change.age_s)} ago: "
    tail = f"; stood still for {format_seconds(change.stopped_s)}"
    return f"{head}{_cut(change.cause, _WIDTH - len(head) - len(tail))}{tail}"


def _cut(text: str, width: int) -> str:
    """A text in so many characters, three of which tell of what is left out."""
    return text if len(text) <= width else f"{text[: max(0, width - 3)]}..."
