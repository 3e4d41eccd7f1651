"""The gain of a change, and the rest of an explanation."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from partc.format.placement import stages_of
from partc.format.plan import OBJECTIVES, Objective
from partc.planner.exact.optimal import find_best, seek_best, without_returns
from partc.planner.explain import explanation as explain_module
from partc.planner.explain import what_if
from partc.planner.model.effort import QUESTION, QUICK, Effort
from partc.planner.model.evaluate import evaluate
from partc.planner.model.infeasible import without_memory_limits
from partc.planner.model.objective_values import is_better
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Submodule
from partc.planner.solve import solve
from tests.bench.random_problems import Family, draw_problem
from tests.planner.small_problems import draw_small

GIB = 2.0**30


def chain(
    speeds: dict[str, float],
    count: int,
    memory: dict[str, float] | float = 1e12,
    objective: Objective = "latency",
) -> Problem:
    """A chain of equal sub-modules of 1 GB; every pair linked at 1000 bytes/s."""
    room = memory if isinstance(memory, dict) else dict.fromkeys(speeds, memory)
    return Problem(
        objective=objective,
        source=next(iter(speeds)),
        devices=tuple(Device(name, room[name]) for name in speeds),
        submodules=tuple(Submodule(1e9, dict(speeds)) for _ in range(count)),
        links=tuple(Link(a, b, 1000.0, 0.0) for a in speeds for b in speeds if a != b),
        edges=tuple(Edge(j, j + 1, 100) for j in range(count - 1)),
        return_bytes=10,
    )


def entries(problem: Problem, strategy: str = "optimal") -> list[dict[str, Any]]:
    found: Any = solve(problem, strategy).explain["what_if"]
    return list(found)


def by_subject(found: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(entry["change"], entry.get("device") or entry["link"]): entry for entry in found}


def test_every_change_with_its_arithmetic() -> None:
    # a holds two of 1 s, b two of 0.5 s; one message of 0.1 s and the return of 0.01 s.
    found = by_subject(entries(chain({"a": 1.0, "b": 0.5}, 4, {"a": 2e9, "b": 2e9})))
    assert found["speed", "a"]["value"] == pytest.approx(2.11)
    assert found["speed", "b"]["value"] == pytest.approx(2.61)
    assert found["bandwidth", "a-b"]["value"] == pytest.approx(3.055)
    # With one more GiB b takes three: 1 + 1.5 s; a could take three, which is slower.
    assert found["memory", "b"]["value"] == pytest.approx(2.61)
    assert found["memory", "a"]["gain_s_per_token"] == 0.0
    assert found["memory", "b"]["text"] == "1 GiB more memory on b: 2.61 s per step, 500 ms less"
    assert found["memory", "a"]["text"] == "1 GiB more memory on a: no change"
    assert (found["memory", "b"]["bytes"], found["speed", "a"]["factor"]) == (2**30, 2.0)
    gains = [entry["gain_s_per_token"] for entry in found.values()]
    assert gains == pytest.approx(sorted(gains, reverse=True))
    assert all(
        entry["gain_s_per_token"] == pytest.approx(3.11 - entry["s_per_token"]) for entry in found.values()
    )


def test_equal_gains_keep_the_order_of_the_questions() -> None:
    found = entries(chain({"a": 1.0, "b": 1.0, "c": 1.1}, 3, 1e9))
    speeds = [entry["device"] for entry in found if entry["change"] == "speed"]
    assert speeds[-2:] == ["a", "b"]


def test_a_throughput_is_said_in_seconds_per_token() -> None:
    problem = replace(chain({"a": 1.0, "b": 0.5}, 3, {"a": 1e9, "b": 2e9}, "throughput"), batch=4)
    (speed,) = [
        entry for entry in entries(problem) if entry.get("device") == "a" and entry["change"] == "speed"
    ]
    # Both take a second; a alone is no bottleneck. Each sequence of the batch gets its token in that second.
    assert (speed["value"], speed["s_per_token"], speed["gain_s_per_token"]) == (1.0, 1.0, 0.0)


def test_devices_that_are_alike_are_asked_about_once() -> None:
    found = entries(chain({"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.5}, 6, 2e9))
    subjects = [(entry["change"], entry.get("device"), entry.get("link")) for entry in found]
    assert len(subjects) == len(set(subjects))
    assert sorted(entry["link"] for entry in found if entry["change"] == "bandwidth") == ["a-b", "b-c"]
    (speed,) = [entry for entry in found if entry["change"] == "speed" and entry["device"] == "b"]
    assert speed["alike"] == ["c", "d"]
    assert speed["text"].startswith("twice the speed of b (or one of 2 like it): ")


def test_a_link_that_is_not_in_use_is_told_where_it_would_be() -> None:
    fast = chain({"a": 1.0, "b": 0.1}, 4)
    slow = replace(fast, links=tuple(replace(link, bandwidth_bytes_per_s=30.0) for link in fast.links))
    assert solve(slow, explained=False).assignment == ("a",) * 4
    (entry,) = [entry for entry in entries(slow) if entry["change"] == "bandwidth"]
    # One on a, three on b: 1 + 0.3 s, 100 bytes and 10 back at 60 bytes/s.
    assert entry["link"] == "a-b" and entry["value"] == pytest.approx(1.3 + 110 / 60)
    hopeless = replace(fast, links=tuple(replace(link, bandwidth_bytes_per_s=1.0) for link in fast.links))
    assert not [entry for entry in entries(hopeless) if entry["change"] == "bandwidth"]


def test_a_link_without_a_way_back() -> None:
    problem = chain({"a": 1.0, "b": 1.0, "c": 1.0}, 3, 1e9)
    links = tuple(link for link in problem.links if (link.sender, link.receiver) != ("b", "a"))
    found = entries(replace(problem, links=links))
    assert {"a->b"} < {entry["link"] for entry in found if entry["change"] == "bandwidth"}


def test_a_given_assignment_stays_and_the_best_is_told() -> None:
    problem = chain({"a": 1.0, "b": 0.5, "old": 9.0}, 6)
    plan = solve(problem, "even")
    best: Any = plan.explain["best"]
    assert best["assignment"] == ["a", "b", "b", "b", "b", "b"]
    assert plan.value is not None and best["gain_s_per_token"] == pytest.approx(plan.value - best["value"])
    assert best["text"].endswith("less: 0 on a, 1-5 on b") and best["text"] in str(plan.explain["binding"])
    found: Any = plan.explain["what_if"]
    assert not any(entry["replanned"] for entry in found)
    # 100 bytes thrice and 10 back; twice the speed of old saves half of its 18 s.
    assert found[0]["device"] == "old" and found[0]["gain_s_per_token"] == pytest.approx(9.0)
    assert {entry["change"] for entry in found} == {"speed", "bandwidth"}


def test_an_idle_device_of_a_given_assignment() -> None:
    few = chain({"a": 1.0, "b": 0.9, "c": 0.1, "d": 5.0}, 2)
    unused: Any = solve(few, "even").explain["unused"]
    assert unused == {
        "c": "this assignment gives it nothing; the best plan gives it sub-module 1",
        "d": "this assignment gives it nothing, and neither does the best plan",
    }


def test_per_token_where_a_model_generates() -> None:
    problem = chain({"a": 1.0, "b": 0.5}, 4, {"a": 2e9, "b": 2e9})
    times = tuple(part.time_s for part in problem.submodules)
    phases = (Phase("prefill", 0.1, times, problem.edges, 10), Phase("decode", 0.9, times, problem.edges, 10))
    generating = replace(problem, phases=phases, edges=(), return_bytes=0)
    for objective, word in zip(OBJECTIVES, ("per token", "tokens/s"), strict=True):
        told = solve(replace(generating, objective=objective)).explain
        texts = [str(told["binding"]), *(entry["text"] for entry in told["what_if"])]
        assert any(word in text for text in texts)
        assert not any("step" in text for text in texts[1:])


def test_too_large_to_ask_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain({"a": 1.0, "b": 0.5}, 4, {"a": 2e9, "b": 2e9})
    monkeypatch.setattr(what_if, "WHAT_IFS", 3 * what_if.solve_operations(problem))
    found = by_subject(entries(problem))
    assert [entry["replanned"] for entry in found.values()].count(True) == 3
    # What is left is answered for the same plan: at least so much.
    link = found["bandwidth", "a-b"]
    assert link["value"] == pytest.approx(3.055) and link["text"].endswith("less (with the same plan)")


def test_too_large_to_ask_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain({"a": 1.0, "b": 0.5, "c": 3.0}, 4, {"a": 2e9, "b": 2e9, "c": 2e9})
    monkeypatch.setattr(explain_module, "QUESTION", replace(QUESTION, programme=0.0))
    monkeypatch.setattr("partc.planner.solve._solver", lambda: lambda *_: pytest.fail("solved"))
    told: Any = solve(problem).explain
    assert "not computed" in told["binding"] and "not computed" in told["unused"]["c"]
    memory = [entry for entry in told["what_if"] if entry["change"] == "memory"]
    assert {entry["gain_s_per_token"] for entry in memory} == {None}
    assert all(entry["text"].endswith("not computed: the problem is large") for entry in memory)
    assert told["what_if"][-len(memory) :] == memory
    assert told["what_if"][0]["gain_s_per_token"] > 0
    assert "not computed" in str(solve(problem, "even").explain["best"])


def draw_residual(seed: int, objective: Objective) -> Problem:
    """Unlike devices, half of the sub-modules with a residual message, slow links: late residuals."""
    problem = draw_problem(Family(5, 16, objective, memory=1.3, residual=0.5), seed)
    links = tuple(
        replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s / 20) for link in problem.links
    )
    return replace(problem, links=links)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_search_without_a_proof_says_so(objective: Objective) -> None:
    behind, proven = 0, 0
    for seed in range(12):
        problem = draw_residual(seed, objective)
        full = find_best(problem)
        quick, question = (seek_best(problem, effort=effort) for effort in (QUICK, QUESTION))
        if full is None:
            continue
        assert question.proven and question.solution is not None
        assert question.solution.value == pytest.approx(full.value, rel=1e-9)
        proven += 1
        worse = quick.solution is None or is_better(problem, full.value, quick.solution.value)
        assert not (worse and quick.proven)
        behind += worse
    # A quick search is behind the best plan more often than not, and never says that it is the best.
    assert proven >= 8 and behind >= 4


def test_what_is_not_proven_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without branch and bound: each statement of fact is checked against all plans."""
    monkeypatch.setattr(
        "partc.planner.model.effort.QUESTION", Effort(1e8, 0.0, 10.0, proves=False, returns=0.0)
    )
    open_ends = facts = 0
    for seed, objective in itertools.product(range(60), OBJECTIVES):
        problem = replace(draw_small(seed, objective, residuals=True), returns=0)
        plan = solve(problem)
        if plan.value is None:
            continue
        told: Any = plan.explain
        if "memory does not bind" in told["binding"]:
            unlimited = brute(without_memory_limits(problem))
            assert unlimited is not None and not is_better(problem, unlimited, plan.value), seed
            facts += 1
        open_ends += "no better plan was found" in told["binding"]
        for entry in told["what_if"]:
            ends = (
                tuple(entry["link"].replace("->", "-").split("-")) if "link" in entry else (entry["device"],)
            )
            best = brute(what_if.Question(entry["change"], ends).apply(problem))
            assert best is not None
            if entry["text"].endswith(": no change"):
                assert not is_better(problem, best, plan.value), (seed, entry)
                facts += 1
            open_ends += "no better plan was found" in entry["text"]
        for name, reason in told["unused"].items():
            if reason.startswith("no plan with it meets the limits of memory, links and times"):
                assert brute(problem, name) is None, (seed, name)
                facts += 1
            open_ends += reason == "no plan with it was found"
    assert facts >= 100 and open_ends >= 10


