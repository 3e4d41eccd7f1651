"""A plan.json of which one value is not what partc wrote: refused in words or shown, never a crash."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from partc.cli.main import run
from partc.errors import PlanError, UserError
from partc.report.page import render
from partc.report.sources import read_subject
from tests.report.plans import make_plan, make_problem, plans

PLANS = {name: plans()[name] for name in ("with notes", "throughput")}
VALUES: dict[str, Any] = {"null": None, "text": "x", "list": [], "below zero": -1, "NaN": math.nan, "zero": 0}
_REMOVED = object()


def _places(data: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of every value but the top, inner ones and leaves; of long lists the ends."""
    if at:
        yield at
    items = list(
        data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    )
    for key, value in items if isinstance(data, dict) else [*items[:1], *items[1:][-1:]]:
        yield from _places(value, (*at, key))


def _changed(plan: Any, at: tuple[str | int, ...], value: Any) -> Any:
    """A copy of the way to `at` with another value there, or none."""
    key, *rest = at
    copy: Any = dict(plan) if isinstance(plan, dict) else list(plan)
    if rest:
        copy[key] = _changed(plan[key], tuple(rest), value)
    elif value is _REMOVED:
        del copy[key]
    else:
        copy[key] = value
    return copy


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("kind", [*VALUES, "removed"])
def test_no_value_of_a_plan_makes_the_report_crash(name: str, kind: str, tmp_path: Path) -> None:
    plan, file, refused = PLANS[name], tmp_path / "plan.json", 0
    for at in _places(plan):
        file.write_text(json.dumps(_changed(plan, at, VALUES.get(kind, _REMOVED))))
        try:
            subject = read_subject(file)
        except UserError as error:
            assert str(error.where).startswith(str(file)), at
            assert "Error(" not in error.message, at
            refused += 1
        else:
            text = render(subject)  # whatever is accepted can be shown
            assert ">nan" not in text.lower(), at
    assert refused > 50


def test_nothing_of_a_plan_makes_the_commands_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit codes of both commands, on a smaller plan."""
    monkeypatch.chdir(tmp_path)
    plan = make_plan(make_problem(2, 4))
    for at in _places(plan):
        Path("plan.json").write_text(json.dumps(_changed(plan, at, None)))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            codes = run(["report", "plan.json"]), run(["simulate", "plan.json", "--tokens", "1"])
        assert set(codes) <= {0, 1}, at


@pytest.mark.parametrize(
    ("at", "value", "place"),
    [
        (("answer", "explain"), None, "answer.explain"),
        (("answer", "explain", "what_if", 0, "text"), 3, "answer.explain.what_if[0].text"),
        (("answer", "method"), _REMOVED, "answer"),
        (("answer", "value"), 0, "answer.value"),
        (("overlap",), "x", "overlap"),
        (("overlap", "devices", "device_0", "movable"), [99], "overlap.devices.device_0.movable"),
        (("predicted", "memory", 0, "available_bytes"), 0, "predicted.memory[0].available_bytes"),
        (("predicted", "memory", 0, "device"), "x", "predicted.memory[0].device"),
        (("predicted", "phases", 0, "messages"), [None], "predicted.phases[0].messages"),
        (
            ("predicted", "phases", 1, "stages", 0, "finish_s"),
            10**18 + 1,
            "predicted.phases[1].stages[0].finish_s",
        ),
    ],
)
def test_what_is_wrong_is_named(at: tuple[str | int, ...], value: Any, place: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(_changed(PLANS["with notes"], at, value)))
    with pytest.raises(PlanError) as caught:
        read_subject(file)
    assert caught.value.where == f"{file}: {place}"
    assert "write it again" in str(caught.value.hint)
