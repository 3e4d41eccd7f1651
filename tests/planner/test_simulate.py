"""The simulator against the formula, on random plans and on the figures of EdgeShard."""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.errors import ConfigError, PlanError
from partc.format.placement import stages_of
from partc.format.plan import plain
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Submodule
from partc.planner.model.problem_json import problem_json
from partc.planner.simulate import MODES, Simulation, simulate_plan
from partc.planner.simulate.case import simulate
from partc.planner.simulate.demand import Load, Noise
from partc.planner.simulate.script import workflow_of

PLANS = int(os.environ.get("PARTC_SIMULATED_PLANS", "60"))
"""Random plans of each property."""

Plan = tuple[Problem, tuple[str, ...], int]
"""A problem, an assignment, and the tokens that the weights of its phases stand for."""


def random_problem(rng: random.Random) -> tuple[Problem, int]:
    """Unlike devices and links, residuals with and without names, two phases of unlike times and sizes."""
    count, names, tokens = rng.randint(2, 10), "abcde"[: rng.randint(2, 5)], rng.randint(2, 9)
    pairs = [(i, i + 1) for i in range(count - 1)]
    pairs += [pair for pair in itertools.combinations(range(count), 2) if rng.random() < 0.12]
    kinds = [rng.choice([None, "x", "y"]) for _ in pairs]
    links = tuple(
        Link(a, b, rng.choice([1.0, rng.uniform(0.5, 4)]), rng.choice([0.0, 0.5, rng.random()]))
        for a, b in itertools.permutations(names, 2)
    )

    def phase(name: str, weight: float) -> Phase:
        times = tuple({name: rng.choice([1.0, rng.uniform(0, 2)]) for name in names} for _ in range(count))
        sizes: dict[tuple[int, str | None], float] = {}
        edges = tuple(
            Edge(a, b, sizes.setdefault((a, kind), rng.uniform(0, 3)) if kind else rng.uniform(0, 3), kind)
            for (a, b), kind in zip(pairs, kinds, strict=True)
        )
        return Phase(name, weight, times, edges, rng.random())

    phases = (phase("prefill", 1 / tokens), phase("decode", (tokens - 1) / tokens))
    devices = tuple(Device(name, 1e9) for name in names)
    parts = tuple(Submodule(1, {}) for _ in range(count))
    return Problem("latency", "a", devices, parts, links, phases=phases), tokens


def in_order(rng: random.Random) -> Plan:
    """Every device has one interval at most."""
    problem, tokens = random_problem(rng)
    count, names = len(problem.submodules), [device.name for device in problem.devices]
    ring = ["a", *rng.sample(names[1:], rng.randint(0, min(len(names), count) - 1))]
    cuts = [0, *sorted(rng.sample(range(1, count), len(ring) - 1)), count]
    lengths = [b - a for a, b in itertools.pairwise(cuts)]
    return problem, tuple(n for n, size in zip(ring, lengths, strict=True) for _ in range(size)), tokens


def returning(rng: random.Random) -> Plan:
    """Any device may have any sub-module but the first."""
    problem, tokens = random_problem(rng)
    names = [device.name for device in problem.devices]
    return problem, ("a", *(rng.choice(names) for _ in problem.submodules[1:])), tokens


def follow(plan: Plan, mode: str, requests: int = 1, in_flight: int | None = None) -> Simulation:
    problem, assignment, tokens = plan
    load = Load(requests, tokens, mode, in_flight or requests)
    return simulate(workflow_of(problem, stages_of(assignment)), load)


seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("make", [in_order, returning])
@settings(max_examples=PLANS)
@given(seed=seeds)
def test_one_request_takes_what_the_formula_says(make: object, seed: int) -> None:
    plan = make(random.Random(seed))  # type: ignore[operator]
    problem, assignment, tokens = plan
    formula = evaluate(problem, stages_of(assignment))
    prefill, decode = (timeline.latency_s for timeline in formula.phases)
    found = follow(plan, "sequential")
    expected = [prefill + step * decode for step in range(tokens)]
    assert found.token_s[0] == pytest.approx(expected, rel=1e-9)
    assert found.makespan_s / tokens == pytest.approx(formula.value, rel=1e-9)
    assert found.limit.s_per_token == pytest.approx(max(dict(formula.busy_s).values()), rel=1e-9)