def test_why_a_device_gets_nothing_whatever_the_limits() -> None:
    alone: Any = solve(chain({"a": 1.0, "b": 0.1}, 1)).explain["unused"]
    assert alone == {"b": "sub-module 0 stays on the source a, and there is no other"}
    few: Any = solve(chain({"a": 1.0, "b": 0.1, "c": 0.1, "d": 0.1}, 3, 1e9)).explain["unused"]
    assert few == {
        "d": "there are too few sub-modules: sub-module 0 stays on the source a, and the others have a device each"
    }
    problem = chain({"a": 1.0, "b": 0.1}, 2)
    parts = (problem.submodules[0], replace(problem.submodules[1], time_s={"a": 1.0}))
    pinned: Any = solve(replace(problem, submodules=parts)).explain["unused"]
    assert pinned == {"b": "sub-module 0 stays on the source a, and it can run no other"}


def test_more_memory_that_cannot_help_is_not_planned_anew() -> None:
    found = by_subject(entries(chain({"a": 1.0, "b": 0.5}, 4)))
    assert found["memory", "b"]["text"] == "1 GiB more memory on b: no change"
    assert not found["memory", "b"]["replanned"] and found["speed", "b"]["replanned"]


def brute(problem: Problem, using: str | None = None) -> float | None:
    """The best value over all assignments with one interval per device; of those that use a device."""
    names, count = list(problem.device_of), len(problem.submodules)
    values = [
        value
        for assignment in itertools.product(names, repeat=count)
        if (problem.returns is None or len(stages_of(assignment)) == len(set(assignment)))
        and (using is None or using in assignment)
        and (value := evaluate(problem, stages_of(assignment)).value) is not None
    ]
    return (min if problem.objective == "latency" else max)(values, default=None)


