from __future__ import annotations

import importlib
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.errors import PlanError
from partc.format.placement import stages_of
from partc.format.plan import OBJECTIVES, Objective, Plan
from partc.pipeline.sharing import SHARING
from partc.planner.exact.optimal import plan_optimal, seek_best
from partc.planner.model.effort import THOROUGH, Budget, Effort
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Submodule
from partc.planner.solve import STRATEGIES, load_strategy, solve
from tests.bench.edgeshard_gap import draw_paper


def line(speeds: dict[str, float], count: int, memory: float = 1e9, latency: float = 0.0) -> Problem:
    """A chain of equal sub-modules of 10 bytes; every pair linked at 1000 bytes/s."""
    return Problem(
        objective="latency",
        source=next(iter(speeds)),
        devices=tuple(Device(name, memory) for name in speeds),
        submodules=tuple(Submodule(10, dict(speeds)) for _ in range(count)),
        links=tuple(Link(a, b, 1000.0, latency) for a in speeds for b in speeds if a != b),
        edges=tuple(Edge(j, j + 1, 1) for j in range(count - 1)),
        return_bytes=1,
    )


def test_every_strategy_is_named_right() -> None:
    for name, place in STRATEGIES.items():
        module, _, function = place.partition(":")
        assert load_strategy(name) is getattr(importlib.import_module(module), function)
    with pytest.raises(PlanError, match="unknown strategy"):
        load_strategy("fastest")


def test_even_goes_round_from_the_source() -> None:
    problem = replace(line({"a": 1.0, "b": 1.0, "c": 1.0}, 7), source="b")
    assert solve(problem, "even").assignment == ("b", "b", "b", "c", "c", "a", "a")
    few = solve(line({"a": 1.0, "b": 1.0, "c": 1.0}, 2), "even")
    assert few.assignment == ("a", "b")
    # The bound is the best plan's: all on the source.
    assert few.bound == 2.0 and few.gap is not None and few.gap > 0


def test_even_says_what_it_violates() -> None:
    plan = solve(line({"a": 1.0, "b": 1.0}, 4, memory=15), "even")
    assert (
        not plan.feasible and plan.constraint is not None and "a needs 20 B and has 15 B" in plan.constraint
    )


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("strategy", sorted(STRATEGIES.keys() - {"lingualinked", *SHARING}))
def test_what_a_strategy_says_of_its_plan_is_true(strategy: str, objective: Objective) -> None:
    feasible = 0
    for seed in range(20):
        problem = draw_paper(objective, seed)
        plan = solve(problem, strategy)
        assert Plan.from_json(plan.to_json()) == plan
        if plan.assignment is None:
            assert plan.constraint
            continue
        feasible += 1
        assert plan.value is not None and evaluate(problem, stages_of(plan.assignment)).value == plan.value
        if plan.bound is not None:
            assert plan.bound <= plan.value if objective == "latency" else plan.bound >= plan.value
    assert feasible


def test_equal_plans_use_fewest_devices_in_order() -> None:
    free = line({"a": 1.0, "b": 1.0, "c": 1.0}, 4)
    free = replace(free, links=tuple(replace(link, bandwidth_bytes_per_s=1e30) for link in free.links))
    assert solve(free).assignment == ("a",) * 4
    tight = replace(free, devices=tuple(Device(name, 20) for name in "abc"))
    assert solve(tight).assignment == ("a", "a", "b", "b")


