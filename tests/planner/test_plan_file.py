"""plan.json is read in one place: what is written is read back, and what is no plan is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partc.errors import PlanError
from partc.format.placement import stages_of
from partc.format.plan import PlanFile, feasible_plan
from partc.planner.model.evaluate import evaluate
from partc.planner.model.plan_file import parse_plan, plan_file, read_plan
from partc.planner.model.problem import Device, Problem, Submodule
from partc.planner.model.problem_json import problem_json, read_problem

PROBLEM = Problem("latency", "a", (Device("a", 9.0),), (Submodule(1.0, {"a": 0.5}),), ())
FILE = plan_file(PROBLEM, feasible_plan(stages_of("a"), 0.5, 0.5, "given"), evaluate(PROBLEM, stages_of("a")))
PLAN = json.loads(json.dumps(FILE.to_json()))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(PLAN))
    assert read_plan(file) == PLAN
    assert read_problem(read_plan(file)["problem"]) == PROBLEM
    assert PlanFile.from_json(read_plan(file)) == FILE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not a JSON object"),
        (json.dumps(problem_json(PROBLEM)), "this is a planning problem"),
        (json.dumps({**PLAN, "format": "partc-plan/9"}), "the format is 'partc-plan/9'"),
        (json.dumps({key: PLAN[key] for key in ("problem", "answer")}), "the format is missing"),
        (json.dumps(PlanFile().to_json()), "there is no plan in it"),
        (
            json.dumps({**PLAN, "answer": {"assignment": None, "constraint": "no link"}}),
            "not feasible: no link",
        ),
        (json.dumps({**PLAN, "answer": {"assignment": [0]}}), "expected a list of devices"),
    ],
)
def test_what_is_no_plan(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        parse_plan(text, "plan.json")
    assert str(caught.value.where).startswith("plan.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    for name, message in (
        ("none.json", "no such file"),
        ("", "is a folder"),
        ("bytes.json", "not UTF-8 text: byte 0"),
    ):
        with pytest.raises(PlanError, match=message) as caught:
            read_plan(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
