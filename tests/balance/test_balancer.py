"""The rule of moves, in rings whose devices are throttled, noisy, at their limits, or as planned."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from partc.balance.balancer import DEFERRALS, Moving, Returning, Steady, Trial
from partc.balance.events import Back, Move, Moved, Refused, Stay, Window
from partc.balance.pauses import COOL_DOWN_S, RETURN_COOL_DOWNS
from partc.planner.exact.optimal import find_best
from partc.planner.model.change import with_speeds
from partc.planner.model.problem import Problem
from tests.balance.rings import Load, Ring, chain, everywhere, letters, on, pieces_on

THREE = chain({"a": [0.02] * 12, "b": [0.02] * 12, "c": [0.02] * 12}, {"a": 6, "b": 6, "c": 6})
EVEN = "aaaabbbbcccc"
TWO = chain({"a": [0.02] * 12, "b": [0.02] * 12})
FAST_MIDDLE = chain({"a": [0.03] * 12, "b": [0.015] * 12, "c": [0.03] * 12}, {"a": 6, "b": 6, "c": 6})


def throttled(name: str, ratio: float, since: float = 0.0) -> Load:
    return lambda now: {name: ratio} if now >= since else {}


def ring(start: str = EVEN, problem: Problem = THREE, **options: Any) -> Ring:
    return Ring(problem, everywhere(problem), on(start, problem), **options)


def best_s(problem: Problem, ratios: Mapping[str, float]) -> float:
    """Seconds per token of the best static plan for devices that take so much longer."""
    found = find_best(with_speeds(problem, {name: 1 / ratio for name, ratio in ratios.items()}))
    assert found is not None
    return found.value


# -- the simulation that DESIGN 13 asks for


def test_what_runs_as_planned_stays() -> None:
    quiet = ring()
    assert all(isinstance(decision, Stay) for decision in quiet.run(100))


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("start", "problem"), [("aaaaaabbbbbb", TWO), (EVEN, THREE)])
def test_noise_of_15_percent_moves_nothing_in_10_000_windows(start: str, problem: Problem, seed: int) -> None:
    """Two devices that both hold everything are the worst case: one window in 18 shows a gain of 10 % one way."""
    noisy = ring(start, problem, noise=0.15, seed=seed)
    noisy.run(10_000)
    assert noisy.moves == []


@pytest.mark.parametrize("noise", [0.0, 0.15])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_device_at_half_speed_ends_within_90_percent_of_the_best_static_plan(
    name: str, noise: float
) -> None:
    slow = ring(load=throttled(name, 2.0, since=100.0), noise=noise)
    slow.run(100)
    assert 0.9 * slow.step_s() <= best_s(THREE, {name: 2.0})
    assert len(slow.moves) <= 3


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("ratio", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("period_s", [10, 30, 60, 120, 300, 600, 1200])
@pytest.mark.parametrize(("start", "problem"), [(EVEN, THREE), ("aaabbbbbbccc", FAST_MIDDLE)])
def test_a_square_wave_makes_no_more_moves_than_it_has_periods(
    start: str, problem: Problem, period_s: int, ratio: float
) -> None:
    """Half steps and roll-backs count. The middle device is slow for half of each period."""
    wave = ring(start, problem, load=lambda now: {"b": ratio} if now % period_s < period_s / 2 else {})
    while wave.now < 20 * period_s:
        wave.take()
    assert len(wave.moves) <= 20


@pytest.mark.parametrize(
    ("before_s", "after_s", "high_s"), [(4.624, 3.587, 0.31058), (2.756, 2.087, 0.14608)]
)
def test_the_case_of_lingualinked(before_s: float, after_s: float, high_s: float) -> None:
    """The shape of LinguaLinked's balancing (section 4): bloom 1.7b in 8 modules on 2 high-end and 1 low-end phones.

    The paper tells seconds per token before and after, in fp32 and int8. Modules of one size, the hops of its Table 2
    (0.584 s together) and a low-end phone in the middle that gives two of its three modules have these times; the low
    one is then 2.7 times as slow in fp32 and 3.3 times in int8. So the gains, 1.29 and 1.32 times, are its figures and
    no finding; that the rule makes this move, and none else, is what is tested.
    """
    low_s = high_s + (before_s - after_s) / 2
    phones = chain({"first": [high_s] * 8, "low": [low_s] * 8, "second": [high_s] * 8}, hop_s=0.5839 / 3)
    movable = pieces_on(phones, ["f", "f", "fl", "fl", "l", "ls", "ls", "s"])
    case = Ring(phones, movable, on("ffflllss", phones), cost_s=0.03 + 2.449, remaining_tokens=100)
    assert case.step_s() == pytest.approx(before_s, rel=1e-3)
    case.run(20)
    assert [letters(move.stages) for _, move in case.moves] == ["ffff" + "l" + "sss"]
    assert case.step_s() == pytest.approx(after_s, rel=1e-3)


# -- the conditions of a move


def test_a_move_needs_three_windows() -> None:
    first, second, third = ring(load=throttled("b", 2.0)).run(3)
    assert first == Stay("a placement gains 10% in 1 of 3 windows")
    assert second == Stay("a placement gains 10% in 2 of 3 windows")
    assert isinstance(third, Move)
    assert third.gain == pytest.approx(1 - third.after_s / third.before_s)


def test_one_slow_window_is_no_reason() -> None:
    bumpy = ring(load=lambda now: {"b": 10.0} if 100 <= now < 105 else {})
    bumpy.run(60)
    assert bumpy.moves == []


def test_a_move_pays_twice() -> None:
    """Each token saves 0.04 s: 20 tokens are worth 0.8 s."""
    poor = ring(load=throttled("b", 2.0), remaining_tokens=20, cost_s=0.5)
    assert all(isinstance(decision, Stay) for decision in poor.run(20))
    assert poor.run(1) == [Stay("a move would save 0.8 s and cost 0.5 s")]


def test_borders_move_half_way_where_that_gains_enough() -> None:
    slow = ring(load=throttled("b", 3.0))
    slow.run(60)
    assert [letters(move.stages) for _, move in slow.moves] == ["aaaaabbccccc", "aaaaaacccccc"]
    (first, _), (second, _) = slow.moves
    assert second - first >= COOL_DOWN_S


def test_moves_wait_for_a_cool_down_of_20_costs() -> None:
    slow = ring(load=throttled("b", 3.0), cost_s=6.0)
    slow.run(60)
    (first, _), (second, _) = slow.moves
    assert second - first >= 120


def test_undoing_a_move_waits_for_ten_cool_downs() -> None:
    short = ring(load=lambda now: {"b": 3.0} if now < 60 else {"a": 3.0, "c": 3.0})
    short.run(100)
    (first, _), (second, back), *_ = [item for item in short.moves if "b" in letters(item[1].stages)]
    assert second - first >= RETURN_COOL_DOWNS * COOL_DOWN_S
    assert letters(back.stages).count("b") > 2


def test_only_pieces_on_the_disk_move() -> None:
    slow = Ring(THREE, pieces_on(THREE, [*"aaaa", "ab", *"bbb", *"cccc"]), on(EVEN, THREE))
    slow.load = throttled("b", 4.0)
    slow.run(60)
    assert [letters(move.stages) for _, move in slow.moves] == ["aaaaabbbcccc"]


def test_a_device_without_memory_gets_nothing() -> None:
    full = ring(load=throttled("b", 3.0), free_bytes={"a": 0.0})
    full.run(60)
    assert letters(full.stages).count("a") == 4
    assert full.stages != on(EVEN, THREE)


# -- trials


def judged(window_s: float) -> tuple[Ring, object]:
    """A ring after a move, and what the balancer says to a first window of so many times the time of before."""
    slow = ring(load=throttled("b", 2.0))
    slow.run(3)
    assert isinstance(slow.balancer.state, Trial)
    before_s = slow.balancer.state.moving.step_s
    return slow, slow.balancer.on(_window(slow, window_s * before_s), slow.now)


def _window(of: Ring, step_s: float) -> Window:
    return Window(of.stages, step_s, {}, 1e6)


def test_a_move_that_helps_stays() -> None:
    slow, decision = judged(0.9)
    assert isinstance(decision, Stay)
    assert slow.balancer.state == Steady()


def test_a_move_that_makes_it_slower_is_taken_back() -> None:
    slow, decision = judged(1.2)
    assert isinstance(decision, Back)
    assert decision.stages == on(EVEN, THREE)
    assert slow.balancer.on(_window(slow, 1.0), slow.now) == Stay("a move is being taken back")
    slow.balancer.on(Moved(0.5), slow.now)
    assert slow.balancer.state == Steady()


def test_a_roll_back_is_asked_for_until_it_succeeds() -> None:
    slow, decision = judged(1.2)
    slow.balancer.on(Refused("old does not answer"), slow.now)
    assert isinstance(slow.balancer.state, Returning)
    assert slow.balancer.on(_window(slow, 0.1), slow.now) == decision


def test_what_was_taken_back_is_not_tried_again_soon() -> None:
    """Wherever b gives away what it has, its links are jammed: no plan knows that."""
    jam = ring(load=throttled("b", 2.0))
    jam.jammed_s = lambda stages: 0.0 if stages == on(EVEN, THREE) else 0.5
    jam.run(200)
    kinds = [type(move) for _, move in jam.moves]
    assert kinds[:2] == [Move, Back]
    assert kinds == [Move, Back] * (len(kinds) // 2)
    tries = [time for time, move in jam.moves if isinstance(move, Move)]
    assert all(b - a >= RETURN_COOL_DOWNS * COOL_DOWN_S for a, b in itertools.pairwise(tries))


def test_other_requests_say_nothing_about_a_trial() -> None:
    """Two requests wait for each other: their steps take longer, whatever the placement."""
    slow = ring(load=throttled("b", 2.0))
    slow.run(3)
    crowded = replace(_window(slow, 9.0), requests=2)
    for _ in range(DEFERRALS):
        assert isinstance(slow.balancer.on(crowded, slow.now), Stay)
        assert isinstance(slow.balancer.state, Trial)
    assert isinstance(slow.balancer.on(_window(slow, 9.0), slow.now), Back)


def test_a_trial_that_no_window_can_judge_stays() -> None:
    slow = ring(load=throttled("b", 2.0))
    slow.run(3)
    for _ in range(DEFERRALS + 1):
        slow.balancer.on(replace(_window(slow, 9.0), requests=2), slow.now)
    assert slow.balancer.state == Steady()


@pytest.mark.parametrize(("requests", "moves"), [(1, 0), (3, 1)])
def test_throughput_is_balanced_with_several_requests_in_flight(requests: int, moves: int) -> None:
    pipeline = ring(problem=replace(THREE, objective="throughput"), load=throttled("b", 2.0))
    pipeline.requests = requests
    pipeline.run(4)
    assert len(pipeline.moves) == moves


def test_a_loss_ends_a_trial() -> None:
    slow = ring(load=throttled("b", 2.0))
    slow.run(3)
    slow.stages = on("aaaaaacccccc", THREE)
    assert isinstance(slow.balancer.on(_window(slow, 9.0), slow.now), Stay)
    assert slow.balancer.state == Steady()


def test_a_refused_move_waits_for_a_cool_down() -> None:
    slow = ring(load=throttled("b", 2.0))
    windows = [slow.window() for _ in range(3)]
    decisions = [slow.balancer.on(window, slow.now) for window in windows]
    assert isinstance(decisions[-1], Move)
    assert isinstance(slow.balancer.state, Moving)
    assert slow.balancer.on(slow.window(), slow.now) == Stay("a move is under way")
    slow.balancer.on(Refused("board has no memory for it"), slow.now)
    refused = slow.now
    while not slow.moves:
        slow.take()
    assert slow.moves[0][0] >= refused + COOL_DOWN_S


# -- limits


def test_a_device_at_its_limit_gives_what_others_hold_at_once() -> None:
    hot = ring(limits=lambda now: {"b": "81 C (limit 80 C)"})
    (decision,) = hot.run(1)
    assert isinstance(decision, Move)
    assert decision.reason == "b: 81 C (limit 80 C)"
    assert letters(decision.stages) == "aaaaaacccccc"
    hot.run(60)
    assert len(hot.moves) == 1


def test_a_device_at_its_limit_keeps_what_nobody_else_can_take() -> None:
    """Sub-module 6 lies on b alone, and c cannot hold 4 and 5 besides its own; so b gives 7 and no more."""
    pieces = pieces_on(THREE, [*"aaaa", "abc", "abc", "b", "bc", *"cccc"])
    full = chain({"a": [0.02] * 12, "b": [0.02] * 12, "c": [0.02] * 12}, {"a": 4, "b": 6, "c": 6})
    hot = Ring(full, pieces, on(EVEN, full), limits=lambda now: {"b": "81 C (limit 80 C)"})
    decisions = hot.run(10)
    assert letters(hot.stages) == "aaaabbbccccc"
    assert all(isinstance(decision, Stay) for decision in decisions[1:])


def test_the_source_at_its_limit_keeps_the_first_piece() -> None:
    hot = ring("aaaaaabbbbbb", TWO, limits=lambda now: {"a": "battery 28% (limit 30%)"})
    hot.run(10)
    assert letters(hot.stages) == "abbbbbbbbbbb"


def test_what_a_limit_cost_is_no_trial() -> None:
    slow_way = chain({"a": [0.02] * 12, "b": [0.02] * 12, "c": [0.2] * 12}, {"a": 6, "b": 6, "c": 6})
    hot = ring("aaaaaabbbbbb", slow_way, limits=lambda now: {"b": "battery 20% (limit 30%)"})
    (decision,) = hot.run(1)
    assert isinstance(decision, Move)
    assert decision.gain < 0
    hot.run(20)
    assert letters(hot.stages) == "aaaaaacccccc"
