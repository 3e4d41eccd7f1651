"""Runners of a local ring that die are started again, and requests go on with them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from partc.errors import InternalError, RunError
from partc.runtime.client import keeper
from partc.runtime.client.launch import LocalRing, launch_local
from tests.runtime.bundles import LENGTH, language_model
from tests.runtime.null_tokens import null_tokens
from tests.runtime.patched import patched_engines
from tests.runtime.runners import Runners
from tests.runtime.test_faults import children

ENOUGH_S = 20.0


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = set(children())
    yield
    assert set(children()) <= before


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return language_model("null").write(tmp_path / "build")


def kill(ring: LocalRing, name: str, number: int = signal.SIGKILL) -> int:
    """The process id of the runner that was killed."""
    pid = ring.pids[name]
    os.kill(pid, number)
    return pid


def started_again(ring: LocalRing, name: str, before: int) -> int:
    """The process id of the one that took its place."""
    end = time.monotonic() + ENOUGH_S
    while ring.pids[name] == before:
        assert time.monotonic() < end, f"{name} is not started again"
        time.sleep(0.001)
    return ring.pids[name]


@pytest.mark.parametrize("victim", ["b", "c"])
def test_a_runner_that_dies_is_started_again_where_it_was(build: Path, victim: str, runners: Runners) -> None:
    with runners.launch(build, floor_s=ENOUGH_S) as ring, ring.client() as client:
        client.generate([1], 2)
        addresses = dict(ring.addresses)
        for _ in range(2):
            began = time.monotonic()
            started_again(ring, victim, kill(ring, victim))
            assert time.monotonic() - began < ENOUGH_S / 2, "it is seen at once, and not by its silence"
            client.generate([1], 3, ignore_eos=True)
        assert ring.addresses == addresses
        assert ring.failure() is None and ring.killed() is None


def test_a_restarted_ring_computes_as_before(build: Path, runners: Runners) -> None:
    with runners.launch(build, floor_s=ENOUGH_S) as ring, ring.client() as client:
        started_again(ring, "c", kill(ring, "c"))
        count = LENGTH - 3
        found = client.generate([1, 2], count, ignore_eos=True)
        assert found.tokens == [null_tokens((1, 2), count)]


def test_a_runner_that_dies_too_often_is_left_dead(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "MOST_DEATHS", 3)
    with launch_local(build) as ring:
        pid = ring.pids["b"]
        for _ in range(2):
            os.kill(pid, signal.SIGKILL)
            pid = started_again(ring, "b", pid)
        os.kill(pid, signal.SIGKILL)
        lost = RunError("b is gone", where="b", cause="lost-peer")
        told = ring.killed()
        assert isinstance(told, RunError)
        assert (
            told.message
            == "the runner of b died 3 times within 60 s; the last time, the runner of b ended (signal 9)"
        )
        assert ring.explain(lost) is told
        assert ring.pids["b"] == pid


def test_deaths_that_lie_far_apart_do_not_count_together(
    build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "MOST_DEATHS", 2)
    monkeypatch.setattr(keeper, "WITHIN_S", 0.0)
    with launch_local(build) as ring:
        pid = ring.pids["b"]
        for _ in range(3):
            os.kill(pid, signal.SIGKILL)
            pid = started_again(ring, "b", pid)


def test_a_start_over_is_told(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with launch_local(build) as ring:
        started_again(ring, "b", kill(ring, "b"))
    assert "note: the runner of b ended (signal 9); it is started again\n" in capfd.readouterr().err


def test_without_restart_the_dead_stay_dead(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with launch_local(build, restart=False) as ring:
        pid = kill(ring, "c")
        told = ring.killed()
        assert told is not None and told.message == "the runner of c ended (signal 9)"
        assert ring.pids["c"] == pid
    assert "note: the runner of c ended (signal 9); it stays dead\n" in capfd.readouterr().err


def test_a_runner_that_was_asked_to_end_is_not_started_again(build: Path, runners: Runners) -> None:
    with runners.launch(build) as ring:
        pid = kill(ring, "c", signal.SIGTERM)
        time.sleep(0.5)
        assert ring.pids["c"] == pid
        assert ring.killed() is None and ring.failure() is None


def test_last_words_of_a_runner_that_was_started_again(build: Path, tmp_path: Path) -> None:
    """A bug that ends the runner at every request: what the client is told names it."""
    env = patched_engines(tmp_path / "broken", "1 / 0", "c")
    with launch_local(build, env=env) as ring, ring.client() as client:
        with pytest.raises(InternalError, match="the runner of c failed") as caught:
            client.generate([1], 2)
        assert "ZeroDivisionError" in caught.value.message


def test_a_ring_that_closes_starts_nothing_any_more(build: Path) -> None:
    for _ in range(3):
        ring = launch_local(build)
        kill(ring, "b")
        ring.close(at_once=True)
        assert not ring.pids
