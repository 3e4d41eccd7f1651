"""When a guess leaves: room, pace, trust, and whether it pays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from partc.runtime.core.source.drafts import LENGTHS, Draft
from partc.runtime.core.source.guessing import LEAST_CHANCE, Guessing
from partc.runtime.core.step import MOST_GUESSED

GOOD, POOR = Draft(5, 0), Draft(5, LENGTHS.index(1))


SIZES = ((2, 1100), (4, 1400), (8, 2400))


def after_laps(
    lap_s: float, busy_s: float, count: int = 2, sizes: Sequence[tuple[int, int]] = (), stages: int = 3
) -> Guessing:
    """What is known behind true steps one after the other, without guesses."""
    guessing = Guessing(sizes, stages)
    for at in range(count):
        guessing.timed(1, busy_s)
        guessing.came(at * lap_s, (at + 1) * lap_s, 1)
    return guessing


def test_nothing_is_guessed_before_a_lap_is_known() -> None:
    assert Guessing().most == 1
    assert not Guessing().goes


@pytest.mark.parametrize(
    ("lap_s", "busy_s", "most"), [(0.03, 0.01, 3), (0.021, 0.01, 3), (0.01, 0.01, 1), (9.0, 0.01, 8)]
)
def test_as_many_steps_as_fit_a_lap(lap_s: float, busy_s: float, most: int) -> None:
    guessing = after_laps(lap_s, busy_s)
    assert guessing.most == most <= MOST_GUESSED + 1
    assert guessing.goes
    assert guessing.has_time(lap_s, lap_s - busy_s) and not guessing.has_time(lap_s, lap_s)
    assert busy_s < guessing.pace_of(1) < 1.1 * busy_s


def test_a_link_is_a_stage_once_steps_wait_for_each_other_there() -> None:
    guessing = after_laps(0.1, 0.01)
    guessing.apart(0.02, 0.021)
    assert guessing.most == 8
    guessing.apart(0.01, 0.05)
    assert guessing.most == 2
    assert guessing.pace_of(1) == 0.05
    for _ in range(100):
        guessing.timed(1, 0.01)
    assert guessing.most == 8, "it may have been for once"


def test_drafts_are_trusted_by_how_they_did() -> None:
    guessing = Guessing()
    before = guessing.chance(POOR)
    for _ in range(20):
        guessing.scored(POOR, 6, 0.0, is_guessed=False)
    assert guessing.chance(POOR) < LEAST_CHANCE < before
    assert guessing.chance(GOOD) == pytest.approx(0.85), "other lengths have counts of their own"
    for _ in range(20):
        guessing.scored(POOR, 5, 0.0, is_guessed=False)
    assert guessing.chance(POOR) > LEAST_CHANCE, "a draft that is not sent is scored all the same"


def with_guesses(calm_s: float, loud_s: float, gap_s: float, hits: int) -> Guessing:
    """What is known where so many of ten tokens are guessed right."""
    guessing = after_laps(calm_s, 0.001, 4)
    now = 100.0
    for at in range(200):
        guessing.guessed(now)
        guessing.scored(GOOD, 5 if at % 10 < hits else 6, now, is_guessed=True)
        guessing.came(now - loud_s, now, 1)
        guessing.apart(gap_s, gap_s)
        now += loud_s
    return guessing


@pytest.mark.parametrize(
    ("loud_s", "gap_s", "hits", "pays"),
    [
        (0.1, 0.02, 5, True),
        (0.1, 0.02, 0, False),  # nothing is ever right
        (0.13, 0.09, 3, False),  # devices share a processor: true steps wait for guesses
        (0.13, 0.02, 9, True),  # and still it pays where most are right
    ],
)
def test_guesses_leave_where_they_pay(loud_s: float, gap_s: float, hits: int, pays: bool) -> None:
    guessing = with_guesses(0.1, loud_s, gap_s, hits)
    assert guessing.pays == pays


def test_the_other_way_is_tried_now_and_then() -> None:
    guessing = with_guesses(0.1, 0.13, 0.09, 3)
    assert not guessing.pays
    went = []
    for _ in range(256):
        went.append(guessing.goes)
        guessing.came(0.0, 0.1, 1)
    assert went.count(True) == 4


def test_another_placement_has_other_laps() -> None:
    guessing = after_laps(0.1, 0.01)
    guessing.forget_times(2)
    assert guessing.most == 1


@pytest.mark.parametrize(
    ("chances", "tokens"),
    [
        ([], 1),
        ([0.05], 1),  # less than the row costs
        ([0.9], 2),
        ([0.9, 0.8], 2),  # there is code for 2 and for 4
        ([0.9, 0.9, 0.9], 4),
        ([0.9, 0.2, 0.02], 2),
        ([0.99] * 7, 8),
        ([0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2], 4),  # 8 would cost 2.4 for 4
    ],
)
def test_a_step_takes_as_many_tokens_as_bring_most_in_a_time(chances: list[float], tokens: int) -> None:
    assert after_laps(0.01, 0.01, sizes=SIZES, stages=1).tokens(chances) == tokens


def test_a_step_takes_one_token_until_a_lap_is_known_and_where_there_is_no_code_for_more() -> None:
    assert Guessing(SIZES).most_further == 0
    assert after_laps(0.01, 0.01, sizes=SIZES).most_further == 7
    assert after_laps(0.01, 0.01).tokens([1.0] * 7) == 1


def test_rows_are_nearly_free_where_a_lap_is_mostly_latency() -> None:
    assert after_laps(0.5, 0.01, sizes=SIZES, stages=1).tokens([0.2, 0.1, 0.05]) == 4


def test_what_a_step_of_several_tokens_costs_is_measured_and_tried_again_later() -> None:
    guessing = after_laps(0.01, 0.01, sizes=SIZES, stages=1)
    for _ in range(40):
        guessing.timed(4, 0.014)
        guessing.timed(8, 0.08)
    assert guessing.tokens([0.99] * 7) == 4, "8 tokens take as long as one after the other"
    for _ in range(4000):
        guessing.timed(4, 0.014)
    assert guessing.tokens([0.99] * 7) == 8


def test_a_price_says_what_others_will_be() -> None:
    guessing = after_laps(0.01, 0.01, sizes=SIZES, stages=1)
    for _ in range(40):
        guessing.timed(2, 0.02)
    assert guessing.tokens([0.99] * 7) == 1, (
        "a row costs ten times what the build says: so it will be of 4, and of 8"
    )


def test_a_step_of_a_guess_takes_no_more_than_there_is_time_for() -> None:
    guessing = after_laps(0.01, 0.01, sizes=SIZES, stages=1)
    assert [guessing.tokens([1.0] * 7, time_s) for time_s in (0.005, 0.01, 0.013, 0.03)] == [1, 2, 4, 8]


def test_tokens_of_one_step_leave_the_gap_of_steps_as_it_is() -> None:
    guessing = after_laps(0.02, 0.005)
    for _ in range(300):
        for apart_s in (0.0, 0.0, 0.0, 0.005):
            guessing.apart(apart_s, apart_s)
    assert guessing.gap_s == pytest.approx(0.00125, rel=0.3)


def test_no_time_that_a_device_tells_ends_the_source() -> None:
    guessing = Guessing(SIZES, 3)
    for tokens, busy_s in [(1, 5e-324), (1, 1e300), (8, 0.0), (2, 1e308), (1, 0.0)] * 200:
        guessing.timed(tokens, busy_s)
        guessing.came(0.0, 0.01, 1)
        assert guessing.most >= 1 and guessing.tokens([0.9] * 7) >= 1 and guessing.lap_of(8) > 0.0


def test_a_device_alone_has_no_time_to_fill() -> None:
    assert after_laps(0.03, 0.01, sizes=SIZES, stages=1).most == 1
