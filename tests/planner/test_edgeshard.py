"""EdgeShard's algorithms against the letter of its equations, and the faults that they are known for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from partc.errors import PlanError
from partc.format.plan import Objective
from partc.planner.baselines import edgeshard_latency, edgeshard_throughput
from partc.planner.baselines.edgeshard_throughput import group_alike
from partc.planner.baselines.traces import Traces
from partc.planner.exact.optimal import without_returns
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Shared, Submodule
from partc.planner.solve import solve
from tests.bench.edgeshard_gap import draw_paper


def chain(
    times: Mapping[str, Sequence[float | None]],
    memory: Mapping[str, float],
    rate: float = 1.0,
    size: float = 1.0,
) -> Problem:
    """Sub-modules of 1 byte of memory; every pair linked, outputs of `size` bytes, an empty return message."""
    names = list(times)
    count = len(times[names[0]])
    return Problem(
        objective="latency",
        source=names[0],
        devices=tuple(Device(name, memory[name]) for name in names),
        submodules=tuple(
            Submodule(1, {name: t for name in names if (t := times[name][j]) is not None})
            for j in range(count)
        ),
        links=tuple(Link(a, b, rate, 0.0) for a in names for b in names if a != b),
        edges=tuple(Edge(j, j + 1, size) for j in range(count - 1)),
    )


def needs(traces: Traces, path: tuple[int, ...]) -> list[float]:
    """Bytes on each device (Eq. 5)."""
    return [
        sum(need for need, at in zip(traces.need_bytes, path, strict=True) if at == device)
        for device in range(len(traces.names))
    ]


def path_seconds(traces: Traces, path: tuple[int, ...]) -> float:
    """Eq. 2 with the way back of Eq. 7."""
    total = sum(traces.compute_s[j, device] for j, device in enumerate(path))
    total += sum(traces.transfer_s[j, a, b] for j, (a, b) in enumerate(itertools.pairwise(path)))
    return float(total + traces.transfer_s[-1, path[-1], 0])


def slowest_part(traces: Traces, path: tuple[int, ...]) -> float:
    """Eq. 10 over all devices."""
    busy = [0.0] * len(traces.names)
    for j, device in enumerate(path):
        busy[device] += traces.compute_s[j, device]
    crossing = [traces.transfer_s[j, a, b] for j, (a, b) in enumerate(itertools.pairwise(path)) if a != b]
    return float(max(busy + crossing))


def paths(traces: Traces) -> list[tuple[int, ...]]:
    """Every allocation with layer 0 on the source (Eq. 4)."""
    count, devices = traces.compute_s.shape
    return [(0, *rest) for rest in itertools.product(range(devices), repeat=count - 1)]


def small(objective: Objective, seed: int) -> Problem:
    problem = draw_paper(objective, seed)
    parts = problem.submodules[:5]
    return replace(problem, submodules=parts, edges=problem.edges[: len(parts) - 1], return_bytes=3.0)


@pytest.mark.parametrize("seed", range(25))
def test_latency_is_optimal_where_memory_is_no_matter(seed: int) -> None:
    problem = small("latency", seed)
    traces = Traces.of(replace(problem, devices=tuple(Device(d.name, 1e9) for d in problem.devices)))
    path = edgeshard_latency.allocate(traces)
    assert path is not None
    best = min(path_seconds(traces, other) for other in paths(traces))
    assert path_seconds(traces, tuple(path)) == pytest.approx(best, rel=1e-12)


def test_latency_never_exceeds_memory_nor_beats_its_own_optimum() -> None:
    found = 0
    for seed in range(40):
        traces = Traces.of(small("latency", seed))
        path = edgeshard_latency.allocate(traces)
        fitting = [other for other in paths(traces) if (needs(traces, other) <= traces.memory_bytes).all()]
        if path is None:
            continue
        found += 1
        assert tuple(path) in fitting, seed
        best = min(path_seconds(traces, other) for other in fitting)
        assert path_seconds(traces, tuple(path)) >= best * (1 - 1e-12), seed
    assert found >= 20


def test_latency_forgets_the_path_that_kept_memory() -> None:
    # b is faster, a little for the second layer and much for the third, and holds one. The fastest way to two
    # layers ends on b, which is then full; the way over a, slower by then and better in the end, survives as
    # the state of a, but the state of c has only the memory of the path over b.
    problem = chain(
        {"a": [1, 1.0, 99, 99], "b": [9, 0.5, 9, 0.1], "c": [9, 9, 1, 50]},
        {"a": 2, "b": 1, "c": 2}, size=0.01,
    )  # fmt: skip
    assert solve(problem).assignment == ("a", "a", "c", "b")
    plan = solve(problem, "edgeshard-latency")
    assert plan.assignment == ("a", "b", "c", "c")
    assert plan.gap is not None and plan.gap > 0.9


def test_latency_may_find_nothing() -> None:
    # c alone can run the third layer, b alone the fourth; but the state of c is the path over b, which is full.
    problem = chain(
        {"a": [1, 1.0, None, None], "b": [None, 0.5, None, 1], "c": [None, None, 1, None]},
        {"a": 2, "b": 1, "c": 1}, size=0.01,
    )  # fmt: skip
    assert solve(problem).assignment == ("a", "a", "c", "b")
    plan = solve(problem, "edgeshard-latency")
    assert not plan.feasible and plan.constraint is not None
    assert "although there is one of 4.02 s" in plan.constraint and "memory of one path" in plan.constraint


def test_equal_paths_leave_the_last_one() -> None:
    free = chain(
        {"a": [1, 1, 1], "b": [1, 1, 1], "c": [1, 1, 1]}, dict.fromkeys("abc", 9.0), rate=1e30, size=0
    )
    path = edgeshard_latency.allocate(Traces.of(free))
    # Line 11 replaces equals: layer 1 comes from c to whatever device; the first of the last ones ends it.
    assert path == [0, 2, 0]


def legal_paths(traces: Traces) -> list[tuple[int, ...]]:
    """The plans that Eq. 12-14 allow: one interval per device, the first layer alone on the source, memory."""
    return [
        path
        for path in paths(traces)
        if 0 not in path[1:]
        and len(list(itertools.groupby(path))) == len(set(path))
        and (needs(traces, path) <= traces.memory_bytes).all()
    ]


def test_throughput_equals_a_search_over_its_own_plans() -> None:
    found = none = 0
    for seed in range(40):
        traces = Traces.of(small("throughput", seed))
        legal, path = legal_paths(traces), edgeshard_throughput.allocate(traces)
        if not legal:
            assert path is None, seed
            none += 1
            continue
        found += 1
        assert path is not None and tuple(path) in legal, seed
        best = min(slowest_part(traces, other) for other in legal)
        assert slowest_part(traces, tuple(path)) == pytest.approx(best, rel=1e-12), seed
    assert found >= 10 and none >= 1


def test_throughput_with_twins_equals_that_with_names(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"a": [1.0] * 7} | {f"b{i}": [2.0] * 7 for i in range(3)} | {f"c{i}": [2.5] * 7 for i in range(2)}
    problem = chain(times, {name: 3.0 if name[0] == "b" else 2.0 for name in times}, rate=2.0)
    # A message between two b takes longer than anything else: where one is in use, no other follows it.
    links = tuple(
        replace(link, bandwidth_bytes_per_s=0.01) if link.sender[0] == link.receiver[0] == "b" else link
        for link in problem.links
    )
    traces = Traces.of(replace(problem, links=links))
    assert group_alike(traces) == [[0], [1, 2, 3], [4, 5]]
    counted = edgeshard_throughput.allocate(traces)
    monkeypatch.setattr(edgeshard_throughput, "group_alike", lambda t: [[d] for d in range(len(t.names))])
    named = edgeshard_throughput.allocate(traces)
    assert counted is not None and named is not None
    assert slowest_part(traces, tuple(counted)) == slowest_part(traces, tuple(named)) < 100


def test_the_source_of_throughput_holds_one_layer() -> None:
    problem = replace(chain({"a": [1.0] * 4, "b": [5.0] * 4}, {"a": 9, "b": 9}), objective="throughput")
    plan = solve(problem, "edgeshard-throughput")
    assert plan.assignment == ("a", "b", "b", "b") and plan.value == 1 / 15
    assert plan.bound == 1 / 4
    small_b = replace(problem, devices=(Device("a", 9), Device("b", 2)))
    failed = solve(small_b, "edgeshard-throughput")
    assert failed.constraint is not None and "Eq. 14 leaves the source" in failed.constraint
    alone = replace(problem, submodules=problem.submodules[:1], edges=())
    assert solve(alone, "edgeshard-throughput").assignment == ("a",)


def test_throughput_does_not_see_the_way_back() -> None:
    problem = replace(
        chain({"a": [1.0] * 3, "b": [1.0] * 3, "c": [1.1] * 3}, dict.fromkeys("abc", 2.0)),
        objective="throughput",
    )
    no_return = replace(problem, links=tuple(link for link in problem.links if link.receiver != "a"))
    plan = solve(no_return, "edgeshard-throughput")
    assert plan.constraint is not None and "no link from b to a" in plan.constraint
    assert "neither the return nor residual messages" in plan.constraint


def test_residual_edges_are_not_seen() -> None:
    problem = chain(
        {"a": [1.0] * 3, "b": [0.1, 0.1, 9], "c": [9, 9, 0.1]}, dict.fromkeys("abc", 1.0), size=0.01
    )
    problem = replace(
        problem,
        links=tuple(link for link in problem.links if (link.sender, link.receiver) != ("a", "c")),
        edges=(*problem.edges, Edge(0, 2, 1.0)),
    )
    roomy = replace(problem, devices=tuple(Device(name, 2.0) for name in "abc"))
    plan = solve(roomy, "edgeshard-latency")
    assert (
        plan.constraint is not None and "no link from a to c (Eq. 7 does not see residual" in plan.constraint
    )


def test_memory_is_added_up() -> None:
    problem = chain({"a": [1.0] * 3, "b": [1.0] * 3}, {"a": 10, "b": 1})
    tied = tuple(replace(part, peak_bytes=2, shared=Shared("embed", 3)) for part in problem.submodules)
    problem = replace(problem, submodules=tied)
    assert solve(problem).assignment == ("a", "a", "a")
    for strategy in ("edgeshard-latency", "edgeshard-throughput"):
        plan = solve(problem, strategy)
        assert plan.constraint is not None and "adds up the activations and shared weights" in plan.constraint


def test_a_problem_without_a_plan_is_explained_as_by_optimal() -> None:
    problem = chain({"a": [1.0] * 3, "b": [1.0] * 3}, {"a": 1, "b": 1})
    expected = solve(problem).constraint
    for strategy in ("edgeshard-latency", "edgeshard-throughput"):
        plan = solve(problem, strategy)
        assert not plan.feasible and plan.constraint == expected


def test_a_plan_that_returns_is_found_as_by_optimal() -> None:
    problem = chain({"a": [1, 9, 1], "b": [9, 1, 9]}, {"a": 9, "b": 9}, size=0.1)
    plan = solve(problem, "edgeshard-latency")
    assert plan.assignment == ("a", "b", "a") and plan.value == pytest.approx(3.2)
    alone = solve(without_returns(problem)).value
    assert alone is not None and alone > 3.2
    assert plan.bound == plan.value == solve(problem).value and plan.gap == 0.0


def test_a_plan_that_returns_and_is_worse_has_the_bound_of_all() -> None:
    problem = chain({"a": [1, 9, 1, 9], "b": [9, 1, 1.2, 1]}, {"a": 9, "b": 9}, size=0.05)
    problem = replace(problem, links=tuple(replace(link, latency_s=0.3) for link in problem.links))
    plan = solve(problem, "edgeshard-latency")
    best = solve(problem)
    assert plan.assignment == ("a", "b", "a", "b") and best.assignment == ("a", "b", "b", "b")
    assert plan.value is not None and best.value is not None and plan.value > best.value
    assert plan.bound == pytest.approx(best.value) and plan.gap


def test_phases_are_weighed() -> None:
    problem = chain({"a": [1.0, 2.0], "b": [3.0, 4.0]}, {"a": 9, "b": 9}, rate=2.0)
    first = Phase(
        "prefill", 0.5, ({"a": 1.0, "b": 3.0}, {"a": 2.0}), (Edge(0, 1, 8, "x"), Edge(0, 1, 8, "x")), 6
    )
    second = Phase("decode", 2.0, ({"a": 10.0, "b": 30.0}, {"a": 20.0, "b": 40.0}), (Edge(0, 1, 1),), 2)
    traces = Traces.of(replace(problem, edges=(), phases=(first, second)))
    assert traces.compute_s.tolist() == [[20.5, 61.5], [41.0, float("inf")]]
    assert traces.transfer_s[:, 0, 1].tolist() == [0.5 * 4 + 2 * 0.5, 0.5 * 3 + 2 * 1]
    assert traces.transfer_s[:, [0, 1], [0, 1]].max() == 0


def test_the_testbed_is_solved_at_once() -> None:
    names = ["agx0", *(f"agx{i}" for i in range(1, 12)), "nx0", "nx1", "rtx"]
    speed = {"agx": 0.004, "nx": 0.008, "rtx": 0.0005}
    times = {name: [speed[name.rstrip("0123456789")]] * 165 for name in names}
    problem = chain(times, dict.fromkeys(names, 14.0), rate=1e6)
    latency, throughput = (
        edge.allocate(Traces.of(problem)) for edge in (edgeshard_latency, edgeshard_throughput)
    )
    # Types, not devices, are counted: 12 x 3 x 2 sets instead of 2**14.
    assert [len(members) for members in group_alike(Traces.of(problem))] == [1, 11, 2, 1]
    assert latency is not None and max(latency.count(device) for device in range(15)) == 14
    assert throughput is not None and throughput.count(0) == 1 and len(set(throughput)) == 15


def test_too_many_unlike_devices_are_refused() -> None:
    times = {f"d{i}": [1.0 + i] * 4 for i in range(20)}
    with pytest.raises(PlanError, match="19 unlike ones besides the source") as caught:
        solve(chain(times, dict.fromkeys(times, 9.0)), "edgeshard-throughput")
    assert caught.value.hint is not None and "--strategy optimal" in caught.value.hint
