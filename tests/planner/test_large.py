"""The search for many unlike devices: its bounds are bounds, its plans are plans, and nothing stops it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.format.plan import Objective
from partc.planner.exact import intervals
from partc.planner.exact.bound import operations
from partc.planner.exact.chain import Chain, chain_of
from partc.planner.exact.greedy import place_greedily
from partc.planner.exact.large import LargeSearch
from partc.planner.exact.multipliers import ascend, cheapest_path, cost_to_go
from partc.planner.exact.optimal import find_best, lower_bound, seek_best
from partc.planner.exact.orders import OrderSearch
from partc.planner.exact.solution import Solution, cost_of, named
from partc.planner.exact.tables import Forced, Tables
from partc.planner.exact.windows import Windows
from partc.planner.model.effort import QUESTION, QUICK, THOROUGH, Budget, Effort
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Problem
from partc.planner.model.problem_json import read_problem
from tests.bench.random_problems import Family, draw_problem
from tests.bench.testbed import edgeshard_testbed
from tests.planner.test_against_brute_force import Json, brute_best, problems

FAMILIES = [
    Family(6, 24),
    Family(6, 24, memory=1.1, residual=0.3),
    Family(7, 30, memory=1.3, links="sites"),
    Family(5, 40, memory=8, residual=0.2),
]


def search_large(problem: Problem, operations: float = 1e9, forced: Forced | None = None) -> LargeSearch:
    """The result of a search with so many operations; 1e9 take some three seconds."""
    return LargeSearch(Tables(problem, forced), Budget(operations), THOROUGH).run()


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_bound_and_plan_lie_on_both_sides_of_the_optimum(family: Family, objective: Objective) -> None:
    for seed in range(2):
        problem = draw_problem(replace(family, objective=objective), seed)
        best, found = find_best(problem), search_large(problem)
        if best is None:
            assert found.best is None
            continue
        assert "dynamic programming" in best.method and best.bound == best.value
        solution = found.solution()
        assert solution is not None
        assert evaluate(problem, solution.stages).value == solution.value
        assert solution.bound is not None
        least, optimum, reached = (cost_of(problem, x) for x in (solution.bound, best.value, solution.value))
        assert least <= optimum * (1 + 1e-9) and optimum <= reached * (1 + 1e-9)
        assert least > 0.85 * reached


@pytest.fixture(scope="module")
def planned() -> Iterator[list[float]]:
    """Values of plans for random problems: of 40, a good part has one."""
    values: list[float] = []
    yield values
    assert not values or len(values) >= 10


@settings(max_examples=40, deadline=None)
@given(data=problems())
def test_bounds_hold_for_problems_with_all_that_can_go_wrong(data: Json, planned: list[float]) -> None:
    problem, best = read_problem(data), brute_best(data)
    found = search_large(problem, 1e8)
    if best is None:
        assert found.best is None
        return
    assert not found.infeasible
    if solution := found.solution():
        planned.append(solution.value)
        optimum, reached = cost_of(problem, best), cost_of(problem, solution.value)
        assert optimum <= reached * (1 + 1e-9)
        assert solution.bound is None or cost_of(problem, solution.bound) <= optimum * (1 + 1e-9)


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
    change = search.improve((0, 1, 2, 3, 4, 5), Budget())
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
    *_, last = ascend(chain, np.zeros(8), 1.5 * at_zero, Budget(1.5e9))
    assert last.bound > at_zero
    # A bound is worth what its prices are worth, whoever computes it.
    again = float(cost_to_go(chain, last.prices).start.min()) - float(last.prices @ chain.capacity)
    assert last.bound == pytest.approx(again, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_branch_and_bound_with_prices_proves_the_optimum(seed: int) -> None:
    problem = draw_problem(Family(7, 30, memory=1.4, residual=0.2), seed)
    best = find_best(problem)
    closed = find_best(problem, effort=replace(THOROUGH, programme=0.0))
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
def test_forced_devices_are_in_use(objective: Objective) -> None:
    problem = draw_problem(Family(20, 60, objective=objective, memory=8), 2)
    free = search_large(problem).solution()
    assert free is not None
    tables = Tables(problem)
    unused = [
        kind
        for kind, names in enumerate(tables.types)
        if names[0] not in {stage.device for stage in free.stages}
    ]
    name = tables.types[unused[0]][0]
    forced = search_large(problem, forced=Forced(name, 1)).solution()
    assert forced is not None and name in {stage.device for stage in forced.stages} and free.bound is not None
    assert cost_of(problem, forced.value) >= cost_of(problem, free.bound) * (1 - 1e-9)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_testbed_of_edgeshard_is_proven_quickly(objective: Objective) -> None:
    work = Budget(1e12)
    best = seek_best(edgeshard_testbed(objective, 165), within=work)
    # A third of a second.
    assert best.proven and best.solution is not None and 1e12 - work.left < 1e8


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_work_is_bounded_and_gives_the_same_plan_every_time(objective: Objective) -> None:
    problem = draw_problem(Family(64, 300, objective=objective), 4)
    effort = Effort(0.0, 3e8, 1e9)
    work = Budget(1e12)
    first, second = (seek_best(problem, effort=effort, within=work) for _ in range(2))
    assert first == second and first.solution is not None and "clock" not in first.solution.method
    assert evaluate(problem, first.solution.stages).feasible
    assert 1e12 - work.left < 2.2 * effort.search


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_clock_is_the_last_resort(objective: Objective) -> None:
    problem = draw_problem(Family(64, 300, objective=objective), 4)
    solution = find_best(problem, effort=replace(THOROUGH, limit_s=1.0))
    assert solution is not None and evaluate(problem, solution.stages).feasible
    assert "stopped by the clock" in solution.method


def test_the_clock_stops_the_dynamic_programme() -> None:
    problem = draw_problem(Family(11, 80), 0)
    assert operations(Tables(problem).capacity, 80) < THOROUGH.programme
    solution = find_best(problem, effort=replace(THOROUGH, limit_s=0.2))
    assert solution is not None and "exact search: out of time" in solution.method


def test_work_that_does_not_suffice_hands_over() -> None:
    problem = draw_problem(Family(6, 24), 0)
    needed = operations(Tables(problem).capacity, 24)
    solution = find_best(problem, effort=Effort(needed, 0.5 * needed, 1e9))
    assert solution is not None
    assert "exact search: at the end of the work allowed to it" in solution.method


def test_that_nothing_was_found_is_not_called_a_lack_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(self: LargeSearch) -> LargeSearch:
        return self

    monkeypatch.setattr(LargeSearch, "run", find_nothing)
    best = seek_best(draw_problem(Family(40, 30), 0), forced=Forced("d03", 1))
    assert best.solution is None and not best.proven and best.trouble == "local search: found no plan"


def test_quick_solves_of_large_problems_are_quick() -> None:
    problem, work = draw_problem(Family(40, 200), 0), Budget(1e12)
    best, bound = seek_best(problem, effort=QUICK, within=work), lower_bound(problem)
    assert 1e12 - work.left < 1.1 * (QUICK.programme + QUICK.search)
    assert bound is not None and best.solution is not None and bound <= best.solution.value


def fail(*args: object, **options: object) -> Solution | None:
    raise MemoryError


def test_a_search_that_fails_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw_problem(Family(5, 20), 0)
    best = find_best(problem)
    assert best is not None
    with monkeypatch.context() as patch:
        patch.setattr(intervals, "_search_exactly", fail)
        second = find_best(problem)
        assert second is not None and "exact search: out of memory" in second.method
        patch.setattr(intervals, "_search_large", fail)
        third = find_best(problem)
    assert third is not None and third.method.startswith("greedy") and third.bound is None
    assert third.stages == place_greedily(problem)
    assert second.bound is not None and second.bound <= best.value <= second.value <= third.value


def test_a_search_that_fails_late_keeps_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LargeSearch, "_shake", fail)
    solution = search_large(draw_problem(Family(20, 60), 0)).solution()
    assert solution is not None and solution.method.endswith(", out of memory")


@pytest.mark.parametrize(
    ("place", "name", "family"),
    [
        (intervals, "_search_exactly", Family(5, 20)),
        (intervals, "_fewest_devices", Family(5, 20, objective="throughput")),
        (LargeSearch, "_shake", Family(20, 60)),
        (LargeSearch, "_close", Family(20, 60)),
    ],
)
def test_a_bug_is_no_worse_plan(
    place: object, name: str, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(*args: object, **options: object) -> None:
        raise TypeError("a mistake of ours")

    monkeypatch.setattr(place, name, mistake)
    with pytest.raises(TypeError, match="a mistake of ours"):
        find_best(draw_problem(family, 0), effort=replace(QUESTION, proves=True))


def test_sizes_that_take_too_much_memory_are_not_searched_exactly() -> None:
    assert operations((0, *[1] * 7), 200) < THOROUGH.programme
    assert operations((0, 9999, 999), 50) == np.inf


def test_a_polish_that_fails_keeps_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw_problem(Family(10, 60, objective="throughput", memory=8), 0)
    monkeypatch.setattr(intervals, "_search_exactly", fail)
    best = seek_best(problem, effort=replace(THOROUGH, search=3e8))
    assert best.solution is not None and "polishing out of memory" in best.solution.method


def test_fewer_devices_that_fail_keep_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw_problem(Family(5, 20, objective="throughput"), 0)
    best = seek_best(problem, effort=QUESTION)
    monkeypatch.setattr(intervals, "_fewest_devices", fail)
    kept = seek_best(problem, effort=QUESTION)
    assert kept.proven and kept.solution is not None and best.solution is not None
    assert kept.solution.value == best.solution.value
