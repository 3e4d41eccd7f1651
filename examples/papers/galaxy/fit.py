"""The two fitted numbers: a speed from Table I, an efficiency from one bar of Fig. 11. Table IV is not looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from examples.papers.galaxy.paper import (
    MODELS,
    SCALING_MBIT,
    STRONG,
    STRONG_LENGTH,
    TABLE_I,
    TABLE_I_LENGTH,
    WEAK_LENGTH,
)
from examples.papers.galaxy.testbed import Fit, flops, problem_of
from partc.format.placement import stages_of
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Problem
from partc.planner.solve import solve

SPEED_FROM = "Bert-L"
EFFICIENCY_FROM = "GPT2-L"
_ROUNDS = 60


def local_seconds(problem: Problem) -> float | None:
    """The time of the source alone; None where it is out of memory."""
    return evaluate(problem, stages_of([problem.source] * len(problem.submodules))).value


def strategy_seconds(problem: Problem, strategy: str) -> float | None:
    """The time of a strategy's plan; None where it is out of memory."""
    return solve(problem, strategy, explained=False).value


def table_i_seconds(model: str, fit: Fit) -> float:
    """One Nano-M at the length of Table I."""
    problem = problem_of(MODELS[model], "m", fit, rows=TABLE_I_LENGTH, mbit=SCALING_MBIT)
    seconds = local_seconds(problem)
    assert seconds is not None
    return seconds


def strong_scaling(model: str, fit: Fit, count: int = 4) -> float:
    """Speed-up of so many Nano-M over one: one layer, the whole length."""
    local, shared = _scaled(model, fit, count, STRONG_LENGTH, STRONG_LENGTH)
    return local / shared


def weak_scaling(model: str, fit: Fit, count: int = 4) -> float:
    """Operations per second of so many Nano-M, each with its rows, as a part of `count` times those of one."""
    local, shared = _scaled(model, fit, count, WEAK_LENGTH, WEAK_LENGTH * count)
    one, all_of_them = (sum(flops(MODELS[model], WEAK_LENGTH * n).values()) for n in (1, count))
    return all_of_them / shared / (count * one / local)


def _scaled(model: str, fit: Fit, count: int, rows: int, shared_rows: int) -> tuple[float, float]:
    """Seconds of one layer on one board, and on `count` of them."""

    def problem(boards: str, length: int) -> Problem:
        return problem_of(MODELS[model], boards, fit, rows=length, mbit=SCALING_MBIT, layers=1, memory=False)

    local, shared = (
        local_seconds(problem("m", rows)),
        strategy_seconds(problem("m" * count, shared_rows), "galaxy"),
    )
    assert local is not None
    assert shared is not None
    return local, shared


def fitted() -> Fit:
    """The speed by which Table I holds for one model, then the efficiency by which Fig. 11 does for one."""
    speed = _bisect(lambda x: TABLE_I[SPEED_FROM] - table_i_seconds(SPEED_FROM, Fit(x, 1.0)), 1e8, 1e11)
    fit = Fit(speed, 1.0)
    efficiency = _bisect(
        lambda x: strong_scaling(EFFICIENCY_FROM, replace(fit, efficiency=x)) - STRONG[EFFICIENCY_FROM],
        0.3,
        1.0,
    )
    return replace(fit, efficiency=efficiency)


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is zero."""
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high
