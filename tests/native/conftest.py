"""The native runner of this source tree, built once and kept in build/native."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
PRESET = os.environ.get("PARTC_NATIVE_PRESET", "dev")
"""`asan` builds and runs everything with the sanitizers."""

Program = Callable[..., str]
"""Runs a program of native/tests with arguments and input; its output."""


def _missing() -> str | None:
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


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder with the programs of native/tests; it is skipped where they cannot be built, but not in CI."""
    missing = _missing()
    if missing and os.environ.get("CI"):
        pytest.fail(f"the native runner must be tested in CI: {missing}", pytrace=False)
    if missing:
        pytest.skip(f"tier native: {missing}")
    return compile_native(PRESET)


@pytest.fixture(scope="session")
def program(built: Path) -> Program:
    """Runs a program, which must end well."""

    def run(name: str, *arguments: str | Path, given: str = "") -> str:
        command = [str(built / name), *map(str, arguments)]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{done.returncode}: {done.stderr[-4000:]}"
        return done.stdout

    return run