def test_throughput_uses_no_more_devices_than_it_needs() -> None:
    problem = replace(line({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, 5), objective="throughput")
    plan = solve(problem)
    assert plan.value == pytest.approx(0.5) and plan.assignment is not None and len(set(plan.assignment)) == 3


def test_the_plan_explains_itself() -> None:
    plan = solve(line({"a": 1.0, "b": 0.1, "slow": 9.0}, 4, memory=25))
    assert plan.assignment == ("a", "a", "b", "b")
    unused: Any = plan.explain["unused"]
    assert "takes" in unused["slow"] and "more" in unused["slow"]
    assert "memory" in str(plan.explain["binding"])
    small = line({"a": 1.0, "b": 0.1}, 4)
    small = replace(small, devices=(Device("a", 1e9), Device("b", 9)))
    assert "no sub-module fits" in str(solve(small).explain["unused"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"devices": (Device("a", 9), Device("b", 99))},
            "the source a must hold sub-module 0, which needs 10 B",
        ),
        ({"devices": (Device("a", 15), Device("b", 15))}, "the model needs 40 B; all devices have 30 B"),
        ({"devices": (Device("a", 25), Device("b", 15))}, "the model needs|no way of giving out"),
        (
            {"links": (), "devices": (Device("a", 25), Device("b", 25))},
            "missing link; missing: a to b, b to a",
        ),
        ({"submodules": (Submodule(10, {"b": 1.0}),) * 4}, "source: sub-module 0 must be on a"),
        (
            {"submodules": (Submodule(10, {"a": 1.0}),) * 3 + (Submodule(1, {}),)},
            "no device can run sub-module 3",
        ),
        (
            {"submodules": (Submodule(10, {"a": 1.0, "b": 1.0}),) * 3 + (Submodule(2e9, {"b": 1.0}),)},
            "sub-module 3 needs .* the most that a device can give",
        ),
    ],
)
def test_infeasible_problems_are_explained(change: dict[str, Any], words: str) -> None:
    plan = solve(replace(line({"a": 1.0, "b": 1.0}, 4), **change))
    assert not plan.feasible and plan.assignment is None and plan.value is None
    assert plan.constraint is not None
    assert re.search(words, plan.constraint), plan.constraint


def test_memory_that_cannot_be_cut() -> None:
    problem = replace(line({"a": 1.0, "b": 1.0}, 3), devices=(Device("a", 15), Device("b", 15)))
    parts = tuple(Submodule(size, {"a": 1.0, "b": 1.0}) for size in (8, 10, 8))
    plan = solve(replace(problem, submodules=parts))
    assert plan.constraint is not None and "no way of giving out the sub-modules fits" in plan.constraint


def test_steps_that_take_no_time() -> None:
    for objective in ("latency", "throughput"):
        plan = solve(replace(line({"a": 0.0, "b": 0.0}, 3), objective=objective))
        assert plan.assignment == ("a", "a", "a") and plan.gap == 0.0


def two_phases(problem: Problem, residual: bool) -> Problem:
    times = tuple(part.time_s for part in problem.submodules)
    edges = problem.edges
    if residual:
        edges += tuple(Edge(0, j, 0.1, "table") for j in range(1, len(times)))
    slow = tuple({name: 20 * seconds for name, seconds in part.items()} for part in times)
    phases = Phase("prefill", 0.01, slow, edges, 1), Phase("decode", 0.99, times, edges, 1)
    return replace(problem, edges=(), return_bytes=0, phases=phases)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(
    ("speeds", "count", "memory"),
    [
        ({"a": 0.03, "b": 0.01, "c": 0.05}, 250, 1100),
        ({"a": 0.03} | {f"board{i}": 0.03 for i in range(11)} | {"card": 0.003}, 80, 90),
    ],
    ids=["3x250", "13x80"],
)
def test_large_problems_are_fast(
    speeds: dict[str, float], count: int, memory: float, residual: bool, objective: Objective
) -> None:
    problem = two_phases(
        replace(line(speeds, count, memory, 0.001), objective=objective, returns=0), residual
    )
    work = Budget(1e12)
    # Some tenths of a second.
    assert seek_best(problem, within=work).proven and 1e12 - work.left < 3e8


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0.1, 9), min_size=3, max_size=4), st.sampled_from(OBJECTIVES))
def test_too_many_devices_for_a_proof_still_give_a_plan_and_a_bound(
    times: list[float], objective: Objective
) -> None:
    problem = replace(line(dict(zip("abcd", times, strict=False)), 6, 35), objective=objective)
    best = solve(problem)
    plan = plan_optimal(problem, Effort(1000, 1.5e8, 1e9))
    assert plan.value is not None and plan.bound is not None and best.value is not None
    ordered = [plan.bound, best.value, plan.value]
    assert ordered == pytest.approx(sorted(ordered, reverse=objective == "throughput"), rel=1e-9)


def test_a_search_that_is_stopped_states_its_gap() -> None:
    problem = line({"a": 3.0, "b": 1.0, "c": 2.0, "d": 1.5}, 12, memory=50)
    late = tuple(Edge(j, j + 5, 4000) for j in range(7))
    problem = replace(problem, edges=problem.edges + late, returns=0)
    best = solve(problem)
    assert best.gap == 0.0 and "branch and bound" in best.method
    stopped = plan_optimal(problem, replace(THOROUGH, search=0.0, programme=4e6))
    assert "stopped" in stopped.method and stopped.bound is not None and stopped.gap is not None
    assert best.value is not None and stopped.value is not None
    assert stopped.bound <= best.value <= stopped.value and stopped.gap > 0
