"""Plans that return to a device: against all assignments, with limits, and on the shapes of real models."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from partc.format.placement import stages_of
from partc.format.plan import OBJECTIVES, Objective
from partc.planner.exact.optimal import plan_optimal, seek_best, without_returns
from partc.planner.exact.returns.search import seek_returning
from partc.planner.exact.tables import Forced
from partc.planner.model.effort import QUICK, THOROUGH, Budget
from partc.planner.model.evaluate import evaluate
from partc.planner.model.objectives import seconds_of
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Shared, Submodule
from partc.planner.model.problem_json import problem_json, read_problem
from partc.planner.model.stages import returns_of
from partc.planner.solve import STRATEGIES, solve
from tests.bench.random_problems import Family, draw_problem
from tests.planner.small_problems import draw_small

SEEDS = range(25)


def brute(problem: Problem, most: float = math.inf, using: str | None = None) -> float:
    """The least seconds of all assignments that return so often at most."""
    found = math.inf
    for assignment in itertools.product(problem.device_of, repeat=len(problem.submodules)):
        stages = stages_of(assignment)
        if returns_of(stages) <= most and (using is None or using in assignment):
            value = evaluate(problem, stages).value
            found = min(found, math.inf if value is None else seconds_of(problem.objective, value))
    return found


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("residuals", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("most", [0, 1, 2, None])
def test_no_plan_returns_more_often_than_it_may(
    most: int | None, objective: Objective, residuals: bool
) -> None:
    for seed in SEEDS:
        problem = replace(draw_small(seed, objective, residuals), returns=most)
        plan, best = plan_optimal(problem), brute(problem, math.inf if most is None else most)
        if plan.value is None or plan.stages is None:
            assert best == math.inf, seed
            continue
        assert seconds_of(objective, plan.value) == pytest.approx(best, rel=1e-9), seed
        assert plan.gap == 0.0 and (most is None or returns_of(plan.stages) <= most), seed
        assert read_problem(problem_json(problem)) == problem


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_device_that_must_be_used(objective: Objective) -> None:
    for seed in SEEDS:
        problem = draw_small(seed, objective, residuals=True)
        last = problem.devices[-1].name
        best = seek_best(problem, forced=Forced(last, 1))
        expected = brute(problem, using=last)
        found = math.inf if best.solution is None else seconds_of(objective, best.solution.value)
        assert found == pytest.approx(expected, rel=1e-9) and best.proven, seed


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_strategy_is_beyond_the_bound(objective: Objective) -> None:
    names = [name for name in STRATEGIES if name not in ("galaxy", "megatron", "sequence-parallel")]
    for seed, name in itertools.product(range(12), names):
        problem = draw_small(seed, objective, residuals=True)
        plan = solve(problem, name, explained=False)
        best = plan_optimal(problem)
        if plan.value is None or best.value is None or best.bound is None:
            continue
        for bound in (plan.bound, best.bound):
            least = 0.0 if bound is None else seconds_of(objective, bound)
            assert least <= seconds_of(objective, plan.value) * (1 + 1e-6), (seed, name)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_larger_problems_are_never_worse_and_bounded(objective: Objective) -> None:
    better = 0
    for seed in range(4):
        problem = replace(
            draw_problem(Family(4, 20, objective, memory=1.2, residual=0.3), seed), returns=None
        )
        alone = seek_best(without_returns(problem))
        known = math.inf if alone.solution is None else seconds_of(objective, alone.solution.value)
        found = seek_returning(problem, known, Budget(3e8), rounds=60)
        assert found.bound <= found.cost <= known
        better += found.stages is not None
        if found.stages is not None and found.evaluation is not None:
            assert evaluate(problem, found.stages) == found.evaluation
    assert better


def test_equal_work_gives_equal_plans() -> None:
    problem = replace(draw_problem(Family(4, 20, memory=1.2), 1), returns=None)
    first, second = (seek_returning(problem, math.inf, Budget(2e8), rounds=40) for _ in range(2))
    assert (first.stages, first.cost, first.bound) == (second.stages, second.cost, second.bound)


def tied(layers: int, room: dict[str, float]) -> Problem:
    """Attention and MLP of Gemma 3 270M by turns in int4, an embedding for 262,144 tokens, and the tied head."""
    embedding = Shared("embedding", 262144 * 640 * 0.5625)
    sizes = [0.6e6 if j % 2 else 2.2e6 for j in range(2 * layers)]
    parts = [Submodule(0, {}, shared=embedding), *(Submodule(size, {}) for size in sizes)]
    parts.append(Submodule(0, {}, shared=embedding))
    speed = {"phone": 12e9, "board": 40e9, "laptop": 50e9}
    bytes_read = [0.0, *sizes, embedding.bytes]
    times = tuple({name: size / speed[name] for name in room} for size in bytes_read)
    edges = tuple(Edge(j, j + 1, 1280.0) for j in range(len(parts) - 1))
    phases = (Phase("decode", 1.0, times, edges, 8.0),)
    links = tuple(Link(a, b, 6e6, 3e-3) for a in room for b in room if a != b)
    devices = tuple(Device(name, size, 30e6) for name, size in room.items())
    return Problem("latency", "phone", devices, tuple(parts), links, phases=phases)


def test_a_tied_head_comes_back_to_the_embedding() -> None:
    """Only the phone has room for the embedding, and none for all layers."""
    problem = tied(18, {"phone": 140e6, "board": 80e6, "laptop": 60e6})
    assert not plan_optimal(without_returns(problem)).feasible
    plan = plan_optimal(problem)
    assert plan.stages is not None and plan.gap == 0.0
    assert plan.stages[0].device == plan.stages[-1].device == "phone" and returns_of(plan.stages) == 1


def test_where_everything_fits_a_proof_takes_a_look_at_the_prices() -> None:
    problem = tied(18, dict.fromkeys(("phone", "board", "laptop"), 400e6))
    work = Budget(1e12)
    best = seek_best(problem, within=work)
    assert best.proven and 1e12 - work.left < 1e7
    assert best.solution == seek_best(without_returns(problem)).solution


def test_a_search_that_is_stopped_says_so() -> None:
    problem = replace(draw_problem(Family(4, 30, "throughput", memory=1.2), 2), returns=None)
    plan = plan_optimal(problem, replace(THOROUGH, returns=2e7))
    assert "not settled" in plan.method or "stopped before the proof" in plan.method
    assert plan.gap is None or plan.gap > 0


def test_a_quick_look_bounds_all_plans() -> None:
    for seed in SEEDS:
        problem = draw_small(seed, "latency", residuals=True)
        best, quick = brute(problem), seek_best(problem, effort=QUICK)
        if quick.solution is None or quick.solution.bound is None:
            continue
        assert quick.solution.bound <= best * (1 + 1e-9) <= quick.solution.value * (1 + 2e-9), seed
