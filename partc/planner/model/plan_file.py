"""plan.json: its format, reading and writing.

```
{"format": "partc-plan/1", "problem": {…}, "answer": {…}, "predicted": {…},
 "overlap": {…}, "survival": {…}, "layers": […]}
```

`problem` as in `partc.planner.model.problem_json`, `answer` as in `partc.format.plan`, `predicted` is the timeline that
`partc.planner.model.evaluate` finds. `overlap` is of `passes/overlap_submodules.py`, where that ran; `survival` of
`partc.planner.survive`, where devices.yaml asks for it. `layers` are those of every sub-module, where they can be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partc.errors import PlanError
from partc.format.json_text import parse_json
from partc.format.plain_files import read_plain_text
from partc.format.plan import FORMAT, Plan, PlanFile
from partc.planner.model.evaluate import Evaluation
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import problem_json

PLAN_FILE = "plan.json"
GIVE = "give plan.json or the folder of a build, as partc compile writes them"

AGAIN = (
    "the file is damaged, was changed by hand or is of an earlier partc; write it again: partc compile, or "
    "partc plan --json"
)
Json = dict[str, Any]


def plan_file(problem: Problem, answer: Plan, evaluation: Evaluation) -> PlanFile:
    """plan.json of a feasible plan."""
    return PlanFile(problem=problem_json(problem), answer=answer, predicted=evaluation.predicted)


def read_plan(file: Path) -> Json:
    """A plan.json of a feasible plan; what lies within is checked where it is read (`partc.planner.model.check`).

    Raises:
        PlanError: no such file, or it is no plan, or an infeasible one.
    """
    return parse_plan(read_plain_text(file, PlanError, GIVE), str(file))


def parse_plan(text: str, where: str) -> Json:
    """The same of its text.

    Raises:
        PlanError: it is no plan, or an infeasible one.
    """
    data = parse_json(text, where, PlanError, AGAIN if where.endswith(".json") else GIVE)
    if not isinstance(data, dict):
        raise PlanError("not a plan: not a JSON object", where=where, hint=GIVE)
    check_plan(data, where)
    return data


def has_groups(data: Mapping[str, Any]) -> bool:
    """Whether stages of the plan have several devices."""
    return data["answer"].get("assignment") is None


PLACED = "placed by devices.yaml"
"""The method of a plan that the user placed."""


def is_placed(data: Mapping[str, Any]) -> bool:
    """Whether the user placed it."""
    return str(data["answer"].get("method")) == PLACED


def check_plan(data: Mapping[str, Any], where: str) -> None:
    """Refuse what is no plan, or an infeasible one.

    Raises:
        PlanError: naming what is missing.
    """
    if "submodules" in data:
        hint = "partc plan --problem answers it; " + GIVE
        raise PlanError("this is a planning problem, not a plan", where=where, hint=hint)
    if data.get("format") != FORMAT:
        found = repr(data["format"]) if "format" in data else "missing"
        raise PlanError(f"the format is {found}, not {FORMAT!r}", where=where, hint=GIVE)
    answer = data.get("answer")
    if data.get("problem") is None or not isinstance(answer, Mapping):
        raise PlanError("there is no plan in it: no problem and no answer", where=where, hint=GIVE)
    names = answer.get("assignment")
    if names is None and answer.get("stages"):
        return
    if names is None:
        constraint = f": {answer['constraint']}" if answer.get("constraint") else ""
        raise PlanError(f"the plan is not feasible{constraint}", where=where)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PlanError("expected a list of devices", where=f"{where}: answer.assignment", hint=GIVE)
