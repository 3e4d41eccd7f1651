"""`partc plan`: mistakes of the user, and of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.cli.main import run
from partc.plan.exact import optimal

PROBLEM = {
    "objective": "latency",
    "source": "a",
    "devices": [{"name": "a", "memory_bytes": 9}],
    "submodules": [{"memory_bytes": 1, "time_s": {"a": 0.5}}],
    "edges": [],
    "links": [],
}


@pytest.mark.parametrize("strategy", ["optimal", "even", "lingualinked"])
def test_a_bug_of_the_planner_is_a_bug_and_no_worse_plan(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mistake(*arguments: object) -> None:
        raise TypeError("a mistake of ours")

    file = tmp_path / "problem.json"
    file.write_text(json.dumps(PROBLEM))
    monkeypatch.setattr(optimal, "_search_exactly", mistake)
    assert run(["plan", "--problem", str(file), "--strategy", strategy]) == 70
    shown = capsys.readouterr().err
    assert (
        "TypeError: a mistake of ours" in shown and "Traceback" in shown and "this is a bug of partc" in shown
    )
