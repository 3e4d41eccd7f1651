"""Planned times of devices under another placement than the plan's."""

from __future__ import annotations

from typing import Any

import pytest

from partc.errors import PlanError
from partc.planner.model.device_times import PlannedTimes

TIMES = [{"A": 1.0, "B": 2.0}, {"A": 3.0, "B": 4.0}, {"B": 5.0}]
PROBLEM: dict[str, Any] = {
    "objective": "latency",
    "source": "A",
    "devices": [{"name": "A", "memory_bytes": 9}, {"name": "B", "memory_bytes": 9}],
    "submodules": [{"memory_bytes": 1} for _ in TIMES],
    "links": [],
    "phases": [
        {
            "name": "prefill",
            "weight": 0.5,
            "submodules": [{"time_s": dict.fromkeys("AB", 50.0)} for _ in TIMES],
        },
        {"name": "decode", "weight": 0.5, "submodules": [{"time_s": times} for times in TIMES]},
    ],
}


def plan(**explain: Any) -> dict[str, Any]:
    answer = {"feasible": True, "assignment": ["A", "A", "B"], "explain": explain}
    return {"format": "partc-plan/1", "problem": PROBLEM, "answer": answer}


def test_any_interval_of_any_device() -> None:
    times = PlannedTimes.of(plan())
    assert times.device_s("A", [(0, 1)], "decode") == 4.0
    assert times.device_s("B", [(0, 0), (2, 2)], "decode") == 7.0
    assert times.device_s("A", [(0, 1)], "prefill") == 100.0


def test_overheads_are_counted_as_runners_count() -> None:
    overheads = {"A": {"call_s": 0.5, "step_s": 0.25}, "B": {"call_s": 0.125, "step_s": 9.0}}
    times = PlannedTimes.of(plan(times={"overheads": overheads}))
    assert times.device_s("A", [(0, 1)], "decode") == 4.0 + 0.5 - 0.25
    assert times.device_s("B", [(0, 0), (2, 2)], "decode") == 7.0 + 2 * 0.125


def test_what_the_plan_does_not_know() -> None:
    times = PlannedTimes.of(plan())
    assert times.device_s("A", [], "decode") is None
    assert times.device_s("A", [(1, 2)], "decode") is None
    assert times.device_s("A", [(0, 7)], "decode") is None
    assert times.device_s("elsewhere", [(0, 0)], "decode") is None


def test_no_plan() -> None:
    with pytest.raises(PlanError):
        PlannedTimes.of({"format": "partc-plan/1"})
