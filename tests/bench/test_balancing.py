from __future__ import annotations

import numpy as np

from partc.planner.model.problem import Device, Edge, Link, Problem, Submodule
from partc.planner.model.stages import devices_of
from partc.runtime.client.results import Timings
from tests.bench.balancing import best_static, steps_by_epoch


def test_steps_are_told_apart_by_their_placement() -> None:
    """The prompt, and the step in which the placement changes, are left out."""
    started, epochs = [0.0, 9.0, 10.0, 12.0, 20.0, 23.0], [0, 0, 0, 0, 2, 2]
    timings = Timings(("started_s", "epoch"), np.array([started, epochs], float).T)
    assert steps_by_epoch(timings) == {0: [1.0, 2.0], 2: [3.0]}


def test_the_best_static_plan_leaves_a_slow_device_out() -> None:
    parts = tuple(Submodule(1.0, dict.fromkeys("abc", 1.0)) for _ in range(6))
    devices = (Device("a", 3.0), Device("b", 4.0), Device("c", 3.0))
    links = tuple(Link(one, other, 1e9, 0.1) for one in "abc" for other in "abc" if one != other)
    edges = tuple(Edge(place, place + 1, 1.0) for place in range(5))
    problem = Problem("latency", "a", devices, parts, links, edges, 1.0)
    assert "b" not in devices_of(best_static(problem, 4.0))
    assert "b" in devices_of(best_static(problem, 0.25))
