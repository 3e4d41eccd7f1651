from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from partc.format.plan import Exchange, Plan, SharedStage, SharedStages
from partc.pipeline.sharing import SHARES_ALL
from partc.planner.groups.algorithm1 import algorithm1, apportion, excess
from partc.planner.groups.capacity import Kind, Layers, layers_of
from partc.planner.groups.eq5 import best_shares, eq5_seconds
from partc.planner.groups.evaluate import evaluate_plan, evaluate_shared
from partc.planner.groups.make import by_units
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Problem
from partc.planner.model.problem_json import problem_json, read_problem
from partc.planner.solve import solve
from tests.bench.galaxy_gap import draw_layers
from tests.planner.shared_problems import draw_shared, layers, with_decode


def test_a_problem_with_blocks_round_trips() -> None:
    for problem in (layers({"a": 1, "b": 2}), with_decode(layers({"a": 1, "b": 2}))):
        assert read_problem(problem_json(problem)) == problem


@pytest.mark.parametrize("strategy", SHARES_ALL)
def test_what_a_strategy_says_of_its_plan_is_true(strategy: str) -> None:
    feasible = 0
    for seed in range(60):
        problem = draw_shared(seed)
        plan = solve(problem, strategy)
        assert Plan.from_json(plan.to_json()) == plan and plan.assignment is None
        if plan.stages is None:
            assert plan.constraint
            continue
        feasible += 1
        assert evaluate_plan(problem, plan).value == plan.value
        assert plan.explain["shared"] and "one device a stage" in plan.explain["best"]["text"]
    assert feasible > 10


def test_one_block_of_two_devices_by_hand() -> None:
    # An attention of 3 s on two equal devices, half each: enter 0.75 s, inner 0.3 s, leave 0.375 s, connect 0.075 s.
    problem = layers({"a": 1, "b": 1}, 1, rows=8, bandwidth=80, latency=0.1)
    problem = replace(problem, submodules=problem.submodules[:2], edges=problem.edges[:1], return_bytes=80)
    stages = by_units(problem, "ab", {"heads": (2, 2)}, "tiles")
    found = evaluate_shared(problem, {"step": stages})
    # b gets all rows at 0.25 + 1.0 + 0.1 s, a has them at 0.25 s.
    ready = {"a": 0.25, "b": 1.35}
    inner = {name: at + 0.75 + 0.3 for name, at in ready.items()}
    # Half of the product, the other device's tile, 40 bytes in 0.5 s and the latency, half of the product again.
    first = {name: at + 0.1875 for name, at in inner.items()}
    summed_b = max(first["b"] + 0.1875, first["a"] + 0.6)
    # The way back of b's tile takes 0.6 s once its connecting part is done, and its link has sent the other tile.
    end = max(summed_b + 0.075, first["b"] + 0.5) + 0.6
    assert found.value == pytest.approx(end)
    assert dict(found.busy_s)["b->a"] == pytest.approx(1.0)
    assert [run.device for run in found.phases[0].stages] == ["a", "a", "b"]
    kinds = {(m.sender, m.receiver, m.kind): m.bytes for m in found.phases[0].messages}
    assert kinds == {
        ("a", "b", "sequential"): 80,
        ("a", "b", "tiles"): 40,
        ("b", "a", "tiles"): 40,
        ("b", "a", "return"): 40,
    }


def test_stages_of_one_device_are_valued_as_ever() -> None:
    problem = layers({"a": 1, "b": 2}, latency=0.1)
    stages = tuple(SharedStage(one.submodules, one.devices) for one in solve(problem).stages or ())
    assert evaluate_shared(problem, {"step": stages}).value == pytest.approx(evaluate(problem, stages).value)
    ring = (SharedStage((0, 1), ("a",)), SharedStage((2, 3), ("b",)), SharedStage((4, 4), ("a",)))
    assert evaluate_shared(problem, {"step": ring}).value == pytest.approx(evaluate(problem, ring).value)


