"""Objectives: one table, whose entries every room must know."""

from __future__ import annotations

from inspect import signature

import pytest

from partc.format.plan import OBJECTIVES, Objective
from partc.planner.model.objectives import best_of, by_objective, is_less_better, seconds_of


def test_what_differs_between_objectives_is_asked_of_all() -> None:
    assert {*signature(by_objective).parameters} - {"objective"} == {*OBJECTIVES}
    assert [by_objective(each, latency="latency", throughput="throughput") for each in OBJECTIVES] == [
        *OBJECTIVES
    ]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_best_of_two_values_takes_the_fewest_seconds(objective: Objective) -> None:
    best = best_of(objective)((2.0, 4.0))
    assert seconds_of(objective, best) == min(seconds_of(objective, value) for value in (2.0, 4.0))
    assert (best == 2.0) == is_less_better(objective)
    assert seconds_of(objective, seconds_of(objective, 4.0)) == 4.0
