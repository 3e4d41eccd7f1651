"""The tables of a plan, from plan.json alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partc.cli.tables import print_summary
from partc.format.placement import stages_of
from partc.format.plan import Objective, feasible_plan
from partc.ir.graph import PhaseCost, SubmoduleProfile
from partc.planner.explain.summary import Summary, summarize
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Shared, Submodule
from partc.planner.solve import solve, with_explanation


def generating(count: int = 4, devices: str = "ab", objective: Objective = "latency") -> Problem:
    """A chain whose sub-modules share a weight, with both phases."""
    times = {name: 0.01 * (place + 1) for place, name in enumerate(devices)}
    step = tuple(times for _ in range(count))
    edges = tuple(Edge(j, j + 1, 1024, f"h{j}") for j in range(count - 1))
    return Problem(
        objective, devices[0], tuple(Device(name, 1e6) for name in devices),
        tuple(Submodule(1000, {}, 10, Shared("embed", 500)) for _ in range(count)),
        tuple(Link(x, y, 1e6, 0.001) for x in devices for y in devices if x != y),
        phases=(Phase("prefill", 0.1, step, edges, 8), Phase("decode", 0.9, step, edges, 8)),
    )  # fmt: skip


def summary_of(problem: Problem, assignment: tuple[str, ...] | None = None) -> Summary:
    if assignment is None:
        plan = solve(problem)
    else:
        stages = stages_of(assignment)
        value = evaluate(problem, stages).value
        assert value is not None
        plan = with_explanation(problem, feasible_plan(stages, value, None, "given"), free=False)
    predicted = evaluate(problem, plan.stages or ()).predicted
    costs = {"prefill": PhaseCost(1, 1, 10), "decode": PhaseCost(1, 1, 10)}
    profile = [SubmoduleProfile(900, 100, costs, {"embed": 500}) for _ in problem.submodules]
    return summarize(problem, plan, predicted, profile)


def test_a_device_that_is_returned_to() -> None:
    summary = summary_of(generating(), ("a", "b", "a", "a"))
    assert [(row.device, row.first, row.last) for row in summary.stages] == [
        ("a", 0, 0),
        ("b", 1, 1),
        ("a", 2, 3),
    ]
    # Memory is the device's: 3 x 1000 + 500 + 10; the shared weight counts where it is first.
    assert [row.memory_bytes for row in summary.stages] == [3510, 1510, 3510]
    assert [row.weights_bytes for row in summary.stages] == [1400, 1400, 1800]
    assert [row.compute_s["decode"] for row in summary.stages] == pytest.approx([0.01, 0.02, 0.02])
    assert [(m.from_stage, m.to_stage, m.kind) for m in summary.messages] == [
        (0, 1, "sequential"), (1, 2, "sequential"),
    ]  # fmt: skip


def test_memory_stands_beside_the_first_stage_of_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(summary_of(generating(), ("a", "b", "a", "a")))
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith((" a ", " b "))][:3]
    assert ["3.43 KiB" in row for row in rows] == [True, False, False]
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(("objective", "word"), [("latency", "per token"), ("throughput", "tokens/s")])
def test_a_model_that_generates_is_told_per_token(
    objective: Objective, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_summary(summary_of(generating(objective=objective)))
    told = capsys.readouterr().out.partition("predicted")[2]
    assert word in told and "steps/s" not in told
    assert ("per step" in told) == (objective == "throughput")


def test_what_would_help_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(summary_of(generating(count=8, devices="abcd"), (*"abcd", *"dddd")))
    told = capsys.readouterr().out
    assert "what would help this assignment:\n  twice the speed of d: " in told
    assert " more would help less" in told
    summary = summary_of(generating())
    nothing = [{**entry, "gain_s_per_token": 0.0} for entry in summary.explain["what_if"]]
    print_summary(replace(summary, explain={**summary.explain, "what_if": nothing}))
    assert f"what would help: none of {len(nothing)} changes alone" in capsys.readouterr().out


def test_devices_with_one_reason_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    problem = generating(devices="abc")
    phases = (
        replace(phase, time_s=tuple({**times, "c": times["b"]} for times in phase.time_s))
        for phase in problem.phases
    )
    same = replace(problem, phases=tuple(phases))
    print_summary(summary_of(same))
    assert "not used: b, c: the best plan found with it takes " in capsys.readouterr().out


def test_the_batches_that_were_tried(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summary_of(replace(generating(), batch=2))
    tried = [
        {"batch": 1, "value": 0.1, "tokens_per_s": 10.0, "feasible": True},
        {"batch": 2, "value": 0.1, "tokens_per_s": 20.0, "feasible": True},
        {"batch": 4, "value": None, "tokens_per_s": None, "feasible": False},
    ]
    print_summary(replace(summary, explain={**summary.explain, "batch": tried}))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (
        ["1", "10"] in rows
        and any(row[:3] == ["2", "20", "chosen:"] for row in rows)
        and ["4", "-", "no", "plan", "fits"] in rows
    )
