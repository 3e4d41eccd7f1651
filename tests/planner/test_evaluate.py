from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from partc.format.placement import stages_of
from partc.format.plan import MemoryUse, Message, Objective, plain
from partc.planner.model.evaluate import Evaluation, evaluate
from partc.planner.model.problem import Device, Edge, Link, Problem, Shared, Submodule
from tests.planner.small_problems import draw_small


def ring(edges: tuple[Edge, ...], objective: Objective = "latency", count: int = 3) -> Problem:
    """Three equal devices; `count` sub-modules of 1 s; links of 1 s + 1 s per byte."""
    names = ("a", "b", "c")
    return Problem(
        objective=objective,
        source="a",
        devices=tuple(Device(name, 100) for name in names),
        submodules=tuple(Submodule(10, dict.fromkeys(names, 1.0)) for _ in range(count)),
        links=tuple(Link(x, y, 1.0, 1.0) for x in names for y in names if x != y),
        edges=edges,
        return_bytes=2,
    )


CHAIN = (Edge(0, 1, 1), Edge(1, 2, 1))
EMBED = Shared("embed", 7)
TIED = (
    Submodule(10, dict.fromkeys("ab", 1.0), 3, EMBED),
    Submodule(20, dict.fromkeys("ab", 1.0), 5),
    Submodule(30, dict.fromkeys("ab", 1.0), 1, EMBED),
)


def test_chain() -> None:
    result = evaluate(ring(CHAIN), stages_of("abc"))
    # 1 + (1 + 1) + 1 + (1 + 1) + 1, and 1 + 2 for the way back.
    assert result.value == 10.0
    stages = result.phases[0].stages
    assert [(s.device, s.first, s.last, s.start_s, s.finish_s) for s in stages] == [
        ("a", 0, 0, 0.0, 1.0), ("b", 1, 1, 3.0, 4.0), ("c", 2, 2, 6.0, 7.0),
    ]  # fmt: skip
    assert result.phases[0].messages[-1] == Message("c", "a", 2, 7.0, 10.0, ("return",), 2, 0)


def test_a_residual_costs_nothing_until_it_is_late() -> None:
    assert evaluate(ring((*CHAIN, Edge(0, 2, 4))), stages_of("abc")).value == 10.0
    assert evaluate(ring((*CHAIN, Edge(0, 2, 7))), stages_of("abc")).value == 13.0


def test_a_value_is_sent_once_to_each_device() -> None:
    named = (Edge(0, 1, 3, "x"), Edge(0, 2, 3, "x"), Edge(1, 2, 1, "x"))
    message = evaluate(ring(named), stages_of("abb")).phases[0].messages[0]
    assert message.bytes == 3 and message.values == ("x",)
    unnamed = (Edge(0, 1, 3), Edge(0, 2, 3), Edge(1, 2, 1))
    message = evaluate(ring(unnamed), stages_of("abb")).phases[0].messages[0]
    assert message.bytes == 6 and message.values == ("0->1", "0->2")


def test_intervals_without_messages_run_beside_each_other() -> None:
    result = evaluate(ring((Edge(0, 2, 1), Edge(1, 2, 1))), stages_of("abc"))
    assert [stage.start_s for stage in result.phases[0].stages] == [0.0, 0.0, 3.0]


def test_throughput_is_one_over_the_busiest() -> None:
    problem = ring((*CHAIN, Edge(0, 2, 4)), "throughput")
    assert evaluate(problem, stages_of("abc")).value == pytest.approx(1 / 5)
    assert evaluate(problem, stages_of("aaa")).value == pytest.approx(1 / 3)
    assert dict(evaluate(problem, stages_of("abc")).busy_s)["a->c"] == 5.0


def spans(result: Evaluation) -> list[tuple[str, float, float]]:
    return [(stage.device, stage.start_s, stage.finish_s) for stage in result.phases[0].stages]


