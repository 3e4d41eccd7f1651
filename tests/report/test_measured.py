"""A run of devices that do exactly what was predicted is measured as exactly that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from partc.report.expected import device_s, message_s
from partc.report.figures import Plan
from partc.report.measured import Measured, Workload
from partc.runs.records import read_record
from tests.report.plans import make_plan, make_problem, plans, record_of


def measured_of(plan: dict[str, Any], record: dict[str, Any], folder: Path) -> Measured:
    file = folder / "record.json"
    file.write_text(json.dumps(record))
    return Measured(Plan(plan), read_record(file))


@pytest.mark.parametrize("devices", [1, 2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_a_run_as_predicted(devices: int, scale: float, tmp_path: Path) -> None:
    plan = make_plan(make_problem(devices, 12))
    measured = measured_of(plan, record_of(plan, scale=scale), tmp_path)
    for item in measured.compared():
        assert item.ratio == pytest.approx(scale), (item.name, item.phase)
        assert item.mean_s == pytest.approx(item.median_s)
    assert measured.value_s == pytest.approx(scale * plan["answer"]["value"])
    assert measured.median_s == pytest.approx(measured.value_s)


def test_one_slow_step_moves_the_mean_and_not_the_median(tmp_path: Path) -> None:
    plan = make_plan(make_problem(1, 8))
    record = record_of(plan, tokens=9)
    (timings,) = record["requests"][0]["timings"].values()
    for row in timings["table"][5:]:
        row[1] += 1.0
    measured = measured_of(plan, record, tmp_path)
    assert measured.median_s == pytest.approx(plan["answer"]["value"])
    assert measured.value_s == pytest.approx(plan["answer"]["value"] + 63 / 64 / 8)


def test_every_device_and_every_message_is_compared(tmp_path: Path) -> None:
    plan = make_plan(make_problem(3, 12))
    measured = measured_of(plan, record_of(plan), tmp_path)
    found = {(item.name, item.phase) for item in measured.compared()}
    for phase in plan["predicted"]["phases"]:
        links = {(f"{m['from']} → {m['to']}", phase["phase"]) for m in phase["messages"]}
        devices = {(stage["device"], phase["phase"]) for stage in phase["stages"]}
        assert len(devices) == 3
        assert devices | links <= found


def test_devices_with_clocks_of_their_own_have_no_links(tmp_path: Path) -> None:
    plan = make_plan(make_problem(3, 12))
    record = record_of(plan)
    record["local"] = False
    for shift, timings in enumerate(record["requests"][0]["timings"].values()):
        for row in timings["table"]:
            row[1] += 1000 * shift
    measured = measured_of(plan, record, tmp_path)
    assert not any(item.is_link for item in measured.compared())
    assert all(item.ratio == pytest.approx(1) for item in measured.compared())
    assert measured.value_s == pytest.approx(plan["answer"]["value"])


@pytest.mark.parametrize("batch", [1, 3])
def test_the_rate_of_several_requests(batch: int, tmp_path: Path) -> None:
    plan = make_plan(make_problem(2, 8))
    record = record_of(plan, requests=3, tokens=4)
    for request in record["requests"]:
        request["batch"] = batch
    measured = measured_of(plan, record, tmp_path)
    last = record["requests"][-1]["elapsed_s"]
    assert measured.rate == pytest.approx(3 * 4 * batch / last)


def test_a_run_of_one_token_has_no_value(tmp_path: Path) -> None:
    plan = make_plan(make_problem(2, 8))
    measured = measured_of(plan, record_of(plan, tokens=1), tmp_path)
    assert measured.value_s is None
    assert measured.typical_step() is None


def test_a_device_that_did_not_report_is_left_out(tmp_path: Path) -> None:
    plan = make_plan(make_problem(3, 12))
    record = record_of(plan)
    silent = plan["predicted"]["memory"][1]["device"]
    del record["requests"][0]["timings"][silent]
    names = {item.name for item in measured_of(plan, record, tmp_path).compared()}
    assert not any(silent in name for name in names)
    assert names


def test_a_device_with_several_stages_is_compared_as_a_whole(tmp_path: Path) -> None:
    """A run records one time for a device and step; where in the step it lay is not known."""
    plan = plans()["returning"]
    record = record_of(plan)
    for device, timings in record["requests"][0]["timings"].items():
        steps: dict[float, list[float]] = {}
        for row in timings["table"]:
            kept = steps.setdefault(row[0], [*row[:2], 0.0, *row[3:]])
            kept[2] += row[2]
        timings["table"] = list(steps.values())
        assert len(timings["table"]) == 6, device
    measured = measured_of(plan, record, tmp_path)
    assert not measured.has_lanes
    assert {(item.name, item.is_link) for item in measured.compared()} == {
        (use["device"], False) for use in plan["predicted"]["memory"]
    }
    assert all(item.ratio == pytest.approx(1) for item in measured.compared())


def with_overheads(plan: dict[str, Any], call: float, step: float, hop: float) -> dict[str, Any]:
    """The plan as `partc profile` leads to: what a step costs in the links, and in the first sub-module."""
    devices = [device["name"] for device in plan["problem"]["devices"]]
    overheads = {name: {"call_s": call, "step_s": step, "hop_s": hop} for name in devices}
    plan = json.loads(json.dumps(plan))
    plan["answer"]["explain"]["times"] = {"measured": 1, "of": 1, "overheads": overheads}
    return plan


def test_overheads_are_put_where_runners_have_them() -> None:
    """A device computes its calls, and its runner's own time is before what it sends; no second is lost or made."""
    plan = make_plan(make_problem(3, 12))
    call, step, hop = 1e-4, 1.5e-4, 1.2e-4
    moved = Plan(with_overheads(plan, call, step, hop))
    source = moved.case.problem.source
    for phase in moved.phases:
        computing = device_s(moved, phase)
        for stage in phase.stages:
            own = step if stage.device == source else 0.0
            assert computing[stage.device] == pytest.approx(stage.seconds + call - own)
        inwards = [m for m in phase.messages if m.to_stage == m.from_stage + 1]
        (back,) = (m for m in phase.messages if m.is_return)
        for message in inwards:
            own = (step if message.sender == source else hop) - call
            assert message_s(moved, message) == pytest.approx(message.seconds - hop + own)
        everything = sum(computing.values()) + sum(message_s(moved, m) for m in (*inwards, back))
        assert everything == pytest.approx(phase.latency_s)


