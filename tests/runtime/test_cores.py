"""Cores: how many there are for this process, and how processes share them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from partc.runtime import processor as cores
from partc.runtime.client import launch
from partc.runtime.client.launch import launch_local
from partc.runtime.processor import shared_out, usable_cores
from tests.runtime.bundles import language_model

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here"
)


@needs_affinity
def test_cores_are_those_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert 1 <= usable_cores() <= len(before)


@needs_affinity
@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        ([1, 2], [{0, 4}, {1, 5, 2, 6}]),
        ([1, 1, 1, 1], [{0, 4}, {1, 5}, {2, 6}, {3, 7}]),
        ([2, 3], None),
        ([1, 0], None),
    ],
    ids=["fits", "fits exactly", "too many", "one leaves it to its engine"],
)
def test_cores_are_shared_out(
    monkeypatch: pytest.MonkeyPatch, threads: list[int], expected: list[set[int]] | None
) -> None:
    """Four cores of two threads each."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cores, "_core", lambda number: str(number % 4))
    assert shared_out(threads) == expected


@needs_affinity
def test_a_pinned_runner_has_all_its_threads_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = sorted(os.sched_getaffinity(0))
    wanted = [{cores[0]}, {cores[-1]}, set(cores)]
    monkeypatch.setattr(launch, "shared_out", lambda threads: list(wanted) if threads == [1, 1, 1] else None)
    with launch_local(language_model("null").write(tmp_path / "build"), pin=True) as ring:
        for pid, expected in zip(ring.pids.values(), wanted, strict=True):
            tasks = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
            assert len(tasks) > 1, "ZeroMQ has its own"
            assert [os.sched_getaffinity(task) for task in tasks] == [expected] * len(tasks)