def test_a_device_that_returns_has_a_stage_for_each_interval() -> None:
    result = evaluate(ring(CHAIN), stages_of("aba"))
    # 1, a message of 2, 1, a message of 2, 1; no way back from the source.
    assert result.value == 7.0
    assert spans(result) == [("a", 0.0, 1.0), ("b", 3.0, 4.0), ("a", 6.0, 7.0)]
    assert [(m.sender, m.from_stage, m.receiver, m.to_stage) for m in result.phases[0].messages] == [
        ("a", 0, "b", 1), ("b", 1, "a", 2),
    ]  # fmt: skip
    assert dict(result.busy_s) == {"a": 2.0, "b": 1.0, "a->b": 2.0, "b->a": 2.0}
    throughput = evaluate(replace(ring(CHAIN), objective="throughput"), stages_of("aba"))
    assert throughput.value == 1 / 2


def test_a_device_runs_its_stages_one_after_the_other() -> None:
    apart = (Edge(0, 1, 5), Edge(2, 3, 1))
    result = evaluate(ring(apart, count=4), stages_of("abab"))
    # The second stage of a needs nothing and follows the first at once. Its message reaches b at 4, but b
    # waits for the other one until 7 and is busy until 8.
    assert spans(result) == [("a", 0.0, 1.0), ("b", 7.0, 8.0), ("a", 1.0, 2.0), ("b", 8.0, 9.0)]
    assert result.value == 9 + 3
    back = result.phases[0].messages[-1]
    assert (back.from_stage, back.to_stage, back.values) == (3, 0, ("return",))


def test_a_value_is_kept_for_later_stages_of_its_device() -> None:
    # x is read in both stages of b and in the later stage of a, where it was made; y stays on b.
    edges = (Edge(0, 3, 3, "x"), Edge(0, 1, 3, "x"), Edge(0, 2, 3, "x"), Edge(1, 3, 1, "y"), Edge(2, 3, 1))
    result = evaluate(ring(edges, count=4), stages_of("abab"))
    assert [(m.from_stage, m.to_stage, m.bytes, m.values) for m in result.phases[0].messages] == [
        (0, 1, 3, ("x",)), (2, 3, 1, ("2->3",)), (3, 0, 2, ("return",)),
    ]  # fmt: skip


def test_messages_to_two_stages_of_a_device_share_its_link() -> None:
    edges = (Edge(0, 1, 1), Edge(0, 3, 4), Edge(1, 2, 1), Edge(2, 3, 1))
    result = evaluate(ring(edges, "throughput", count=4), stages_of("abcb"))
    sizes = {(m.from_stage, m.to_stage): m.bytes for m in result.phases[0].messages}
    assert sizes == {(0, 1): 1, (1, 2): 1, (0, 3): 4, (2, 3): 1, (3, 0): 2}
    assert dict(result.busy_s)["a->b"] == (1 + 1) + (1 + 4)
    assert result.value == 1 / 7


def test_memory_of_a_device_that_returns() -> None:
    problem = replace(ring(CHAIN), submodules=TIED, devices=(Device("a", 60, 8), Device("b", 27, 2)))
    result = evaluate(problem, stages_of("aba"))
    assert result.memory == (MemoryUse("a", 8 + 10 + 30 + 3 + 7, 60), MemoryUse("b", 2 + 20 + 5, 27))
    tight = replace(problem, devices=(Device("a", 57, 8), Device("b", 26, 2)))
    assert evaluate(tight, stages_of("aba")).violations == (
        "a needs 58 B and has 57 B",
        "b needs 27 B and has 26 B",
    )


def test_the_json_names_the_stages_of_a_message() -> None:
    written = plain(evaluate(ring(CHAIN), stages_of("aba")).predicted)
    assert isinstance(written["phases"], list) and isinstance(written["memory"], list)
    messages = written["phases"][0]["messages"]
    assert [(m["from"], m["from_stage"], m["to"], m["to_stage"]) for m in messages] == [
        ("a", 0, "b", 1), ("b", 1, "a", 2),
    ]  # fmt: skip
    assert [use["device"] for use in written["memory"]] == ["a", "b"]


