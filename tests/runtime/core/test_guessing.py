"""When a guess leaves: room, pace, trust, and whether it pays."""

from __future__ import annotations

import pytest

from partc.runtime.core.source.drafts import LENGTHS, Draft
from partc.runtime.core.source.guessing import LEAST_CHANCE, Guessing
from partc.runtime.core.step import MOST_GUESSED

GOOD, POOR = Draft(5, 0), Draft(5, LENGTHS.index(1))


def after_laps(lap_s: float, busy_s: float, count: int = 2) -> Guessing:
    """What is known behind true steps one after the other, without guesses."""
    guessing = Guessing()
    for at in range(count):
        guessing.came(at * lap_s, (at + 1) * lap_s, busy_s, is_sure=True)
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
    assert guessing.has_time(0.0, lap_s - busy_s) and not guessing.has_time(0.0, lap_s)
    assert busy_s < guessing.pace_s < 1.1 * busy_s


def test_a_link_is_a_stage_once_steps_wait_for_each_other_there() -> None:
    guessing = after_laps(0.1, 0.01)
    guessing.apart(0.02, 0.021)
    assert guessing.most == 8
    guessing.apart(0.01, 0.05)
    assert guessing.most == 2
    assert guessing.pace_s == 0.05
    for _ in range(100):
        guessing.came(0.0, 0.1, 0.01, is_sure=True)
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
        guessing.came(now - loud_s, now, 0.001, is_sure=True)
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
        guessing.came(0.0, 0.1, 0.001, is_sure=True)
    assert went.count(True) == 4


def test_another_placement_has_other_laps() -> None:
    guessing = after_laps(0.1, 0.01)
    guessing.forget_times()
    assert guessing.most == 1