@settings(max_examples=25, deadline=None)
@given(
    speeds=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    rooms=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    bandwidths=st.lists(st.integers(10, 1000), min_size=3, max_size=3),
    residual=st.integers(1, 900),
    objective=st.sampled_from(OBJECTIVES),
)
def test_gains_are_those_of_the_best_plans(
    speeds: list[int], rooms: list[int], bandwidths: list[int], residual: int, objective: Objective
) -> None:
    problem = chain(
        dict(zip("abc", map(float, speeds), strict=True)),
        4,
        dict(zip("abc", (1.1e9 * room for room in rooms), strict=True)),
        objective,
    )
    rate = dict(zip(("ab", "ac", "bc"), bandwidths, strict=True))
    links = tuple(
        replace(link, bandwidth_bytes_per_s=float(rate["".join(sorted(link.sender + link.receiver))]))
        for link in problem.links
    )
    late = (Edge(0, 2, residual), Edge(0, 3, 30), Edge(1, 3, residual))
    problem = replace(problem, links=links, edges=problem.edges + late)
    assume(solve(problem, explained=False).feasible)
    for entry in entries(problem):
        ends = tuple(entry["link"].split("-")) if "link" in entry else (entry["device"],)
        changed = what_if.Question(entry["change"], ends).apply(problem)
        assert entry["value"] == pytest.approx(brute(changed), rel=1e-9)


def test_a_device_that_cannot_run_what_would_be_left_for_it() -> None:
    """One interval each: behind a, it would have the end of the model."""
    problem = chain({"a": 1.0, "b": 0.1}, 3)
    first, second, third = problem.submodules
    parts = (first, second, replace(third, time_s={"a": 1.0}))
    problem = replace(problem, submodules=parts)
    assert solve(problem).assignment == ("a", "b", "a")
    told: Any = solve(without_returns(problem)).explain["unused"]
    limits = "no plan with it meets the limits of memory, links and times"
    assert told == {"b": f"{limits}, and it cannot run sub-module 2"}
