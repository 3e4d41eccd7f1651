"""The search for many unlike devices: its bounds are bounds, its plans are plans, and nothing stops it."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.plan.evaluate import evaluate
from partc.plan.exact import optimal
from partc.plan.exact.bound import MAX_STEPS, steps
from partc.plan.exact.chain import Chain, chain_of
from partc.plan.exact.greedy import place_greedily
from partc.plan.exact.large import LargeSearch
from partc.plan.exact.optimal import find_best, lower_bound
from partc.plan.exact.orders import OrderSearch
from partc.plan.exact.prices import ascend, cheapest_path, cost_to_go
from partc.plan.exact.solution import Solution, cost_of, named
from partc.plan.exact.tables import Tables
from partc.plan.exact.windows import Windows
from partc.plan.problem import Device, Problem
from tests.bench.random_problems import Family, draw_problem
from tests.bench.testbed import edgeshard_testbed
from tests.plan.test_against_brute_force import Json, brute_best, problems

FAMILIES = [
    Family(6, 24),
    Family(6, 24, memory=1.1, residual=0.3),
    Family(7, 30, memory=1.3, links="sites"),
    Family(5, 40, memory=8, residual=0.2),
]


def search_large(
    problem: Problem, limit_s: float = 5.0, forced: tuple[int, int] | None = None
) -> LargeSearch:
    return LargeSearch(Tables(problem), time.monotonic() + limit_s, forced).run()


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_bound_and_plan_lie_on_both_sides_of_the_optimum(family: Family, objective: str) -> None:
    for seed in range(2):
        problem = draw_problem(replace(family, objective=objective), seed)
        best, found = find_best(problem), search_large(problem)
        if best is None:
            assert found.best is None
            continue
        assert "dynamic programming" in best.method and best.bound == best.value
        solution = found.solution()
        assert solution is not None
        assert evaluate(problem, solution.assignment).value == solution.value
        least, optimum, reached = (cost_of(problem, x) for x in (solution.bound, best.value, solution.value))
        assert least <= optimum * (1 + 1e-9) and optimum <= reached * (1 + 1e-9)
        assert least > 0.85 * reached


@settings(max_examples=40, deadline=None)
@given(problems())
def test_bounds_hold_for_problems_with_all_that_can_go_wrong(data: Json) -> None:
    problem, best = Problem.from_json(data), brute_best(data)
    found = search_large(problem, 1.0)
    if best is None:
        assert found.best is None
        return
    assert not found.infeasible
    if solution := found.solution():
        least, optimum, reached = (cost_of(problem, x) for x in (solution.bound, best, solution.value))
        assert least <= optimum * (1 + 1e-9) and optimum <= reached * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32))
def test_least_elements_of_stretches(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, rows, (rows, columns))
    last = np.minimum(first + rng.integers(-2, rows, (rows, columns)), rows - 1)
    values, chosen = rng.random((rows, 3)), rng.integers(0, columns, 3)
    found = Windows(first, last).minimum(values, chosen)
    for x, column in enumerate(chosen):
        for row in range(rows):
            end = max(first[row, column], last[row, column] + 1)
            stretch = values[first[row, column] : end, x]
            assert found[row, x] == stretch.min(initial=np.inf)


def test_cost_of_an_order_is_that_of_its_best_cuts() -> None:
    problem = draw_problem(Family(6, 30, memory=3), 3)
    tables = Tables(problem)
    chain = chain_of(tables)
    search = OrderSearch(chain)
    change = search.improve((0, 1, 2, 3, 4, 5), time.monotonic() + 10)
    assert np.isfinite(change.cost)
    cuts = search.cuts(change.order)
    value = evaluate(problem, named(tables, cuts)).value
    assert value == pytest.approx(change.cost, rel=1e-9)
    for place in range(len(cuts) - 1):
        for shift in (-1, 1):
            moved = [(kind, end + shift * (i == place)) for i, (kind, end) in enumerate(cuts)]
            ends = [end for _, end in moved]
            if ends == sorted(set(ends)) and ends[0] > 0:
                other = evaluate(problem, named(tables, moved)).value
                assert other is None or other >= change.cost * (1 - 1e-9)


def priced_chain() -> Chain:
    return chain_of(Tables(draw_problem(Family(8, 60, memory=1.3), 5)))


def test_prices_stop_the_reuse_of_devices() -> None:
    chain = priced_chain()
    free = cheapest_path(chain, cost_to_go(chain, np.zeros(8)))
    assert len(free) > len({kind for kind, _ in free})
    at_zero = float(cost_to_go(chain, np.zeros(8)).start.min())
    *_, last = ascend(chain, np.zeros(8), 1.5 * at_zero, time.monotonic() + 5)
    assert last.bound > at_zero
    # A bound is worth what its prices are worth, whoever computes it.
    again = float(cost_to_go(chain, last.prices).start.min()) - float(last.prices @ chain.capacity)
    assert last.bound == pytest.approx(again, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_branch_and_bound_with_prices_proves_the_optimum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw_problem(Family(7, 30, memory=1.4, residual=0.2), seed)
    best = find_best(problem)
    monkeypatch.setattr(optimal, "MAX_STEPS", 0)
    closed = find_best(problem)
    assert best is not None and closed is not None and "branch and bound" in closed.method
    assert closed.value == pytest.approx(best.value, rel=1e-9) and closed.bound == closed.value


def too_small(problem: Problem, part: float) -> Problem:
    devices = tuple(Device(d.name, d.memory_bytes * part) for d in problem.devices)
    return replace(problem, devices=devices)


def test_too_little_memory_is_proven_impossible() -> None:
    problem = draw_problem(Family(30, 200, memory=1.0), 1)
    assert search_large(too_small(problem, 0.95)).infeasible
    assert find_best(too_small(problem, 0.95)) is None
    assert search_large(too_small(problem, 1.5)).best


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_forced_devices_are_in_use(objective: str) -> None:
    problem = draw_problem(Family(20, 60, objective=objective, memory=8), 2)
    free = search_large(problem, 3).solution()
    assert free is not None
    tables = Tables(problem)
    unused = [kind for kind, names in enumerate(tables.types) if names[0] not in free.assignment]
    forced = search_large(problem, 3, (unused[0], 1)).solution()
    assert forced is not None and tables.types[unused[0]][0] in forced.assignment
    assert cost_of(problem, forced.value) >= cost_of(problem, free.bound) * (1 - 1e-9)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_testbed_of_edgeshard_is_proven_quickly(objective: str) -> None:
    problem = edgeshard_testbed(objective, 165)
    start = time.monotonic()
    solution = find_best(problem)
    # A third of a second on an idle machine.
    assert time.monotonic() - start < 5
    assert solution is not None and solution.value == solution.bound


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_time_limit_holds(objective: str) -> None:
    problem = draw_problem(Family(64, 300, objective=objective), 4)
    start = time.monotonic()
    solution = find_best(problem, limit_s=1.0)
    # Reading the problem is not counted, and the machine may be busy.
    assert time.monotonic() - start < 10
    assert solution is not None and evaluate(problem, solution.assignment).feasible


def test_the_time_limit_holds_in_the_dynamic_programme() -> None:
    problem = draw_problem(Family(11, 80), 0)
    assert steps(Tables(problem).capacity, 80) < MAX_STEPS
    solution = find_best(problem, limit_s=0.2)
    assert solution is not None and "exact search: out of time" in solution.method


def test_quick_solves_of_large_problems_are_quick() -> None:
    problem = draw_problem(Family(40, 200), 0)
    start = time.monotonic()
    bound, solution = lower_bound(problem), find_best(problem, quick=True)
    assert time.monotonic() - start < 20
    assert bound is not None and solution is not None and bound <= solution.value


def fail(*args: object, **options: object) -> Solution | None:
    raise MemoryError


def test_a_search_that_fails_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw_problem(Family(5, 20), 0)
    best = find_best(problem)
    assert best is not None
    with monkeypatch.context() as patch:
        patch.setattr(optimal, "_search_exactly", fail)
        second = find_best(problem)
        assert second is not None and "exact search: out of memory" in second.method
        patch.setattr(optimal, "_search_large", fail)
        third = find_best(problem)
    assert third is not None and third.method.startswith("greedy") and third.bound == 0.0
    assert third.assignment == place_greedily(problem)
    assert best.value <= second.value <= third.value and second.bound <= best.value


def test_a_search_that_fails_late_keeps_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: LargeSearch, *args: object) -> None:
        raise ValueError("mistake")

    monkeypatch.setattr(LargeSearch, "_shake", stop)
    solution = search_large(draw_problem(Family(20, 60), 0)).solution()
    assert solution is not None and "stopped by ValueError mistake" in solution.method


def test_sizes_that_take_too_much_memory_are_not_searched_exactly() -> None:
    assert steps((0, *[1] * 7), 200) < MAX_STEPS
    assert steps((0, 9999, 999), 50) == np.inf
