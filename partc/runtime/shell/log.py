"""Lines of a log on standard error: the events of `partc/format/logs.py`, as text or as JSON.

```
2026-01-31T12:00:00.250Z warning lost laptop: what board had is lost; requests go on from what the others have
{"time":"2026-01-31T12:00:00.250Z","level":"warning","event":"lost","device":"laptop","devices":"board"}
```
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from partc.errors import InternalError
from partc.format.logs import BY_NAME, NO_LEVEL, LogEvent, Value, is_written
from partc.printable import one_line

LONGEST_VALUE = 500
"""Characters of a field; others may have made its text."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log that is wanted."""

    level: str = "info"
    """The least level that is written, or `none`."""
    format: str = "text"
    """`text` or `json`."""


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Writes the log of a device, or of a server."""

    device: str
    settings: LogSettings = LogSettings()

    def write(self, name: str, fields: Mapping[str, Value]) -> None:
        """Write an event, if its level is wanted; a log that cannot be written is no reason to end."""
        event = BY_NAME[name]
        if not is_written(event, self.settings.level):
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        form = json_line if self.settings.format == "json" else text_line
        try:
            print(form(event, self.device, fields, time), file=sys.stderr, flush=True)
        except OSError:
            return


SILENT = LogWriter("", LogSettings(NO_LEVEL))
"""Writes nothing."""


def text_line(event: LogEvent, device: str, fields: Mapping[str, Value], time: str) -> str:
    """An event as a line for people.

    Raises:
        InternalError: the fields are not those of the table.
    """
    _check(event, fields)
    shown = {
        name: f"{value:.3f}" if isinstance(value, float) else one_line(str(value), LONGEST_VALUE)
        for name, value in fields.items()
    }
    return f"{time} {event.level} {event.name} {device}: {event.sentence.format_map(shown)}"


def json_line(event: LogEvent, device: str, fields: Mapping[str, Value], time: str) -> str:
    """An event as a line for programs; raises as `text_line`."""
    _check(event, fields)
    head = {"time": time, "level": event.level, "event": event.name, "device": device}
    return json.dumps(head | {name: _json(value) for name, value in fields.items()}, separators=(",", ":"))


def _check(event: LogEvent, fields: Mapping[str, Value]) -> None:
    if tuple(fields) != event.fields:
        raise InternalError(f"the event {event.name} has the fields {event.fields}, not {tuple(fields)}")


def _json(value: Value) -> Value:
    match value:
        case float():
            return round(value, 3)
        case str():
            return one_line(value, LONGEST_VALUE)
        case _:
            return value