def test_without_measured_times_the_plan_stands_as_it_is() -> None:
    plan = Plan(make_plan(make_problem(3, 12)))
    for phase in plan.phases:
        took = {stage.device: stage.seconds for stage in phase.stages}
        assert device_s(plan, phase) == pytest.approx(took)
        for message in phase.messages:
            assert message_s(plan, message) == message.seconds


@pytest.mark.parametrize(
    ("prompt", "tokens", "same", "has_prefill"),
    [(32, 6, True, True), (5, 6, False, False), (32, 5, False, True)],
)
def test_other_work_is_marked(
    prompt: int, tokens: int, same: bool, has_prefill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a plan for prompts of 32 tokens and 6 new ones."""
    monkeypatch.setattr(Measured, "planned", Workload(32, 6, 1))
    plan = make_plan(make_problem(3, 12))
    record = record_of(plan, tokens=tokens)
    record["requests"][0]["prompt_tokens"] = prompt
    measured = measured_of(plan, record, tmp_path)
    assert measured.is_planned_work == same
    assert measured.asked == (Workload(prompt, tokens, 1),)
    found = measured.compared()
    assert {item.ratio is not None for item in found if item.phase == "prefill"} == {has_prefill}
    assert {item.is_planned_work for item in found if item.phase == "decode"} == {same}
    assert all(item.ratio is not None for item in found if item.phase == "decode")
