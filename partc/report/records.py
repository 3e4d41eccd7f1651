"""Run records: what every device and link really took, one JSON file a run in `build/runs/`.

```
{"format": "partc-run/1", "plan_id": …, "started": "2026-01-31T12:00:00Z", "local": true,
 "requests": [{"prompt_tokens", "new_tokens", "batch", "elapsed_s",
               "timings": {device: {"columns": […], "table": [[…]]}}}]}
```

`local` says that all runners shared one clock. `runs/` is no part of the bundle: nothing in it is hashed.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from partc.errors import BundleError
from partc.runtime.results import Result, Timings

FORMAT = "partc-run/1"
RUNS = "runs"
KEPT = 20
"""Records that stay; a new one pushes out the oldest."""
_NAME = re.compile(r"(\d{8}T\d{6})-(\d+)\.json")
_AGAIN = "run again: partc run BUILD --prompt TEXT"


@dataclass(frozen=True)
class RequestRecord:
    """What one request took."""

    prompt_tokens: int
    """Of the longest sequence."""
    new_tokens: int
    """Of the longest sequence; 0 of a model that does not generate."""
    batch: int
    elapsed_s: float
    timings: Mapping[str, Timings]


@dataclass(frozen=True)
class RunRecord:
    """What one run took."""

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
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError("no such file", where=str(file), hint=_AGAIN) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(f"not a run record: {error}", where=str(file), hint=_AGAIN) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BundleError(f"not a run record of format {FORMAT}", where=str(file), hint=_AGAIN)
    try:
        requests = tuple(_request(item) for item in data["requests"])
        return RunRecord(str(data["plan_id"]), str(data["started"]), bool(data["local"]), requests)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(f"a damaged run record: {error!r}", where=str(file), hint=_AGAIN) from error


def _put(folder: Path, stamp: str, text: str) -> Path:
    """Write a file under the first free number of `stamp`; it is empty, which no record is, or complete."""
    draft = folder / f".{stamp}-{secrets.token_hex(4)}.tmp"
    file = next(file for file in (folder / f"{stamp}-{number}.json" for number in count()) if _claim(file))
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
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
        "timings": {
            device: {"columns": list(timings.columns), "table": timings.table.tolist()}
            for device, timings in result.timings.items()
        },
    }


def _request(data: Mapping[str, Any]) -> RequestRecord:
    timings = {str(name): _timings(item) for name, item in data["timings"].items()}
    prompt, new, batch = (int(data[name]) for name in ("prompt_tokens", "new_tokens", "batch"))
    return RequestRecord(prompt, new, batch, float(data["elapsed_s"]), timings)


def _timings(data: Mapping[str, Any]) -> Timings:
    columns = tuple(str(name) for name in data["columns"])
    table = np.array(data["table"], np.float64).reshape(-1, len(columns))
    if not np.isfinite(table).all():
        raise ValueError("a time that is no number")
    return Timings(columns, table)
