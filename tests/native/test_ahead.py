"""The build beside the tests: it runs only where somebody needs it, and ends with the session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.native import ahead


def item(name: str, *marks: str) -> pytest.Item:
    made: Any = SimpleNamespace(name=name, path=Path(name[0]), get_closest_marker=lambda mark: mark in marks)
    return cast(pytest.Item, made)


def test_files_that_need_the_runner_come_last() -> None:
    items = [
        item("a1"),
        item("b1"),
        item("b2", "native"),
        item("c1", "slow"),
        item("d1", "native"),
        item("e1"),
    ]
    ahead.put_last(items)
    assert [one.name for one in items] == ["a1", "c1", "e1", "b1", "b2", "d1"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The builds that were started, each of which never ends by itself."""
    builds: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        assert command == [sys.executable, "-m", "tests.native.ahead"]
        builds.append(popen([sys.executable, "-c", "import time; time.sleep(600)"], **options))
        return builds[-1]

    monkeypatch.setattr(ahead, "missing", lambda: None)
    monkeypatch.setattr(subprocess, "Popen", start)
    return builds


def test_a_build_ends_with_the_session(started: list[subprocess.Popen[bytes]]) -> None:
    with ahead.building([item("a1"), item("b1", "native")]):
        (build,) = started
        assert build.poll() is None
    assert build.poll() is not None


def test_nothing_is_built_that_nobody_needs(
    started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ahead.building([item("a1"), item("b1", "slow")]):
        pass
    monkeypatch.setattr(ahead, "missing", lambda: "no cmake")
    with ahead.building([item("a1", "native")]):
        pass
    assert started == []
