"""runs/ring.json: written while a ring runs, found by `--connect auto`."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from partc.runtime.client.ring_file import RING_FILE, running_ring, told_in_file


def test_a_ring_is_found_while_it_runs(tmp_path: Path) -> None:
    with told_in_file(tmp_path, "127.0.0.1:7", insecure=True):
        found = running_ring(tmp_path)
        assert found is not None
        assert (found.source, found.insecure) == ("127.0.0.1:7", True)
    assert running_ring(tmp_path) is None
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_ring_that_was_started_later_keeps_its_file(tmp_path: Path) -> None:
    with told_in_file(tmp_path, "127.0.0.1:7", insecure=False):
        later = told_in_file(tmp_path, "127.0.0.1:8", insecure=False)
        later.__enter__()
    found = running_ring(tmp_path)
    assert found is not None
    assert found.source == "127.0.0.1:8"
    later.__exit__(None, None, None)


def test_the_file_of_a_process_that_was_killed_counts_as_absent(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / RING_FILE).parent.mkdir()
    (tmp_path / RING_FILE).write_text(
        f'{{"source": "127.0.0.1:7", "insecure": false, "pid": {ended.pid}}}', encoding="utf-8"
    )
    assert running_ring(tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", '{"source": 1}'])
def test_a_damaged_file_counts_as_absent(tmp_path: Path, text: str) -> None:
    (tmp_path / RING_FILE).parent.mkdir()
    (tmp_path / RING_FILE).write_text(text, encoding="utf-8")
    assert running_ring(tmp_path) is None


def test_a_build_that_cannot_be_written_in_goes_without(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file", encoding="utf-8")
    with told_in_file(tmp_path, "127.0.0.1:7", insecure=False):
        assert running_ring(tmp_path) is None


def test_a_full_disk_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with told_in_file(tmp_path, "127.0.0.1:7", insecure=False):
        assert running_ring(tmp_path) is None
        assert list((tmp_path / "runs").iterdir()) == []
