"""The lines of `partc watch --json`: one state of a ring each, with what the plan says beside it.

```
{"time": "2026-01-31T12:00:00.250Z", "planned_s": {"phone": 0.000203, …}, "ring": {"epoch": 0, …}}
```

`ring` is the struct RingStatus of docs/wire.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from partc.errors import UserError
from partc.format.status import RingStatus
from partc.planner.model.device_times import PlannedTimes


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the feed."""

    time: str
    """UTC, ISO 8601."""
    planned_s: dict[str, float]
    """Device → seconds of computing in a step by the plan, where that is known."""
    ring: RingStatus
    cannot: list[str] = []
    """Lines about the capabilities that the ring does not have."""
    lost_s: float | None = None
    """Seconds for which the source has told nothing, where that is too long; `ring` is what it told last."""


def make_line(ring: RingStatus, plan: PlannedTimes | None, cannot: Sequence[str] = ()) -> Line:
    """The line of a state that has just come."""
    return Line(
        time=_now(), planned_s={} if plan is None else plan.in_ring(ring), ring=ring, cannot=list(cannot)
    )


def lost_line(last: Line, lost_s: float) -> Line:
    """The line of a ring whose source tells nothing any more."""
    return replace(last, time=_now(), lost_s=lost_s)


def missing_figures(line: Line) -> list[str]:
    """The devices that are connected, and whose figures have not come: none, or none of a step that is under way."""
    ring = line.ring
    return [
        device.device
        for device in ring.devices
        if device.is_present
        and (
            device.answer_s is None
            or (ring.running > 0 and device.submodules and device.step_s(ring.phase) is None)
        )
    ]


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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
