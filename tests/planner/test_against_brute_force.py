"""The exact solver and the evaluator against a naive enumeration, written from the specification alone.

`PARTC_RANDOM_PROBLEMS=2000 pytest tests/planner/test_against_brute_force.py -k brute_force -s` checks so many and
prints how many were of which kind.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from partc.format.placement import stages_of
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import problem_json, read_problem
from partc.planner.solve import solve

Json = dict[str, Any]

PROBLEMS = int(os.environ.get("PARTC_RANDOM_PROBLEMS", "150"))
KINDS_OF_CONSTRAINT = ("source", "memory", "links", "times")
MOST_ASSIGNMENTS = 1100
"""Assignments of a problem at most, where all of them are looked at."""
FEASIBLE = {
    "latency": "latency: equal to brute force",
    "throughput": "throughput: equal to brute force",
    "even": "even: feasible",
    "several results, latency, returns True": "several results, latency, returns True: proven",
    "several results, throughput": "several results, throughput, returns True: proven",
}
"""First words of a count → the kind of it that must be frequent."""


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """The number of problems of each kind that were checked; printed at the end."""
    result: Counter[str] = Counter()
    yield result
    print("\n" + "\n".join(f"{number:6} {kind}" for kind, number in sorted(result.items())))
    # Where a kind was drawn at all, a good part of it can be planned: else the tests would prove little.
    for start, feasible in FEASIBLE.items():
        drawn = sum(number for kind, number in result.items() if kind.startswith(start))
        assert 20 * result[feasible] >= drawn, (start, drawn)


def interval_plans(problem: Json) -> Iterator[list[tuple[str, int, int]]]:
    """Every way to give intervals to distinct devices, the source first: (device, first, end)."""
    count, source = len(problem["submodules"]), problem["source"]
    others = [device["name"] for device in problem["devices"] if device["name"] != source]
    for extra in range(min(len(others), count - 1) + 1):
        for cuts in itertools.combinations(range(1, count), extra):
            for chosen in itertools.permutations(others, extra):
                bounds = [0, *cuts, count]
                yield list(zip((source, *chosen), bounds[:-1], bounds[1:], strict=True))


def all_plans(problem: Json) -> Iterator[list[tuple[str, int, int]]]:
    """Every assignment as its runs, so that a device may come again."""
    names = [device["name"] for device in problem["devices"]]
    for rest in itertools.product(names, repeat=len(problem["submodules"]) - 1):
        yield runs_of((problem["source"], *rest))


def runs_of(assignment: Sequence[str]) -> list[tuple[str, int, int]]:
    """(device, first, end) of each run."""
    runs = itertools.groupby(enumerate(assignment), key=lambda item: item[1])
    found = [(name, [j for j, _ in run]) for name, run in runs]
    return [(name, indices[0], indices[-1] + 1) for name, indices in found]


def phases_of(problem: Json) -> list[Json]:
    if "phases" in problem:
        return list(problem["phases"])
    keys = ("submodules", "edges", "return_bytes", "results")
    return [{"name": "step", "weight": 1.0, **{key: problem[key] for key in keys if key in problem}}]


def fits(problem: Json, plan: list[tuple[str, int, int]]) -> bool:
    for name in {name for name, _, _ in plan}:
        device = next(item for item in problem["devices"] if item["name"] == name)
        mine = [problem["submodules"][first:end] for own, first, end in plan if own == name]
        parts = [part for run in mine for part in run]
        need = device.get("overhead_bytes", 0) + sum(part["memory_bytes"] for part in parts)
        need += max(part.get("peak_bytes", 0) for part in parts)
        need += sum(
            {part["shared"]["name"]: part["shared"]["bytes"] for part in parts if "shared" in part}.values()
        )
        if need > device["memory_bytes"]:
            return False
    return True


def follow(
    problem: Json, phase: Json, plan: list[tuple[str, int, int]]
) -> tuple[float, dict[str, float]] | None:
    """Latency of one step and busy times; None where a time or link is missing."""
    links = {(link["from"], link["to"]): link for link in problem["links"]}
    finish: list[float] = []
    busy: dict[str, float] = {}

    def send(sender: str, receiver: str, size: float) -> float | None:
        if (sender, receiver) not in links:
            return None
        link = links[sender, receiver]
        seconds = float(link["latency_s"] + size / link["bandwidth_bytes_per_s"])
        busy[f"{sender}->{receiver}"] = busy.get(f"{sender}->{receiver}", 0.0) + seconds
        return seconds

    at: dict[tuple[int, Any], set[str]] = {}
    """Where a value lies by now."""
    came_at: dict[tuple[int, Any], float] = {}
    """When a value is on the source, which reads it."""
    free: dict[str, float] = {}
    for k, (name, first, end) in enumerate(plan):
        start = free.get(name, 0.0)
        for i, (sender, low, high) in enumerate(plan[:k]):
            values = {
                key: edge["bytes"]
                for number, edge in enumerate(phase["edges"])
                if low <= edge["from"] < high
                and first <= edge["to"] < end
                and name not in at.setdefault(key := (edge["from"], edge.get("value", number)), {sender})
            }
            for key in values:
                at[key].add(name)
            if values:
                took = send(sender, name, sum(values.values()))
                if took is None:
                    return None
                start = max(start, finish[i] + took)
                if name == problem["source"]:
                    came_at |= dict.fromkeys(values, finish[i] + took)
        times = [phase["submodules"][j]["time_s"].get(name) for j in range(first, end)]
        if None in times:
            return None
        busy[name] = busy.get(name, 0.0) + sum(times)
        finish.append(start + sum(times))
        free[name] = finish[-1]
    source, end_s = problem["source"], finish[-1]
    for k, (name, first, end) in enumerate(plan):
        results = [result for result in phase.get("results", ()) if first <= result["from"] < end]
        if name == source:
            end_s = max(end_s, finish[k] if results else 0.0)
            continue
        sizes = [
            result["bytes"]
            for result in results
            if source not in at.get((result["from"], result["value"]), set())
        ]
        sizes += [phase["return_bytes"]] if k == len(plan) - 1 else []
        if sizes:
            took = send(name, source, sum(sizes))
            if took is None:
                return None
            end_s = max(end_s, finish[k] + took)
        there = [(result["from"], result["value"]) for result in results]
        came = [came_at[key] for key in there if key in came_at]
        end_s = max([end_s, *came])
    return end_s, busy


def brute_value(problem: Json, plan: list[tuple[str, int, int]]) -> float | None:
    steps = [(phase["weight"], follow(problem, phase, plan)) for phase in phases_of(problem)]
    if not fits(problem, plan) or any(step is None for _, step in steps):
        return None
    known = [(weight, step) for weight, step in steps if step is not None]
    if problem["objective"] == "latency":
        return float(sum(weight * step[0] for weight, step in known))
    total: dict[str, float] = {}
    for weight, (_, busy) in known:
        for name, seconds in busy.items():
            total[name] = total.get(name, 0.0) + weight * seconds
    return 1.0 / max(total.values())


def brute_best(problem: Json, plans: Iterator[list[tuple[str, int, int]]] | None = None) -> float | None:
    looked_at = plans or interval_plans(problem)
    values = [value for plan in looked_at if (value := brute_value(problem, plan)) is not None]
    if not values:
        return None
    return min(values) if problem["objective"] == "latency" else max(values)


@st.composite
def problems(draw: st.DrawFn, results: bool = False) -> Json:
    """Small problems with all that can go wrong: little memory, absent links, late residuals, twins.

    `results`: sub-modules before the last one make results, too.
    """
    count = draw(st.integers(2, 10))
    names = "ABCDE"[: draw(st.integers(2, 5))]
    kinds = draw(st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names)))
    roomy = draw(st.sampled_from([3, 6, 100]))
    room = draw(st.lists(st.integers(roomy, roomy + 5), min_size=3, max_size=3))
    overhead = draw(st.lists(st.integers(0, 1), min_size=3, max_size=3))
    devices = [
        {"name": name, "memory_bytes": room[kind], "overhead_bytes": overhead[kind]}
        for name, kind in zip(names, kinds, strict=True)
    ]
    numbers = [f"{draw(st.integers(1, 12))}" for _ in range(count)]
    phased = draw(st.booleans())
    parts = [_part(draw, int(number), phased) for number in numbers]
    missing = draw(st.sampled_from([0, 0, 8]))
    links = draw(_links(names, kinds))
    problem: Json = {
        "objective": draw(st.sampled_from(["latency", "throughput"])),
        "source": draw(st.sampled_from(names)),
        "devices": devices, "submodules": parts, "links": links,
    }  # fmt: skip
    if phased:
        weights = draw(st.sampled_from([(0.25, 0.75), (1.0, 0.0), (0.01, 0.99)]))
        steps = [_step(draw, names, kinds, count, missing, results) for _ in weights]
        return problem | {
            "phases": [
                {"name": f"p{i}", "weight": w} | s
                for i, (w, s) in enumerate(zip(weights, steps, strict=True))
            ]
        }
    step = _step(draw, names, kinds, count, missing, results)
    for part, timed in zip(parts, step.pop("submodules"), strict=True):
        part |= timed
    return problem | step


def _part(draw: st.DrawFn, number: int, phased: bool) -> Json:
    part: Json = {"memory_bytes": number % 4}
    if number % 3 == 0:
        part["peak_bytes"] = number % 5
    if number > 9:
        part["shared"] = {"name": "embed", "bytes": 2}
    return part


def _step(draw: st.DrawFn, names: str, kinds: list[int], count: int, missing: int, results: bool) -> Json:
    """Times, edges and results of one phase."""
    speeds = draw(st.lists(st.sampled_from([0.5, 1.0, 1.0, 3.0]), min_size=3, max_size=3))
    work = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    times = [
        {
            name: (amount + 1) * speeds[kind]
            for name, kind in zip(names, kinds, strict=True)
            if not missing or (amount + kind * 5) % missing
        }
        for amount in work
    ]
    pairs = list(itertools.combinations(range(count), 2))
    chain = draw(st.booleans())
    extra = draw(st.lists(st.sampled_from(pairs), max_size=6))
    steps = [(j, j + 1) for j in range(count - 1)] if chain else []
    sizes = draw(st.lists(st.sampled_from([0, 1, 5, 20]), min_size=count, max_size=count))
    named = draw(st.booleans())
    edges = [
        {"from": a, "to": b, "bytes": sizes[a]} | ({"value": f"v{a}"} if named else {})
        for a, b in steps + extra
    ]
    step = {
        "submodules": [{"time_s": known} for known in times],
        "edges": edges,
        "return_bytes": draw(st.integers(0, 3)),
    }
    if not results:
        return step
    makers = draw(st.lists(st.integers(0, count - 2), min_size=1, max_size=3, unique=True))
    return step | {"results": [{"from": j, "value": f"v{j}", "bytes": sizes[j]} for j in makers]}


@st.composite
def _links(draw: st.DrawFn, names: str, kinds: list[int]) -> list[Json]:
    """Links by kind of device, so that there are twins; some directions slow, some absent."""
    pairs = [(a, b) for a in range(3) for b in range(3)]
    rates = draw(st.lists(st.sampled_from([0.0, 0.5, 2.0, 2.0, 10.0]), min_size=9, max_size=9))
    speeds = dict(zip(pairs, rates, strict=True))
    delays = draw(st.lists(st.sampled_from([0.0, 1.0, 4.0]), min_size=9, max_size=9))
    latency = dict(zip(pairs, delays, strict=True))
    kind_of = dict(zip(names, kinds, strict=True))
    return [
        {"from": a, "to": b, "bandwidth_bytes_per_s": speeds[pair], "latency_s": latency[pair]}
        for a, b in itertools.permutations(names, 2)
        if speeds[pair := (kind_of[a], kind_of[b])]
    ]


@settings(max_examples=PROBLEMS, deadline=None)
@given(data=problems())
def test_optimal_equals_brute_force(data: Json, counts: Counter[str]) -> None:
    problem = read_problem(data | {"returns": 0})
    check(problem, brute_best(data), counts)


@settings(max_examples=PROBLEMS, deadline=None)
@given(data=problems())
def test_optimal_over_plans_that_return_equals_brute_force(data: Json, counts: Counter[str]) -> None:
    assume(len(data["devices"]) ** (len(data["submodules"]) - 1) <= MOST_ASSIGNMENTS)
    check(read_problem(data), brute_best(data, all_plans(data)), counts)


@settings(max_examples=PROBLEMS, deadline=None)
@given(data=problems(results=True), returns=st.booleans())
def test_plans_with_several_results_against_brute_force(
    data: Json, returns: bool, counts: Counter[str]
) -> None:
    """Not every one is proven to be the best, but the bound and the proof hold."""
    assume(len(data["devices"]) ** (len(data["submodules"]) - 1) <= MOST_ASSIGNMENTS)
    problem = read_problem(data if returns else data | {"returns": 0})
    plan, best = solve(problem, explained=False), brute_best(data, all_plans(data) if returns else None)
    assert plan.feasible == (best is not None)
    if best is None or plan.value is None or plan.assignment is None:
        return
    assert evaluate(problem, stages_of(plan.assignment)).value == plan.value
    cost, least = (plan.value, best) if problem.objective == "latency" else (1 / plan.value, 1 / best)
    assert cost >= least * (1 - 1e-9)
    if plan.bound is not None:
        bound = plan.bound if problem.objective == "latency" else 1 / plan.bound
        assert bound <= least * (1 + 1e-9)
    is_best = cost <= least * (1 + 1e-9)
    assert is_best or plan.gap != 0.0
    assert plan.gap == 0.0 or returns or problem.objective == "throughput", "else the search is exact"
    kind = "proven" if plan.gap == 0.0 else "the best, not proven" if is_best else "not the best"
    counts[f"several results, {problem.objective}, returns {returns}: {kind}"] += 1


def check(problem: Problem, best: float | None, counts: Counter[str]) -> None:
    plan = solve(problem, explained=False)
    if best is None:
        assert not plan.feasible and plan.value is None
        assert plan.constraint and plan.constraint.startswith(KINDS_OF_CONSTRAINT)
        counts[f"{problem.objective}: infeasible, {plan.constraint.partition(':')[0]}"] += 1
        return
    assert plan.feasible and plan.value is not None and plan.assignment is not None
    assert plan.value == pytest.approx(best, rel=1e-9)
    assert plan.gap == 0.0 and plan.bound == plan.value
    assert evaluate(problem, stages_of(plan.assignment)).value == plan.value
    counts[f"{problem.objective}: equal to brute force"] += 1
    if len(stages_of(plan.assignment)) > len(set(plan.assignment)):
        counts[f"{problem.objective}: returns"] += 1


@settings(max_examples=100, deadline=None)
@given(st.booleans().flatmap(lambda results: problems(results=results)), st.randoms())
def test_evaluator_equals_naive_evaluation(data: Json, random: Any) -> None:
    rest = [random.choice(data["devices"])["name"] for _ in data["submodules"][1:]]
    plan = runs_of((data["source"], *rest))
    assignment = [name for name, first, end in plan for _ in range(first, end)]
    result, expected = evaluate(read_problem(data), stages_of(assignment)), brute_value(data, plan)
    assert result.feasible == (expected is not None)
    if expected is not None:
        assert result.value is not None and math.isclose(result.value, expected, rel_tol=1e-12)


@settings(max_examples=60, deadline=None)
@given(data=problems())
def test_even_is_never_better_and_round_trips(data: Json, counts: Counter[str]) -> None:
    problem = read_problem(data)
    assert read_problem(problem_json(problem)) == problem
    even = solve(problem, "even", explained=False)
    if even.value is None:
        counts["even: infeasible"] += 1
        return
    counts["even: feasible"] += 1
    best = brute_best(data)
    assert best is not None and even.bound is not None
    ordered = [even.bound, best, even.value]
    assert ordered == pytest.approx(sorted(ordered, reverse=data["objective"] == "throughput"), rel=1e-9)
