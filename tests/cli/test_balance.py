"""Notes of `partc run` about what the balancer does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.balance.artifacts import read_artifacts
from partc.balance.balancing import read_balancing
from partc.balance.order import Order
from partc.cli.balance import print_move
from partc.errors import RunError
from partc.format.messages import Placed
from partc.planner.model import plan_file as file
from tests.balance.builds import write_build

PLACED = Placed(ticket=bytes(16), epoch=2, seconds=0.5, stopped_s=0.1, steps=0)


def _told(build: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The words about a refused move and two that were made."""
    order = Order(read_artifacts(build).compiled, "layer 1 from phone to board: a limit")
    balancing = read_balancing(build, print_move, goes_on=False)
    assert balancing is not None
    for outcome in (RunError("busy"), PLACED, PLACED):
        balancing.tell(order, outcome)
    return capsys.readouterr().err


def test_a_move_away_from_place_is_noted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = write_build(tmp_path / "build")
    assert "`place`" not in _told(build, capsys)
    path = build / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    plan["answer"]["method"] = file.PLACED
    path.write_text(json.dumps(plan), encoding="utf-8")
    lines = _told(build, capsys).splitlines()
    assert [line.startswith("note: `place`") for line in lines] == [False, False, True, False]
