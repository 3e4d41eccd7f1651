"""The lines of `partc watch --json`: one state of a ring each, with what the plan says beside it.

```
{"time": "2026-01-31T12:00:00.250Z", "planned_s": {"phone": 0.000203, …}, "ring": {"epoch": 0, …}}
```

`ring` is the struct RingStatus of docs/wire.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from partc.errors import PartcError, UserError
from partc.format.status import DeviceStatus, RingStatus
from partc.plan.device_times import PlannedTimes
from partc.plan.file import PLAN_FILE, read_plan


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the feed."""

    time: str
    """UTC, ISO 8601."""
    planned_s: dict[str, float]
    """Device → seconds of computing in a step by the plan, where that is known."""
    ring: RingStatus


def device_s(device: DeviceStatus, phase: str) -> float | None:
    """Seconds that a device computes in a step of a phase; None: nothing has been measured."""
    works = () if device.vitals is None else device.vitals.work
    found = [work.seconds for work in works if work.phase == phase]
    return sum(found) if found else None


def planned_times(build: Path) -> PlannedTimes | None:
    """The times of BUILD/plan.json; None without a good one."""
    try:
        return PlannedTimes.of(read_plan(build / PLAN_FILE))
    except PartcError:
        return None


def make_line(ring: RingStatus, plan: PlannedTimes | None) -> Line:
    """The line of a state that has just come."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Line(time=now, planned_s={} if plan is None else dict(_planned(ring, plan)), ring=ring)


def _planned(ring: RingStatus, plan: PlannedTimes) -> Iterator[tuple[str, float]]:
    for device in ring.devices:
        seconds = plan.device_s(device.device, device.submodules, ring.phase)
        if seconds is not None:
            yield device.device, seconds


def write_line(line: Line) -> str:
    """A line as JSON, without its end."""
    return msgspec.json.encode(line).decode()


def read_lines(texts: Iterable[str | bytes], where: str) -> Iterator[Line]:
    """The lines of a feed that was kept.

    Raises:
        UserError: a line is none; names its number.
    """
    for number, text in enumerate(texts, 1):
        try:
            yield msgspec.json.decode(text, type=Line)
        except msgspec.DecodeError as error:
            hint = "partc watch BUILD --json > FILE writes such lines"
            place = f"{where}: line {number}"
            raise UserError(f"not a line of a feed: {error}", where=place, hint=hint) from None
