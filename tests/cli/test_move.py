"""`partc move`: what it prints, what it sends, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.cli.main import run
from tests.balance.builds import write_build


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_build(tmp_path_factory.mktemp("builds") / "build")


def test_a_dry_run_prints_what_the_plan_says(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["move", str(build), "--submodules", "2-3", "--to", "phone", "--dry-run"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "board 2-3 - - 6 B" in lines
    assert "phone 0-1 0-3 4 B 6 B" in lines
    assert lines[-2:] == [
        "predicted 15.7 ms per step before, 17.3 ms per step after: 1.56 ms more",
        "nothing was moved: --dry-run",
    ]


def test_the_json_of_a_dry_run(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["move", str(build), "--submodules", "layers 1-1", "--to", "phone", "--dry-run", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["after"] == [
        {"device": "phone", "submodules": [0, 3]},
        {"device": "old", "submodules": [4, 5]},
    ]
    assert found["moved"] is None


@pytest.mark.parametrize("text", ["2..3", "3-2", "layers", "heads 2-3"])
def test_odd_ranges_are_refused_with_the_usage(
    build: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["move", str(build), "--submodules", text, "--to", "phone", "--dry-run"]) == 2
    assert repr(text) in capsys.readouterr().err


def test_what_a_device_does_not_hold_names_the_piece_and_the_remedy(
    build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["move", str(build), "--submodules", "2-3", "--to", "old", "--dry-run"]) == 1
    told = capsys.readouterr().err
    assert "old has no copy of layer 1 (part_1); it lies on board, phone" in told
    assert "overlap: 1" in told


def test_without_a_ring_there_is_nothing_to_move(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["move", str(build), "--submodules", "2-3", "--to", "phone"]) == 1
    told = capsys.readouterr().err
    assert "the address of the source is not known" in told
    assert "hint: start the ring with partc run" in told
