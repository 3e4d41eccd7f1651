"""Copies files and parts of files without reading them: the system shares the blocks where it can (reflinks)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from stat import S_IMODE
from typing import BinaryIO

_STEP_BYTES = 1 << 26
"""Copied between two reports of how far it is."""
_BUFFER_BYTES = 1 << 22

Report = Callable[[int], None]
"""Called with the bytes copied since the last call."""


def copy_file(source: BinaryIO, target: Path, report: Report) -> None:
    """Copy an open file with its mode and its time of modification; never a link, which onnx refuses.

    Raises:
        OSError: it cannot be read or written.
    """
    status = os.fstat(source.fileno())
    with target.open("wb") as new:
        copy_range(source, 0, new, 0, status.st_size, report)
        os.fchmod(new.fileno(), S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def copy_range(
    source: BinaryIO, start: int, target: BinaryIO, offset: int, count: int, report: Report
) -> None:
    """Copy `count` bytes from `start` of one open file to `offset` of another, whose buffer is empty.

    Raises:
        OSError: it cannot be read or written, or ends too early.
    """
    done = 0
    while done < count:
        wanted = min(_STEP_BYTES, count - done)
        step = _copy(source.fileno(), start + done, target.fileno(), offset + done, wanted)
        if step == 0:
            raise OSError(f"the file ends after {done} of {count} bytes")
        done += step
        report(step)


def _copy(source: int, start: int, target: int, offset: int, count: int) -> int:
    """Copy some of the bytes; returns how many, 0 at the end of the file."""
    try:
        return os.copy_file_range(source, target, count, start, offset)
    except OSError:  # other file systems, old kernels, sandboxes: each refuses with an error of its own
        return os.pwrite(target, os.pread(source, min(count, _BUFFER_BYTES), start), offset)