def test_memory_is_divided_and_buffers_count() -> None:
    problem = layers({"a": 1, "b": 1}, 1, rows=8)
    stages = by_units(problem, "ab", {"heads": (3, 1), "columns": (4, 12)}, "tiles")
    use = {entry.device: entry.needed_bytes for entry in evaluate_shared(problem, {"step": stages}).memory}
    # Two tiles of four rows; the embedding is on the source.
    assert use == {"a": 6 + 9 + 6 + 80, "b": 3 + 18 + 80}
    star = by_units(problem, "ab", {"heads": (3, 1), "columns": (4, 12)}, "star")
    use = {entry.device: entry.needed_bytes for entry in evaluate_shared(problem, {"step": star}).memory}
    assert use == {"a": 6 + 9 + 6 + 80, "b": 3 + 18 + 80}
    # One row of 10 bytes on three: a star's first device has what both others send, a ring two slices of columns.
    alike = layers({"a": 1, "b": 1, "c": 1}, 1, rows=1, heads=3)
    kinds: tuple[tuple[Exchange, float, float], ...] = (("star", 20, 10), ("ring", 20 / 3, 20 / 3))
    for exchange, first, other in kinds:
        three = by_units(alike, "abc", {"heads": (1, 1, 1), "columns": (6, 6, 4)}, exchange)
        needed = [entry.needed_bytes for entry in evaluate_shared(alike, {"step": three}).memory]
        assert needed == pytest.approx([6 + 4 + 9 + first, 4 + 9 + other, 4 + 6 + other])
    # All weights on both, and tiles of keys of 40 bytes.
    rows = evaluate_plan(problem, solve(problem, "sequence-parallel"))
    assert {entry.device: entry.needed_bytes for entry in rows.memory} == {"a": 6 + 36 + 80, "b": 36 + 80}
    tight = replace(problem, devices=devices_with(problem, a=200, b=115))
    assert "b needs 116 B and has 115 B" in str(solve(tight, "sequence-parallel").constraint)


def test_a_part_of_a_block_may_be_slower_than_its_share() -> None:
    problem = layers({"a": 1, "b": 1}, 1, bandwidth=1e9)
    slow = tuple(
        replace(part, block=replace(part.block, efficiency=0.5)) if part.block else part
        for part in problem.submodules
    )
    stages = by_units(problem, "ab", {"heads": (2, 2), "columns": (8, 8)}, "tiles")
    fast_s, slow_s = (
        evaluate_shared(replace(problem, submodules=parts), {"step": stages}).value
        for parts in (problem.submodules, slow)
    )
    assert fast_s == pytest.approx(0.25 + 3.5) and slow_s == pytest.approx(0.25 + 0.95 * 7 + 0.05 * 3.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda s: (s[0], structs.replace(s[1], shares=(2, 1)), *s[2:]),
            "sub-module 1 is shared by heads, 4 in all",
        ),
        (lambda s: (s[0], structs.replace(s[1], devices=("a", "a")), *s[2:]), "names a device twice"),
        (lambda s: (structs.replace(s[0], devices=("b",)), *s[1:]), "must be on the source a alone"),
        (lambda s: (structs.replace(s[0], devices=("a", "b")), *s[1:]), "sub-module 0 cannot be shared"),
        (lambda s: s[:-1], "do not hold each of 3 sub-modules once"),
        (lambda s: (s[0], structs.replace(s[1], devices=("a", "z")), *s[2:]), "unknown device z"),
    ],
)
def test_wrong_stages_are_refused_in_words(
    change: Callable[[SharedStages], SharedStages], words: str
) -> None:
    problem = layers({"a": 1, "b": 1}, 1)
    stages = by_units(problem, "ab", {"heads": (3, 1), "columns": (4, 12)}, "tiles")
    assert evaluate_shared(problem, {"step": stages}).feasible
    found = evaluate_shared(problem, {"step": change(stages)})
    assert found.value is None and any(words in text for text in found.violations)


def test_a_missing_link_or_time_is_named() -> None:
    problem = layers({"a": 1, "b": 1}, 1)
    oneway = replace(problem, links=problem.links[:1])
    plan = solve(oneway, "galaxy")
    assert plan.constraint is not None and "no link from b to a" in plan.constraint
    parts = tuple(replace(part, time_s={"a": 1.0}) for part in problem.submodules)
    alone = solve(replace(problem, submodules=parts), "galaxy")
    assert alone.constraint is not None and "1 of 2 devices can run all blocks" in alone.constraint
    none = tuple(replace(part, block=None, tiling=None) for part in problem.submodules)
    plain = solve(replace(problem, submodules=none), "megatron")
    assert plain.constraint is not None and "no sub-module has a block" in plain.constraint


