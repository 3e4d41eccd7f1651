"""Fixtures of the native runner's tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from partc.runtime.shell.keys import make_keys
from tests.native.compiled import NATIVE, native_programs, need

Program = Callable[..., str]
"""Runs a program of native/tests with arguments and input; its output."""


@pytest.fixture(autouse=True)
def leaks_of_opencl(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the preset asan: PoCL keeps what it compiled, and LSan ends over its libraries' thread-local data."""
    if request.node.get_closest_marker("opencl"):
        suppressions = NATIVE / "lsan.supp"
        monkeypatch.setenv("LSAN_OPTIONS", f"suppressions={suppressions}:print_suppressions=0:use_tls=0")


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder with the programs of native/tests."""
    return native_programs()


@pytest.fixture(scope="session")
def program(built: Path) -> Program:
    """Runs a program, which must end well."""

    def run(name: str, *arguments: str | Path, given: str = "") -> str:
        command = [str(built / name), *map(str, arguments)]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{done.returncode}: {done.stderr[-4000:]}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def program_file(built: Path) -> Path:
    """The program of `tests.native.transports`."""
    need(None if (built / "transport").exists() else "no libsodium with its header")
    return built / "transport"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keys of two devices."""
    folder = tmp_path_factory.mktemp("build")
    make_keys(folder, ["phone", "board"], "phone")
    return folder