def test_memory_of_an_interval() -> None:
    problem = replace(ring(CHAIN), submodules=TIED, devices=(Device("a", 80, 8),), links=())
    assert evaluate(problem, stages_of("aaa")).memory[0].needed_bytes == 8 + 60 + 5 + 7
    tight = replace(problem, devices=(Device("a", 79, 8),))
    assert evaluate(tight, stages_of("aaa")).violations == ("a needs 80 B and has 79 B",)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("ab", "2 devices are named for 3 sub-modules"),
        ("abz", "unknown device z"),
        ("bbb", "must be on the source a"),
    ],
)
def test_assignments_that_mean_nothing(assignment: str, message: str) -> None:
    result = evaluate(ring(CHAIN), stages_of(assignment))
    assert not result.feasible and message in result.violations[0]


def test_absent_links_and_times() -> None:
    problem = ring(CHAIN)
    without = replace(problem, links=tuple(link for link in problem.links if link.receiver != "a"))
    assert evaluate(without, stages_of("abc")).violations == ("there is no link from c to a",)
    longer = replace(without, submodules=(*without.submodules, without.submodules[0]))
    longer = replace(longer, edges=(*CHAIN, Edge(1, 2, 1), Edge(2, 3, 1)))
    # Said once, although two messages and the way back need it.
    assert evaluate(longer, stages_of("abab")).violations == ("there is no link from b to a",)
    parts = (*problem.submodules[:2], Submodule(10, {"a": 1.0}))
    assert evaluate(replace(problem, submodules=parts), stages_of("abb")).violations == (
        "b cannot run sub-module 2",
    )


def naive(problem: Problem, names: tuple[str, ...]) -> tuple[float, dict[str, float]]:
    """Weighted latency and busy times of a feasible assignment, value by value from the specification."""
    stage = [0, *itertools.accumulate(a != b for a, b in itertools.pairwise(names))]
    latency, busy = 0.0, dict.fromkeys(names, 0.0)
    for phase in problem.steps:
        reads: dict[tuple[int, str, str], list[int]] = {}
        for number, edge in enumerate(phase.edges):
            key = edge.sender, edge.value or f"#{number}", names[edge.receiver]
            reads.setdefault(key, []).append(edge.receiver)
        size = {(e.sender, e.value or f"#{n}"): e.bytes for n, e in enumerate(phase.edges)}
        loads: dict[tuple[int, int], float] = {}
        for (maker, value, device), readers in reads.items():
            if device != names[maker]:
                pair = stage[maker], stage[min(readers)]
                loads[pair] = loads.get(pair, 0.0) + size[maker, value]
        finish: list[float] = []
        for s in range(stage[-1] + 1):
            held = [j for j, at in enumerate(stage) if at == s]
            device = names[held[0]]
            waits = [finish[other] for other in range(s) if names[stage.index(other)] == device]
            for (sender, receiver), load in loads.items():
                if receiver == s:
                    took = problem.link_of[names[stage.index(sender)], device].seconds(load)
                    waits.append(finish[sender] + took)
                    link = f"{names[stage.index(sender)]}->{device}"
                    busy[link] = busy.get(link, 0.0) + phase.weight * took
            seconds = sum(phase.time_s[j][device] for j in held)
            busy[device] += phase.weight * seconds
            finish.append(max(waits, default=0.0) + seconds)
        end = finish[-1]
        if names[-1] != problem.source:
            took = problem.link_of[names[-1], problem.source].seconds(phase.return_bytes)
            link = f"{names[-1]}->{problem.source}"
            busy[link] = busy.get(link, 0.0) + phase.weight * took
            end += took
        latency += phase.weight * end
    return latency, busy


@pytest.mark.parametrize("seed", range(40))
def test_any_assignment_equals_naive_evaluation(seed: int) -> None:
    problem = draw_small(seed, "latency", residuals=True)
    rest = itertools.product(problem.device_of, repeat=len(problem.submodules) - 1)
    for names in ((problem.source, *others) for others in rest):
        result = evaluate(problem, stages_of(names))
        if result.value is not None:
            latency, busy = naive(problem, names)
            assert result.value == pytest.approx(latency, rel=1e-12)
            assert dict(result.busy_s) == pytest.approx(busy, rel=1e-12)
