"""The strategy `optimal-groups` against every plan there is, and against the other strategies."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from partc.planner.groups import best_chain
from partc.planner.groups.best_chain import plan_groups
from partc.planner.groups.evaluate import evaluate_plan, evaluate_shared
from partc.planner.model.problem import Link
from partc.planner.model.problem_json import problem_json, read_problem
from partc.planner.solve import solve
from tests.planner.group_problems import best_by_trying, draw_small
from tests.planner.shared_problems import draw_shared, layers


def compare_with_all(seeds: range) -> tuple[int, int]:
    """(feasible problems, those whose best plan has a group)."""
    feasible = grouped = 0
    for seed in seeds:
        problem = draw_small(seed)
        plan, best = plan_groups(problem), best_by_trying(problem)
        assert (plan.value is None) == (best is None), seed
        if best is not None:
            assert plan.value == pytest.approx(best, rel=1e-9), seed
            assert plan.bound == pytest.approx(best, rel=1e-9), f"{seed}: proven"
            feasible, grouped = feasible + 1, grouped + bool(plan.phases)
    return feasible, grouped


def test_no_plan_is_better() -> None:
    feasible, grouped = compare_with_all(range(40))
    assert feasible > 25 and 5 < grouped < feasible


@pytest.mark.slow
def test_no_plan_is_better_in_2000_problems() -> None:
    feasible, grouped = compare_with_all(range(2000))
    print(f"{feasible} of 2000 have a plan, the best one of {grouped} has a group")
    assert feasible > 1500 and grouped > 300


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less work: what is found may be worse, what is said of it is as true."""
    monkeypatch.setattr(best_chain, "MOST_STEPS", 3000)


@pytest.mark.in_turns(4)
@pytest.mark.usefixtures("quick")
def test_what_it_says_is_true_and_no_other_strategy_is_better() -> None:
    for seed in range(8):
        problem = draw_shared(seed)
        plan = solve(problem, "optimal-groups")
        if plan.value is None:
            continue
        assert evaluate_plan(problem, plan).value == plan.value
        assert plan.bound is not None and plan.bound <= plan.value * (1 + 1e-9)
        for other in ("optimal", "galaxy", "megatron"):
            value = solve(problem, other, explained=False).value
            if value is not None:
                assert plan.bound <= value * (1 + 1e-9), f"{seed}: {other} is below the bound"
                assert plan.value <= value * (1 + 1e-9) or plan.gap, f"{seed}: {other} is better"


def test_a_group_that_hurts_is_not_formed_and_its_cost_is_told() -> None:
    near = layers({"a": 1, "b": 1}, bandwidth=1e6)
    far = replace(near, links=tuple(Link(link.sender, link.receiver, 1e6, 5.0) for link in near.links))
    assert plan_groups(near).phases
    plan = solve(far, "optimal-groups")
    assert not plan.phases
    (text,) = plan.explain["shared"]
    assert text.startswith("the best plan found with a group (a, b) takes ")


def test_where_no_group_is_compared_it_says_so() -> None:
    many = layers(dict.fromkeys("abcdefg", 1.0))
    plan = solve(many, "optimal-groups")
    assert plan.explain["shared"] == ["groups are looked for among up to 6 devices, and not among 7"]
    assert plan.value is not None and plan.bound is None and plan.gap is None
    apart = replace(layers({"a": 1, "b": 1}), links=())
    assert solve(apart, "optimal-groups").explain["shared"] == ["no group was found that fits"]


@pytest.mark.in_turns(2)
@pytest.mark.usefixtures("quick")
def test_a_group_may_be_one_stage_of_several() -> None:
    """Two slow devices share what neither has memory for beside the source."""
    problem = layers({"a": 1, "b": 4, "c": 4}, 2, memory=120, bandwidth=1e6)
    plan = plan_groups(problem)
    assert plan.value is not None and plan.phases
    groups = {stage.devices for stage in plan.phases["step"]}
    assert any(len(group) > 1 for group in groups)


@pytest.mark.usefixtures("quick")
def test_layers_of_unlike_units_are_shared_by_segments_of_their_own() -> None:
    """As a picture's tower and the text behind it: one share of heads cannot be that of both."""
    problem = layers({"a": 1, "b": 1, "c": 1}, 3, bandwidth=1e6)
    parts = list(problem.submodules)
    for j in (1, 3):
        block = parts[j].block
        assert block is not None
        parts[j] = replace(parts[j], block=replace(block, units=3))
    plan = plan_groups(replace(problem, submodules=tuple(parts)))
    assert any(len(stage.devices) > 1 for stage in plan.phases["step"])


@pytest.mark.usefixtures("quick")
def test_rows_without_an_axis_of_their_own_are_not_cut_into_tiles() -> None:
    problem = layers({"a": 1, "b": 1}, bandwidth=1e6)
    tiled = plan_groups(problem).phases["step"]
    assert {stage.exchange for stage in tiled if len(stage.devices) > 1} == {"tiles"}
    parts = [
        replace(part, tiling=replace(part.tiling, by_rows=False)) if part.tiling else part
        for part in problem.submodules
    ]
    apart = replace(problem, submodules=tuple(parts))
    found = plan_groups(apart).phases["step"]
    assert {stage.exchange for stage in found if len(stage.devices) > 1} <= {"ring", "star"}
    (first, *_) = evaluate_shared(apart, {"step": tiled}).violations
    assert first == "the rows of sub-modules 1-4 have no axis to themselves: no tiles of them can be cut"
    assert read_problem(json.loads(json.dumps(problem_json(apart)))) == apart