def test_the_exchange_of_decode_is_the_one_that_is_priced_lowest() -> None:
    def exchange(latency: float, bandwidth: float) -> dict[str, Exchange]:
        problem = with_decode(layers({"a": 1, "b": 1, "c": 1, "d": 1}, bandwidth=bandwidth, latency=latency))
        plan = solve(problem, "galaxy")
        return {phase: stages[1].exchange for phase, stages in plan.phases.items()}

    # Two hops through the first device against six round a ring.
    assert exchange(1.0, 1e6) == {"prefill": "tiles", "decode": "star"}
    values = {}
    problem = with_decode(layers({"a": 1, "b": 1, "c": 1, "d": 1}, bandwidth=1e6, latency=1.0))
    shares = {"heads": (1, 1, 1, 1), "columns": (4, 4, 4, 4)}
    kinds: tuple[Exchange, ...] = ("tiles", "ring", "star")
    for kind in kinds:
        stages = by_units(problem, "abcd", shares, kind)
        values[kind] = evaluate_shared(problem, {"prefill": stages, "decode": stages}).phases[1].latency_s
    assert min(values, key=lambda kind: values[kind]) == "star" and len(set(values.values())) == 3


def test_overlap_hides_messages() -> None:
    for seed in range(20):
        problem = draw_shared(seed)
        plan = solve(problem, "galaxy", explained=False)
        if plan.phases and plan.value is not None:
            plain = evaluate_shared(problem, plan.phases, overlap=False).value
            assert plain is not None and plan.value <= plain * (1 + 1e-9)


def test_throughput_is_that_of_the_busiest_lane() -> None:
    problem = replace(layers({"a": 1, "b": 3}, 1, bandwidth=1e9), objective="throughput")
    plan = solve(problem, "galaxy")
    busy = dict(evaluate_plan(problem, plan).busy_s)
    assert plan.value == pytest.approx(1 / max(busy.values())) and max(busy, key=lambda key: busy[key]) == "a"


def test_apportioning() -> None:
    assert apportion(7, [1, 1]) == [4, 3]
    assert apportion(10, [3, 1]) == [8, 2] or sum(apportion(10, [3, 1])) == 10
    rng = random.Random(3)
    for _ in range(200):
        weights = [rng.random() for _ in range(rng.randint(1, 6))]
        amount = rng.randint(0, 50)
        parts = apportion(amount, weights)
        assert sum(parts) == amount
        assert all(abs(part - amount * w / sum(weights)) < 1 for part, w in zip(parts, weights, strict=True))


def make(budgets: tuple[float, ...], seconds: tuple[float, ...]) -> Layers:
    """4 heads of 1 byte, 8 columns of 1 byte; both take `seconds`."""
    return Layers(
        tuple("abc"[: len(budgets)]),
        budgets,
        (Kind("heads", 4, 1.0, seconds), Kind("columns", 8, 1.0, seconds)),
    )


def test_algorithm_1_moves_the_excess_of_the_mlp_first() -> None:
    assert algorithm1(make((12, 12), (1.0, 1.0))) == ((2, 2), (4, 4))
    assert algorithm1(make((12, 12), (1.0, 3.0))) == ((3, 1), (6, 2))
    # a has room for 5: its 2 heads stay, and 3 of its 4 columns.
    assert algorithm1(make((5, 12), (1.0, 1.0))) == ((2, 2), (3, 5))
    # a has room for 1: all columns go, then a head.
    assert algorithm1(make((1, 12), (1.0, 1.0))) == ((1, 3), (0, 8))
    assert algorithm1(make((5, 6), (1.0, 1.0))) is None


def test_algorithm_1_may_fail_where_shares_fit() -> None:
    rng, failed = random.Random(4), 0
    for _ in range(300):
        layers_ = make(tuple(float(rng.randint(1, 9)) for _ in range(3)), (1.0, 2.0, 4.0))
        shares, best = algorithm1(layers_), best_shares(layers_)
        if shares is None:
            failed += best is not None
            continue
        assert best is not None
        assert [sum(mine) for mine in shares] == [4, 8] and min(map(min, shares)) >= 0
        assert all(excess(layers_, shares, d) <= 0 for d in range(3))
        assert eq5_seconds(layers_, best) <= eq5_seconds(layers_, shares) * (1 + 1e-9)
    assert failed < 30


