"""Simulation of plans whose stages have several devices."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.errors import BundleError
from partc.planner.groups.evaluate import evaluate_plan
from partc.planner.model.change import with_efficiency
from partc.planner.model.plan_file import plan_file
from partc.planner.model.problem import Problem
from partc.planner.simulate import simulate_plan
from partc.planner.simulate.build import Build, workflow
from partc.planner.simulate.case import Case, planned_workflow, read_case, simulate
from partc.planner.simulate.demand import Load
from partc.planner.solve import solve
from tests.planner.shared_problems import draw_shared, layers, with_decode

STRATEGIES = ("galaxy", "megatron", "sequence-parallel")


def plan_json(problem: Problem, strategy: str) -> dict[str, Any]:
    answer = solve(problem, strategy)
    found: dict[str, Any] = json.loads(
        json.dumps(plan_file(problem, answer, evaluate_plan(problem, answer)).to_json())
    )
    return found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), strategy=st.sampled_from(STRATEGIES))
def test_one_request_takes_what_the_plan_predicts(seed: int, strategy: str) -> None:
    """A later token may take longer: devices that it does not wait for end their last step meanwhile."""
    problem = draw_shared(seed)
    answer = solve(problem, strategy, explained=False)
    if not answer.feasible:
        return
    assert answer.stages is not None
    predicted = [timeline.latency_s for timeline in evaluate_plan(problem, answer).phases]
    workflow = planned_workflow(Case(problem, answer.stages, answer.phases))
    for script, seconds in zip(workflow.scripts, predicted, strict=True):
        ((found,),) = simulate(replace(workflow, scripts=(script,)), Load(1, 1, "sequential", 1)).token_s
        assert found == pytest.approx(seconds, rel=1e-9)
    ((first, second, third),) = simulate_plan(plan_json(problem, strategy), tokens=3).token_s
    assert first == pytest.approx(predicted[0])
    assert min(second - first, third - second) > predicted[-1] * (1 - 1e-9)


def follow(case: Case, requests: int, mode: str = "no-bubbles") -> list[float]:
    run = simulate(planned_workflow(case), Load(requests, 4, mode, requests))
    for lane in {(item.sender, item.receiver) for item in run.transfers}:
        link, mine = case.problem.link_of[lane], [t for t in run.transfers if (t.sender, t.receiver) == lane]
        starts = sorted((item.start_s, item.bytes / link.bandwidth_bytes_per_s) for item in mine)
        ends = [start + seconds for start, seconds in starts]
        assert all(end <= start + 1e-9 for end, (start, _) in zip(ends, starts[1:], strict=False))
    for device in case.problem.device_of:
        spans = sorted((s.start_s, s.end_s) for s in run.spans if s.device == device)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))
    return [times[-1] for times in run.token_s]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_requests_in_flight_share_devices_and_links(strategy: str) -> None:
    problem = with_decode(layers({"a": 1.0, "b": 2.0, "c": 1.5}, 2, heads=6, latency=0.1))
    answer = solve(problem, strategy)
    assert answer.stages is not None
    case = Case(problem, answer.stages, answer.phases)
    (alone,) = follow(case, 1)
    together, apart = max(follow(case, 4)), max(follow(case, 4, "sequential"))
    assert alone < together <= apart == pytest.approx(4 * alone)
    assert together < 0.9 * apart  # one device computes while another waits for a message


def test_a_build_of_other_groups_is_refused() -> None:
    """What its placement says of stages and times is held against plan.json, with and without what-ifs."""
    problem = with_decode(layers({"a": 1.0, "b": 2.0}, 2))
    case = read_case(plan_json(problem, "galaxy"))

    def built(of: Case) -> Build:
        seconds = {f"{phase}_s": value for phase, value in of.predicted_s.items()}
        role: Any = SimpleNamespace(placement=SimpleNamespace(stages=of.phases, predicted=seconds))
        return Build(Path("build"), dict.fromkeys(problem.device_of, role))

    changed = replace(case, problem=with_efficiency(problem, 0.5))
    assert workflow(changed, built(case)) == planned_workflow(changed)
    for strategy, message in (
        ("megatron", "another time of a"),
        ("sequence-parallel", "other blocks in prefill"),
    ):
        with pytest.raises(BundleError, match=message):
            workflow(case, built(read_case(plan_json(problem, strategy))))


def test_links_are_busy_as_the_limit_counts_them() -> None:
    """With requests enough, what limits the plan is busy nearly all the time, and nothing more than that."""
    problem = with_decode(layers({"a": 1.0, "b": 2.0}, 2, latency=1.0))
    answer = solve(problem, "galaxy")
    assert answer.stages is not None
    workflow = planned_workflow(Case(problem, answer.stages, answer.phases))
    run = simulate(workflow, Load(6, 3, "no-bubbles", 6))
    part = run.limit.s_per_token * run.tokens_per_s
    # What b computes behind the last token of all is not in the run.
    assert run.busy[run.limit.name] == pytest.approx(part, rel=1e-3)
    assert max(run.busy.values()) <= part


def test_a_lesser_efficiency_of_shares_takes_longer() -> None:
    problem = with_decode(layers({"a": 1.0, "b": 2.0}, 2))
    answer = solve(problem, "galaxy")
    assert answer.stages is not None
    times = [
        follow(Case(with_efficiency(problem, part), answer.stages, answer.phases), 1)[0]
        for part in (1.0, 0.8, 0.5)
    ]
    assert times == sorted(times) and times[2] > 1.3 * times[0]
