"""Run records: what every device and link really took, one JSON file a run in `build/runs/`.

```
{"format": "partc-run/2", "plan_id": …, "started": "2026-01-31T12:00:00Z", "local": true,
 "requests": [{"prompt_tokens", "new_tokens", "batch", "elapsed_s",
               "drafted", "accepted",
               "timings": {device: {"columns": […], "table": [[…]]}}}]}
```

`drafted` and `accepted` count guessed tokens, and are there where any were. `local` says that all runners shared one
clock. `runs/` is no part of the bundle: nothing in it is hashed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from partc.atomic import write_file
from partc.config.section import LARGEST, Section
from partc.errors import BundleError, ConfigError
from partc.format.json_text import read_json
from partc.runtime.client.results import GuessCounts, Result, Timings

FORMAT = "partc-run/2"
RUNS = "runs"
KEPT = 20
"""Records that stay; a new one pushes out the oldest."""
COLUMNS = ("step", "started_s", "compute_s", "queue_s", "sent_bytes", "received_bytes", "epoch")
"""Columns of every device; behind them `wait_s:PEER` for every link."""
WAIT = "wait_s:"
_NAME = re.compile(r"(\d{8}T\d{6})-(\d+)\.json")
_STARTED = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")
_AGAIN = "run again: partc run BUILD --prompt TEXT"


@dataclass(frozen=True)
class RequestRecord:
    """The measurements of one request."""

    prompt_tokens: int
    """Tokens of the longest prompt."""
    new_tokens: int
    """Tokens of the longest answer; 0 for a model that does not generate."""
    batch: int
    elapsed_s: float
    timings: Mapping[str, Timings]
    drafted: int = 0
    """Guessed tokens that steps took; 0 in records of before they were counted."""
    accepted: int = 0
    """Those that were right."""

    @property
    def guesses(self) -> GuessCounts:
        """The guesses among its tokens; requests of several sequences have none."""
        return GuessCounts(self.new_tokens * self.batch, self.drafted, self.accepted)


@dataclass(frozen=True)
class RunRecord:
    """The measurements of one run."""

    plan_id: str
    started: str
    """UTC, ISO 8601."""
    local: bool
    """Whether the runners were processes of one machine, with one clock."""
    requests: tuple[RequestRecord, ...]


def write_record(
    build: Path, plan_id: str, results: Sequence[Result], started: datetime, *, local: bool
) -> Path:
    """Write the record of a run in one step and keep the newest `KEPT`; its path.

    Raises:
        OSError: the folder cannot be written in.
    """
    data = {
        "format": FORMAT,
        "plan_id": plan_id,
        "started": started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "local": local,
        "requests": [_request_json(result) for result in results],
    }
    folder = build / RUNS
    folder.mkdir(exist_ok=True)
    file = _put(folder, f"{started.astimezone(UTC):%Y%m%dT%H%M%S}", json.dumps(data) + "\n")
    for old in record_files(build)[KEPT:]:
        with suppress(FileNotFoundError):  # another run may be tidying as well
            old.unlink()
    return file


def record_files(build: Path) -> list[Path]:
    """The records of a build, the newest first."""
    files = [(match, path) for path in (build / RUNS).glob("*.json") if (match := _NAME.fullmatch(path.name))]
    named = [(match, path) for match, path in files if path.exists() and path.stat().st_size]
    return [path for _, path in sorted(named, key=lambda item: (item[0][1], int(item[0][2])), reverse=True)]


def read_record(file: Path) -> RunRecord:
    """A record as objects.

    Raises:
        BundleError: there is no such file, or it is not a run record, or a damaged one.
    """
    if file.is_dir():
        raise BundleError(
            "this is a folder, not a file", where=str(file), hint=f"give a file of BUILD/{RUNS}"
        )
    data = read_json(file, BundleError, _AGAIN)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BundleError(f"not a run record of format {FORMAT}", where=str(file), hint=_AGAIN)
    try:
        return _record(Section(data, ""))
    except ConfigError as error:
        place = f"{error.where}: " if error.where else ""
        message = f"a damaged run record: {place}{error.message}"
        raise BundleError(message, where=str(file), hint=_AGAIN) from error


def _put(folder: Path, stamp: str, text: str) -> Path:
    """Write a file under the first free number of `stamp`; it is empty, which no record is, or complete."""
    file = next(file for file in (folder / f"{stamp}-{number}.json" for number in count()) if _claim(file))
    try:
        write_file(file, text)
    except OSError:
        file.unlink(missing_ok=True)
        raise
    return file


def _claim(file: Path) -> bool:
    """Make an empty file; False where there is one already, of another run in the same second."""
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _request_json(result: Result) -> dict[str, Any]:
    return {
        "prompt_tokens": max(map(len, result.prompts), default=0),
        "new_tokens": max(map(len, result.tokens), default=0),
        "batch": max(1, len(result.prompts)),
        "elapsed_s": result.elapsed_s,
        **({"drafted": result.drafted, "accepted": result.accepted} if result.drafted else {}),
        "timings": {
            device: {"columns": list(timings.columns), "table": timings.table.tolist()}
            for device, timings in result.timings.items()
        },
    }


def _record(top: Section) -> RunRecord:
    started, local = top.text("started"), top.require("local", "local")
    if not _STARTED.fullmatch(started):
        raise top.error("expected a time such as 2026-01-31T12:00:00Z", "started")
    if not isinstance(local, bool):
        raise top.error("expected true or false", "local")
    requests = tuple(_request(item) for item in top.sections("requests"))
    if not requests:
        raise top.error("expected at least one request", "requests")
    return RunRecord(top.text("plan_id"), started, local, requests)


def _request(section: Section) -> RequestRecord:
    for name in ("prompt_tokens", "new_tokens", "batch", "timings"):
        section.require(name, name)
    tables = section.section("timings")
    if not tables.data:
        raise section.error("expected the times of at least one device", "timings")
    return RequestRecord(
        prompt_tokens=section.whole("prompt_tokens", 0, 0),
        new_tokens=section.whole("new_tokens", 0, 0),
        batch=section.whole("batch", 1),
        elapsed_s=section.number("elapsed_s"),
        timings={name: _timings(tables.section(name)) for name in tables.data},
        drafted=(drafted := section.whole("drafted", 0, 0)),
        accepted=_accepted(section, drafted),
    )


def _accepted(section: Section, drafted: int) -> int:
    accepted = section.whole("accepted", 0, 0)
    if accepted > drafted:
        raise section.error(f"expected no more than `drafted` ({drafted}), found {accepted}", "accepted")
    return accepted


def _timings(section: Section) -> Timings:
    """The table of a device; steps are whole numbers that rise, and nothing took less than no time."""
    columns = section.require("columns", "columns")
    if not isinstance(columns, list) or not _are_columns(columns):
        raise section.error(f"expected {', '.join(COLUMNS)}, and {WAIT}DEVICE of other devices", "columns")
    rows = section.require("table", "table")
    if not isinstance(rows, list) or not all(_is_row(row, len(columns)) for row in rows):
        raise section.error(f"expected rows of {len(columns)} finite numbers of at least zero", "table")
    table = np.array(rows, np.float64).reshape(-1, len(columns))
    steps = table[:, 0]
    if (steps != np.floor(steps)).any() or (np.diff(steps) <= 0).any():
        raise section.error("expected steps that are whole numbers and rise from row to row", "table")
    return Timings(tuple(columns), table)


def _are_columns(names: Sequence[object]) -> bool:
    own, waits = names[: len(COLUMNS)], names[len(COLUMNS) :]
    each = set(map(str, names))
    return (
        tuple(own) == COLUMNS
        and all(isinstance(name, str) and len(name) > len(WAIT) and name.startswith(WAIT) for name in waits)
        and len(each) == len(names)
    )


def _is_row(row: object, length: int) -> bool:
    return isinstance(row, list) and len(row) == length and all(map(_is_time, row))


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LARGEST