def all_shares(units: int, count: int) -> list[tuple[int, ...]]:
    return [p for p in itertools.product(range(units + 1), repeat=count) if sum(p) == units]


def test_the_exact_shares_are_those_of_brute_force() -> None:
    rng = random.Random(5)
    fitting = 0
    for _ in range(150):
        count = rng.randint(2, 3)
        small = draw_layers(rng)
        kinds = tuple(
            Kind(kind.share, units, units and kind.unit_bytes * kind.units / units, kind.seconds[:count])
            for kind, units in zip(small.kinds, (rng.randint(1, 4), rng.randint(1, 6)), strict=True)
        )
        if len(small.names) < count:
            continue
        layers_ = Layers(small.names[:count], tuple(rng.uniform(0.1, 0.9) for _ in range(count)), kinds)
        values = [
            eq5_seconds(layers_, (first, second))
            for first in all_shares(kinds[0].units, count)
            for second in all_shares(kinds[1].units, count)
            if all(excess(layers_, (first, second), d) <= 1e-12 for d in range(count))
        ]
        best = best_shares(layers_)
        assert (best is not None) == bool(values)
        if best is not None:
            fitting += 1
            assert [sum(mine) for mine in best] == [kind.units for kind in kinds]
            assert eq5_seconds(layers_, best) == pytest.approx(min(values), rel=1e-9)
    assert fitting > 50


def test_one_kind_of_block_is_enough() -> None:
    one = Layers(("a", "b"), (9.0, 9.0), (Kind("columns", 8, 1.0, (1.0, 3.0)),))
    assert algorithm1(one) == ((6, 2),) == best_shares(one)


def test_unlike_layers_do_not_fit_the_model_of_the_paper() -> None:
    problem = layers({"a": 1, "b": 1})
    block = problem.submodules[1].block
    assert block is not None
    odd = replace(problem.submodules[1], block=replace(block, units=5))
    found = layers_of(replace(problem, submodules=(*problem.submodules[:1], odd, *problem.submodules[2:])))
    assert isinstance(found, str) and "unlike numbers of heads" in found


def test_the_capacity_of_eq_6() -> None:
    found = layers_of(layers({"a": 1, "b": 2}, 2))
    assert isinstance(found, Layers)
    assert found.capacities == pytest.approx((1 / 14, 2 / 14))
    assert [kind.unit_bytes for kind in found.kinds] == [6.0, 3.0]


def test_a_sub_module_that_cannot_be_shared_stays_on_the_source() -> None:
    problem = layers({"a": 1, "b": 1})
    head = replace(problem.submodules[0], memory_bytes=5)
    whole = replace(
        problem,
        submodules=(*problem.submodules, head),
        edges=(*problem.edges, replace(problem.edges[0], sender=4, receiver=5, value="last")),
    )
    plan = solve(whole, "galaxy")
    assert plan.stages is not None
    assert [stage.devices for stage in plan.stages] == [("a",), *[("a", "b")] * 4, ("a",)]
    (timeline,) = evaluate_plan(whole, plan).phases
    # b's tile goes to the head on a, and the result is there.
    assert [(m.sender, m.bytes) for m in timeline.messages if "last" in m.values] == [("b", 40)]
    assert not [m for m in timeline.messages if m.kind == "return"]
    assert math.isclose(timeline.latency_s, timeline.stages[-1].finish_s)


def devices_with(problem: Problem, **memory: float) -> tuple[Device, ...]:
    return tuple(replace(device, memory_bytes=memory[device.name]) for device in problem.devices)


def test_where_shares_exist_that_the_algorithm_misses_it_says_so() -> None:
    problem = layers({"a": 1, "b": 1}, 1)
    nowhere = replace(problem, devices=devices_with(problem, a=10, b=10))
    plan = solve(nowhere, "galaxy")
    assert plan.constraint is not None and "no shares would" in plan.constraint
