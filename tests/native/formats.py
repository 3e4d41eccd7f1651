"""The readers of native/src/format, asked over a pipe."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack


class Refused(Exception):
    """A reader took the bytes for wrong."""


class Formats:
    """A process that reads formats."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def read(self, name: str, content: bytes | str) -> bytes:
        """What a reader makes of some bytes.

        Raises:
            Refused: with its error.
        """
        data = content.encode() if isinstance(content, str) else content
        answer = ask(self._process, msgpack.packb([name, data]))
        fine, found = msgpack.unpackb(answer)
        if not fine:
            raise Refused(found)
        return bytes(found)


def ask(process: subprocess.Popen[bytes], request: bytes) -> bytes:
    """Send a frame, and wait for the one that answers it."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(struct.pack("<I", len(request)) + request)
    process.stdin.flush()
    head = process.stdout.read(4)
    assert len(head) == 4, f"it ended with {process.wait()}"
    return process.stdout.read(struct.unpack("<I", head)[0])


@contextmanager
def started(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of native/tests, until the end of the block."""
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(timeout=60) == 0
