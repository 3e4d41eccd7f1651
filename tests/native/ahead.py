"""The native runner is built from the start of a session on, beside the tests that do not need it.

Those that do come last. Whoever needs it first waits for the rest (`compiled.py`), and is told of an error by a build
of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.native.compiled import PRESET, compile_native, missing

_ROOT = Path(__file__).parents[2]


def put_last(items: list[pytest.Item]) -> None:
    """Move the files with tests of the native runner behind all others; the order is kept otherwise."""
    native = {item.path for item in items if item.get_closest_marker("native")}
    items.sort(key=lambda item: item.path in native)


@contextlib.contextmanager
def building(items: Sequence[pytest.Item]) -> Iterator[None]:
    """Build the native runner meanwhile, if one of these tests needs it and it can be built here."""
    if missing() or not any(item.get_closest_marker("native") for item in items):
        yield
        return
    build = subprocess.Popen(
        [sys.executable, "-m", "tests.native.ahead"],
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(build.pid, signal.SIGTERM)
        build.wait()


if __name__ == "__main__":
    os.nice(5)  # tests that mind the time go first
    compile_native(PRESET)
