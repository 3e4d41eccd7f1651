"""Changed problems: what changes, and that nothing else does."""

from __future__ import annotations

import pytest

from partc.format.placement import stages_of
from partc.planner.model.change import with_bandwidths, with_devices, with_speeds
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Submodule
from partc.planner.model.problem_json import problem_json, read_problem

TIMES = {"a": 1.0, "b": 4.0, "c": 2.0}


def problem(phased: bool) -> Problem:
    """Two sub-modules, three devices, messages of 8 s; one step, or two phases of it."""
    edges = (Edge(0, 1, 8.0, "h"),)
    links = tuple(Link(x, y, 1.0, 0.5) for x in "abc" for y in "abc" if x != y)
    devices = tuple(Device(name, 9.0) for name in "abc")
    if not phased:
        return Problem("latency", "a", devices, (Submodule(1.0, TIMES),) * 2, links, edges)
    phases = tuple(Phase(name, 0.5, (TIMES, TIMES), edges) for name in ("prefill", "decode"))
    return Problem("latency", "a", devices, (Submodule(1.0, {}),) * 2, links, phases=phases)


@pytest.mark.parametrize("phased", [False, True])
def test_faster_links_and_devices(phased: bool) -> None:
    given = problem(phased)
    faster = with_speeds(with_bandwidths(given, {("a", "b"): 4.0}), {"b": 2.0})
    # Computing on a, the link there, computing on b, and the way back of a message without bytes.
    assert evaluate(given, stages_of("ab")).value == 1 + (0.5 + 8) + 4 + 0.5
    assert evaluate(faster, stages_of("ab")).value == 1 + (0.5 + 2) + 2 + 0.5
    assert evaluate(faster, stages_of("ac")).value == evaluate(given, stages_of("ac")).value
    assert faster.link_of["b", "a"] == given.link_of["b", "a"]


@pytest.mark.parametrize("phased", [False, True])
def test_fewer_devices(phased: bool) -> None:
    given = problem(phased)
    fewer = with_devices(given, {"a", "b"})
    assert list(fewer.device_of) == ["a", "b"]
    assert set(fewer.link_of) == {("a", "b"), ("b", "a")}
    assert all(set(times) == {"a", "b"} for phase in fewer.steps for times in phase.time_s)
    assert evaluate(fewer, stages_of("ab")) == evaluate(given, stages_of("ab"))
    assert read_problem(problem_json(fewer)) == fewer
