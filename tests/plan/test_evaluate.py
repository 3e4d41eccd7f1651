from __future__ import annotations

from dataclasses import replace

import pytest

from partc.plan.evaluate import Message, evaluate
from partc.plan.problem import Device, Edge, Link, Problem, Shared, Submodule


def ring(edges: tuple[Edge, ...], objective: str = "latency") -> Problem:
    """Three equal devices and sub-modules of 1 s; links of 1 s + 1 s per byte."""
    names = ("a", "b", "c")
    return Problem(
        objective=objective,
        source="a",
        devices=tuple(Device(name, 100) for name in names),
        submodules=tuple(Submodule(10, dict.fromkeys(names, 1.0)) for _ in range(3)),
        links=tuple(Link(x, y, 1.0, 1.0) for x in names for y in names if x != y),
        edges=edges,
        return_bytes=2,
    )


CHAIN = (Edge(0, 1, 1), Edge(1, 2, 1))


def test_chain() -> None:
    result = evaluate(ring(CHAIN), "abc")
    # 1 + (1 + 1) + 1 + (1 + 1) + 1, and 1 + 2 for the way back.
    assert result.value == 10.0
    stages = result.phases[0].stages
    assert [(s.device, s.first, s.last, s.start_s, s.finish_s) for s in stages] == [
        ("a", 0, 0, 0.0, 1.0), ("b", 1, 1, 3.0, 4.0), ("c", 2, 2, 6.0, 7.0),
    ]  # fmt: skip
    assert result.phases[0].messages[-1] == Message("c", "a", 2, 7.0, 10.0, ("return",))


def test_a_residual_costs_nothing_until_it_is_late() -> None:
    assert evaluate(ring((*CHAIN, Edge(0, 2, 4))), "abc").value == 10.0
    assert evaluate(ring((*CHAIN, Edge(0, 2, 7))), "abc").value == 13.0


def test_a_value_is_sent_once_to_each_device() -> None:
    named = (Edge(0, 1, 3, "x"), Edge(0, 2, 3, "x"), Edge(1, 2, 1, "x"))
    message = evaluate(ring(named), "abb").phases[0].messages[0]
    assert message.bytes == 3 and message.values == ("x",)
    unnamed = (Edge(0, 1, 3), Edge(0, 2, 3), Edge(1, 2, 1))
    message = evaluate(ring(unnamed), "abb").phases[0].messages[0]
    assert message.bytes == 6 and message.values == ("0->1", "0->2")


def test_intervals_without_messages_run_beside_each_other() -> None:
    result = evaluate(ring((Edge(0, 2, 1), Edge(1, 2, 1))), "abc")
    assert [stage.start_s for stage in result.phases[0].stages] == [0.0, 0.0, 3.0]


def test_throughput_is_one_over_the_busiest() -> None:
    problem = ring((*CHAIN, Edge(0, 2, 4)), "throughput")
    assert evaluate(problem, "abc").value == pytest.approx(1 / 5)
    assert evaluate(problem, "aaa").value == pytest.approx(1 / 3)
    assert dict(evaluate(problem, "abc").busy_s)["a->c"] == 5.0


def test_memory_of_an_interval() -> None:
    embed = Shared("embed", 7)
    parts = (
        Submodule(10, {"a": 1.0}, 3, embed),
        Submodule(20, {"a": 1.0}, 5),
        Submodule(30, {"a": 1.0}, 1, embed),
    )
    problem = replace(ring(CHAIN), submodules=parts, devices=(Device("a", 80, 8),), links=())
    assert evaluate(problem, "aaa").memory[0].needed_bytes == 8 + 60 + 5 + 7
    tight = replace(problem, devices=(Device("a", 79, 8),))
    assert evaluate(tight, "aaa").violations == ("a needs 80 B and has 79 B",)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("ab", "2 devices are named for 3 sub-modules"),
        ("abz", "unknown device z"),
        ("bbb", "must be on the source a"),
        ("aba", "not consecutive"),
    ],
)
def test_assignments_that_mean_nothing(assignment: str, message: str) -> None:
    result = evaluate(ring(CHAIN), assignment)
    assert not result.feasible and message in result.violations[0]


def test_absent_links_and_times() -> None:
    problem = ring(CHAIN)
    without = replace(problem, links=tuple(link for link in problem.links if link.receiver != "a"))
    assert evaluate(without, "abc").violations == ("there is no link from c to a",)
    parts = (*problem.submodules[:2], Submodule(10, {"a": 1.0}))
    assert evaluate(replace(problem, submodules=parts), "abb").violations == ("b cannot run sub-module 2",)