@settings(max_examples=PLANS)
@given(seed=seeds)
def test_each_way_to_pipeline_is_faster_and_none_beats_the_formula(seed: int) -> None:
    rng = random.Random(seed)
    plan = in_order(rng)
    requests = rng.randint(1, 7)
    in_flight = rng.randint(1, requests)
    one, bubbles, none = (follow(plan, mode, requests, in_flight).makespan_s for mode in MODES)
    assert none <= bubbles * (1 + 1e-9) and bubbles <= one * (1 + 1e-9)
    problem, assignment, tokens = plan
    busiest = max(dict(evaluate(problem, stages_of(assignment)).busy_s).values())
    assert none >= busiest * requests * tokens * (1 - 1e-9)


@settings(max_examples=PLANS // 3)
@given(seed=seeds)
def test_many_requests_reach_the_throughput_of_the_formula(seed: int) -> None:
    """With one kind of step.

    Where prefill and decode keep different devices busy, requests in step with each other use them in turn,
    and the formula, which adds up the phases, is out of reach.
    """
    problem, assignment, tokens = in_order(random.Random(seed))
    decode = problem.phases[1]
    parts = tuple(Submodule(1, times) for times in decode.time_s)
    single = replace(problem, submodules=parts, edges=decode.edges, phases=(), objective="throughput")
    best = evaluate(single, stages_of(assignment)).value
    assert best is not None
    found = follow((single, assignment, tokens), "no-bubbles", requests=200, in_flight=40)
    assert 0.98 * best < found.tokens_per_s <= best * (1 + 1e-9)


@settings(max_examples=PLANS // 3)
@given(seed=seeds, make=st.sampled_from([in_order, returning]), mode=st.sampled_from(MODES))
def test_nothing_happens_twice_at_a_time(seed: int, make: object, mode: str) -> None:
    """A device runs one thing at a time; every stage of every step runs once; tokens come in order."""
    problem, assignment, tokens = plan = make(random.Random(seed))  # type: ignore[operator]
    found = follow(plan, mode, requests=3)
    stages = len(evaluate(problem, stages_of(assignment)).phases[0].stages)
    runs = {(span.request, span.step, span.stage) for span in found.spans}
    assert len(runs) == len(found.spans) == 3 * tokens * stages
    for device in set(assignment):
        times = [(span.start_s, span.end_s) for span in found.spans if span.device == device]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(times))
    for times_of in found.token_s:
        assert len(times_of) == tokens and sorted(times_of) == list(times_of)
    assert all(0 <= busy <= 1 + 1e-9 for busy in found.busy.values())


def ring(seconds: dict[str, float], *, bandwidth: float = 1e9, size: float = 0.0) -> Problem:
    """One sub-module a device, in their order; one kind of step."""
    names = list(seconds)
    return Problem(
        objective="throughput",
        source=names[0],
        devices=tuple(Device(name, 1e9) for name in names),
        submodules=tuple(Submodule(1, seconds) for _ in names),
        links=tuple(Link(a, b, bandwidth, 0.0) for a, b in itertools.permutations(names, 2)),
        edges=tuple(Edge(i, i + 1, size) for i in range(len(names) - 1)),
    )


def plan_json(problem: Problem, assignment: list[str]) -> dict[str, object]:
    predicted = evaluate(problem, stages_of(assignment)).predicted
    answer = {"feasible": True, "assignment": assignment}
    return {
        "format": "partc-plan/1",
        "problem": problem_json(problem),
        "answer": answer,
        "predicted": plain(predicted),
    }


def test_figure_5() -> None:
    """Three equal devices and four micro-batches: with bubbles a token takes 6 units, without them 4."""
    plan = plan_json(ring({"a": 1.0, "b": 1.0, "c": 1.0}), ["a", "b", "c"])
    bubbles = simulate_plan(plan, requests=4, tokens=3, mode="bubbles")
    assert [times[-1] for times in bubbles.token_s] == [15, 16, 17, 18]
    none = simulate_plan(plan, requests=4, tokens=3, mode="no-bubbles")
    assert [times[-1] for times in none.token_s] == [11, 12, 13, 14]
    starts = [(span.request, span.step) for span in none.spans if span.device == "b"]
    assert starts == [(request, step) for step in range(3) for request in range(4)]
    assert none.busy["a"] == pytest.approx(12 / 14)
    one = simulate_plan(plan, requests=4, tokens=3)
    assert one.makespan_s == 36.0 and one.token_s[1][0] == 12.0


def test_gain_of_figure_11() -> None:
    """In the manner of Fig. 11: decode steps of Llama-2-7B in fp32, 4096 values of 4 bytes at each cut.

    Times are 27 GB of weights over 204.8 GB/s (AGX Orin) and 936 GB/s (RTX 3090). On two devices joined by
    1 Mbit/s the link is what takes the time, and the gain is small, as the paper's 0.36 tokens/s; over five
    Jetsons with 50 Mbit/s it is large (paper: 6.96). A plan on one device gains nothing (paper: the same).
    """
    weights, orin, cloud = 27e9, 204.8e9, 936e9
    jetsons = ring(dict.fromkeys("abcde", weights / 5 / orin), bandwidth=50e6 / 8, size=16384)
    even = ring({"a": weights / 2 / orin, "b": weights / 2 / cloud}, bandwidth=1e6 / 8, size=16384)
    alone = ring({"a": weights / orin})
    gains = []
    for problem in (alone, even, jetsons):
        plan = plan_json(problem, [device.name for device in problem.devices])
        rates = [simulate_plan(plan, requests=8, tokens=96, mode=mode).tokens_per_s for mode in MODES]
        assert rates == sorted(rates)
        gains.append(rates[2] - rates[1])
    assert gains[0] == pytest.approx(0, abs=1e-9)
    assert 0.1 < gains[1] < 2 and gains[2] > 5


def test_a_link_carries_one_message_at_a_time() -> None:
    """Messages of 2 s that leave every second queue; the latency is part of what occupies the link."""
    problem = ring({"a": 1.0, "b": 0.0}, bandwidth=1.0, size=1)
    links = tuple(replace(link, latency_s=1.0) for link in problem.links)
    found = simulate_plan(
        plan_json(replace(problem, links=links), ["a", "b"]), requests=3, mode="no-bubbles", tokens=1
    )
    there = [(item.start_s, item.end_s) for item in found.transfers if item.receiver == "b"]
    assert there == [(1, 3), (3, 5), (5, 7)]


def test_requests_that_find_no_room_wait() -> None:
    workflow = workflow_of(ring({"a": 1.0, "b": 1.0}), stages_of("ab"))
    found = simulate(workflow, Load(4, 2, "no-bubbles", 2))
    assert [times[0] for times in found.token_s] == [2.0, 3.0, 6.0, 7.0]
    bubbles = simulate(workflow, Load(4, 2, "bubbles", 2))
    assert [times[0] for times in bubbles.token_s] == [2.0, 3.0, 8.0, 9.0]


def test_jitter_is_seeded_and_the_same_in_every_mode() -> None:
    problem, assignment, tokens = in_order(random.Random(5))
    workflow = workflow_of(problem, stages_of(assignment))

    def lengths(mode: str, seed: int) -> list[float]:
        found = simulate(workflow, Load(3, tokens, mode, 3, jitter=0.2, seed=seed))
        spans = sorted(found.spans, key=lambda span: (span.request, span.step, span.stage))
        return [span.end_s - span.start_s for span in spans]

    assert lengths("bubbles", 1) == pytest.approx(lengths("no-bubbles", 1), abs=1e-9)
    assert lengths("bubbles", 1) != pytest.approx(lengths("bubbles", 2), abs=1e-3)
    noise = Noise(0.2, 0)
    factors = [noise.factor("a", 0) for _ in range(4000)]
    mean = sum(factors) / len(factors)
    assert mean == pytest.approx(1, abs=0.02) and min(factors) > 0
    assert (sum((f - mean) ** 2 for f in factors) / len(factors)) ** 0.5 == pytest.approx(0.2, abs=0.02)


def test_tokens_are_those_of_the_workload() -> None:
    problem, assignment, tokens = in_order(random.Random(3))
    found = simulate_plan(plan_json(problem, list(assignment)))
    assert len(found.token_s[0]) == tokens
    assert {(span.phase, span.step == 0) for span in found.spans} == {("prefill", True), ("decode", False)}
    single = simulate_plan(plan_json(ring({"a": 1.0}), ["a"]))
    assert len(single.token_s[0]) == 1 and single.pace_s is None


def test_json_says_what_the_fields_say() -> None:
    found = simulate_plan(plan_json(ring({"a": 1.0, "b": 2.0}, size=1e9), ["a", "b"]), requests=2, tokens=2)
    data = found.to_json()
    assert data["requests"] == data["tokens"] == 2 and data["limit"] == {"name": "b", "s_per_token": 2.0}
    assert data["spans"][1] == {  # type: ignore[index]
        "device": "b", "request": 0, "phase": "step", "step": 0, "stage": 1, "start_s": 2.0, "end_s": 4.0,
    }  # fmt: skip
    assert data["transfers"][0] == {  # type: ignore[index]
        "from": "a", "to": "b", "request": 0, "phase": "step", "step": 0, "bytes": 1e9,
        "start_s": 1.0, "end_s": 2.0,
    }  # fmt: skip


def test_a_batch_counts_as_one_request() -> None:
    """Times are those of the whole batch; only what comes out is more."""
    problem = ring({"a": 1.0, "b": 2.0})
    one = simulate_plan(plan_json(problem, ["a", "b"]), requests=2)
    eight = simulate_plan(plan_json(replace(problem, batch=8), ["a", "b"]), requests=2)
    assert eight == replace(one, batch=8) and eight.to_json()["batch"] == 8


def test_no_time_at_all() -> None:
    found = simulate_plan(plan_json(ring({"a": 0.0}), ["a"]), tokens=3)
    assert found.makespan_s == 0 and found.tokens_per_s < float("inf") and found.busy == {"a": 0.0}


def test_sixty_four_devices() -> None:
    names = [f"d{i}" for i in range(64)]
    problem = ring(dict.fromkeys(names, 1.0))
    found = simulate(workflow_of(problem, stages_of(names)), Load(8, 128, "no-bubbles", 8))
    assert len(found.spans) == 64 * 8 * 128 and found.makespan_s == 64 * 128 + 7


def test_what_is_no_plan_is_refused() -> None:
    problem = ring({"a": 1.0, "b": 1.0})
    plan = plan_json(problem, ["a", "b"])
    for wrong, message in (
        (problem_json(problem), "planning problem"),
        ({}, "the format is missing"),
        ({"format": "partc-plan/1"}, "no problem and no answer"),
        ({**plan, "format": "partc-plan/9"}, "partc-plan/9"),
        ({**plan, "answer": {"assignment": None, "constraint": "no link"}}, "not feasible: no link"),
        ({**plan, "answer": {"assignment": "ab"}}, "list of devices"),
        ({**plan, "answer": {"assignment": ["a", "z"]}}, "unknown device z"),
        ({**plan, "answer": {"assignment": ["b", "a"]}}, "must be on the source"),
    ):
        with pytest.raises(PlanError, match=message):
            simulate_plan(wrong)
    with pytest.raises(ConfigError, match="expected a mapping"):
        simulate_plan({**plan, "problem": 3})
    for options in ({"requests": 0}, {"tokens": 0}, {"mode": "fast"}, {"jitter": -1}, {"tokens": 10**9}):
        with pytest.raises(PlanError):
            simulate_plan(plan, **options)
