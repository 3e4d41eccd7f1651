"""Mirrored rows: where link and memory have room, as asked for, and not at all."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from partc.errors import PlanError
from partc.format.placement import Stages, stages_of
from partc.format.plan import Loss
from partc.planner.model.problem import Device, Edge, Link, Problem, Submodule
from partc.planner.survive.mirrors import Rows, choose_mirrors

ROWS = [Rows(2.0, 20.0)] * 6
LOST_B = Loss(device="b", assignment=tuple("aaaccc"))


def ring(bandwidth: float = 100.0, memory: float = 1000.0) -> tuple[Problem, Stages]:
    """Two sub-modules of a second on each of three devices; what is left of memory is `memory`."""
    parts = tuple(Submodule(10, dict.fromkeys("abc", 1.0)) for _ in range(6))
    devices = tuple(Device(name, 20 + memory) for name in "abc")
    links = tuple(Link(a, b, bandwidth, 0.0) for a, b in itertools.permutations("abc", 2))
    edges = tuple(Edge(j, j + 1, 1.0) for j in range(5))
    return Problem("latency", "a", devices, parts, links, edges), stages_of("aabbcc")


def test_rows_lie_where_the_plan_for_the_loss_wants_them() -> None:
    first, second = choose_mirrors(*ring(), [LOST_B], ROWS, "auto")
    assert (first.device, first.holder, first.submodules) == ("b", "a", (2,))
    assert (second.device, second.holder, second.submodules) == ("b", "c", (3,))
    assert (second.token_bytes, second.seconds, second.memory_bytes) == (2.0, 0.02, 20.0)
    assert second.text == "c keeps the caches of b up to date: 2 B a token, 20 B of memory"


def test_a_link_without_the_time_sends_no_rows() -> None:
    """At 0.5 B/s, b sends its value to c for 2 s of a step of 10, and rows would take 4; half of the rest is 4."""
    problem, stages = ring(bandwidth=0.5)
    assert [m.holder for m in choose_mirrors(problem, stages, [LOST_B], ROWS, "auto")] == ["a", "c"]
    more = [Rows(2.1, 20.0)] * 6
    assert [m.holder for m in choose_mirrors(problem, stages, [LOST_B], more, "auto")] == ["a"]
    assert len(choose_mirrors(problem, stages, [LOST_B], more, "on")) == 2


def test_rows_of_a_device_after_whose_loss_requests_begin_again_are_not_mirrored() -> None:
    again = [*ROWS[:3], Rows(2.0, 20.0, begins_again=True), *ROWS[4:]]
    assert choose_mirrors(*ring(), [LOST_B], again, "on") == ()
    elsewhere = [Rows(2.0, 20.0, begins_again=True), *ROWS[1:]]
    assert len(choose_mirrors(*ring(), [LOST_B], elsewhere, "on")) == 2


def test_a_device_without_the_memory_keeps_none() -> None:
    assert choose_mirrors(*ring(memory=19), [LOST_B], ROWS, "auto") == ()
    with pytest.raises(PlanError, match="the rows of b take 20 B on a, which has 19 B left") as caught:
        choose_mirrors(*ring(memory=19), [LOST_B], ROWS, "on", "devices.yaml")
    assert caught.value.where == "devices.yaml"


def test_several_losses_share_the_memory() -> None:
    losses = [Loss(device="b", assignment=tuple("aaaacc")), Loss(device="c", assignment=tuple("aaaaaa"))]
    found = choose_mirrors(*ring(memory=60), losses, ROWS, "auto")
    assert [(m.device, m.holder) for m in found] == [("b", "a")]


def test_rows_without_a_link() -> None:
    problem, stages = ring()
    links = tuple(link for link in problem.links if (link.sender, link.receiver) != ("b", "a"))
    found = choose_mirrors(replace(problem, links=links), stages, [LOST_B], ROWS, "auto")
    assert [mirror.holder for mirror in found] == ["c"]
    with pytest.raises(PlanError, match="there is no link from b to a for its rows"):
        choose_mirrors(replace(problem, links=links), stages, [LOST_B], ROWS, "on")


def test_nothing_is_mirrored_where_nobody_wants_it() -> None:
    assert choose_mirrors(*ring(), [LOST_B], ROWS, "off") == ()
    assert choose_mirrors(*ring(), [Loss(device="b", constraint="memory")], ROWS, "on") == ()
    assert choose_mirrors(*ring(), [LOST_B], [Rows(0, 0)] * 6, "on") == ()
