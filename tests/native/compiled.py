"""The native runner of this source tree, built once and kept in build/native."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
PRESET = os.environ.get("PARTC_NATIVE_PRESET", "dev")
"""`asan` and `tsan` build and run everything with sanitizers."""
counts_memory = pytest.mark.skipif(
    PRESET in ("asan", "tsan"), reason="what a sanitizer keeps beside the runner's memory counts as its own"
)


@cache
def native_programs() -> Path:
    """The folder with the runner and the programs of native/tests.

    The test is skipped where they cannot be built, but not in CI.
    """
    need(missing())
    return compile_native(PRESET)


def native_runner() -> Path:
    """The native runner; skipped where there is no libsodium, but not in CI."""
    runner = native_programs() / "partc-runner"
    need(None if runner.exists() else "no libsodium with its header")
    return runner


def need(missing: str | None) -> None:
    """Skip a test for want of something, or fail in CI, where everything must be there."""
    if missing and os.environ.get("CI"):
        pytest.fail(f"the native runner must be tested in CI: {missing}", pytrace=False)
    if missing:
        pytest.skip(f"tier native: {missing}")


def missing() -> str | None:
    """What a build of the native runner lacks here; None where it can be built."""
    if not shutil.which("cmake"):
        return "no cmake"
    if not (shutil.which("ninja") or shutil.which("make")):
        return "neither ninja nor make"
    found = any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++"))
    return None if found else "no C++ compiler"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=NATIVE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def compile_native(preset: str) -> Path:
    """The folder with the programs of native/tests, built as a preset says."""
    folder = NATIVE.parent / "build" / "native" / preset
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # other processes of pytest-xdist wait, and then find it done
        fcntl.flock(lock, fcntl.LOCK_EX)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        _run(["cmake", "--preset", preset, *([] if (folder / "CMakeCache.txt").exists() else generator)])
        _run(["cmake", "--build", "--preset", preset, "--parallel", "2"])
    return folder
