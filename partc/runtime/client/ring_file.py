"""BUILD/runs/ring.json: the local ring that runs now, so that other commands find it (`--connect auto`).

```
{"source": "127.0.0.1:40213", "insecure": false, "pid": 4711}
```

`pid` is the process that started the ring; the file of one that has ended counts as absent.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from partc.atomic import write_file

RING_FILE = Path("runs", "ring.json")


class RunningRing(msgspec.Struct, frozen=True):
    """A ring that runs on this machine."""

    source: str
    """HOST:PORT of its source."""
    insecure: bool
    """Whether it runs without keys."""
    pid: int
    """The process that started it."""


@contextlib.contextmanager
def told_in_file(build: Path, source: str, *, insecure: bool) -> Iterator[None]:
    """Keep runs/ring.json while a ring runs; a build that cannot be written in goes without."""
    path = build / RING_FILE
    ring = RunningRing(source, insecure, os.getpid())
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        write_file(path, msgspec.json.encode(ring) + b"\n")
    try:
        yield
    finally:
        if _read(path) == ring:  # a ring that was started later has its own
            path.unlink(missing_ok=True)


def running_ring(build: Path) -> RunningRing | None:
    """The local ring of a build that runs now; None: there is none."""
    ring = _read(build / RING_FILE)
    return ring if ring is not None and _lives(ring.pid) else None


def _read(path: Path) -> RunningRing | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunningRing)
    except (OSError, msgspec.DecodeError):
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
