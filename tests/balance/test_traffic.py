"""Tokens that a ring which serves is expected to compute."""

from __future__ import annotations

from partc.balance.traffic import SPAN_S, Traffic
from partc.format.status import RingStatus, Steps


def told(steps: int, epoch: int = 0) -> RingStatus:
    return RingStatus(
        epoch=epoch,
        placement="",
        predicted={"decode_s": 0.1},
        steps=(Steps("decode", steps, 0.1),),
        devices=(),
    )


def test_what_came_is_expected() -> None:
    traffic = Traffic()
    assert [traffic.expected(told(steps), float(steps)) for steps in (0, 10, 64)] == [0, 10, 64]


def test_steps_are_counted_anew_in_every_epoch() -> None:
    traffic = Traffic()
    states = [told(50), told(4, epoch=1), told(60, epoch=2)]
    assert [traffic.expected(state, float(at)) for at, state in enumerate(states)] == [50, 54, 114]


def test_a_source_that_was_started_anew_counts_from_nothing() -> None:
    traffic = Traffic()
    assert [traffic.expected(told(steps), 1.0) for steps in (50, 3)] == [50, 53]


def test_old_tokens_are_forgotten() -> None:
    traffic = Traffic()
    traffic.expected(told(100), 0.0)
    assert traffic.expected(told(110), SPAN_S) == 110
    assert traffic.expected(told(110), SPAN_S + 1) == 10
    assert traffic.expected(told(110), 3 * SPAN_S) == 0


def test_a_ring_that_has_made_no_step() -> None:
    assert Traffic().expected(RingStatus(epoch=0, placement="", devices=()), 0.0) == 0
