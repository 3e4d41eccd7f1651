"""Patience of the source: with requests in flight, with devices that report, with an incomplete ring."""

from __future__ import annotations

import pytest

from partc.format.messages import (
    Error,
    Ping,
    Pong,
)
from partc.runtime.core.actions import Broadcast
from tests.runtime.core.asking import CLIENT_ROUTE, ask, begun, emit, pong, schedule_of, ticket, told
from tests.runtime.core.roles import changed, roles


def test_a_request_without_progress_ends() -> None:
    """After 5 s; the clock starts anew with every sign of progress."""
    schedule = schedule_of()
    step = begun(ask(schedule))
    schedule.moved(step.request, 2.0)
    assert told(Error, schedule.check_deadlines(6.9)) == []
    (error,) = told(Error, schedule.check_deadlines(7.3))
    assert (error.problem.cause, error.problem.where) == ("stalled", None)
    assert "no progress for 5.0 s in step 0: b, c do not answer" in error.problem.message


def test_progress_of_an_unknown_request_is_ignored() -> None:
    schedule_of().moved(7, 1.0)


def test_patience_grows_with_what_a_step_takes() -> None:
    """4 × the slowest step so far: this prompt took 3 s."""
    schedule = schedule_of()
    step = begun(ask(schedule, 1, max_new_tokens=1))
    emit(schedule, step, 4, now=3.0)
    ask(schedule, 2, now=3.0)
    assert told(Error, schedule.check_deadlines(14.9)) == []
    assert len(told(Error, schedule.check_deadlines(15.3))) == 1


def test_patience_does_not_grow_with_the_time_that_a_device_was_lost() -> None:
    schedule = schedule_of()
    step = begun(ask(schedule, 1, max_new_tokens=1))
    schedule.deadlines.incomplete_since = 1.0
    emit(schedule, step, 4, now=3.0)
    ask(schedule, 2, now=3.0)
    assert len(told(Error, schedule.check_deadlines(8.3))) == 1


def test_patience_grows_with_what_is_predicted() -> None:
    """4 × 2 s × 2 requests that take turns."""
    role = changed(roles()["a"], predicted={"prefill_s": 2.0, "decode_s": 0.1})
    schedule = schedule_of(role)
    for number in range(2):
        ask(schedule, number)
    assert told(Error, schedule.check_deadlines(15.9)) == []
    assert len(told(Error, schedule.check_deadlines(16.3))) == 2


def test_devices_are_asked_before_patience_ends() -> None:
    """A quarter of the shortest patience after the last progress, and as often again."""
    schedule = schedule_of()
    ask(schedule)
    asked = [now / 20 for now in range(100) if Broadcast(Ping()) in list(schedule.check_deadlines(now / 20))]
    assert asked == pytest.approx([1.25, 2.5, 3.75], abs=0.3)
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("pongs", "message", "where"),
    [
        ({}, "b, c do not answer", None),
        ({"c": pong()}, "b does not answer", "b"),
        (
            {
                "b": pong(doing="waits for hidden_1 from a (step 0)"),
                "c": pong(True, "computes for request 100"),
            },
            "b waits for hidden_1 from a (step 0); c computes for request 100",
            "c",
        ),
        ({"b": pong(), "c": pong()}, "b idle; c idle", None),
    ],
)
def test_who_is_blamed(pongs: dict[str, Pong], message: str, where: str | None) -> None:
    """Whoever does not answer; else whoever computes."""
    schedule = schedule_of()
    ask(schedule)
    end = 60.3 if any(answer.computing for answer in pongs.values()) else 5.3
    for device, answer in pongs.items():
        schedule.deadlines.patience.answered(device, answer, end - 3.3)
    (error,) = told(Error, schedule.check_deadlines(end))
    assert message in error.problem.message
    assert error.problem.where == where


def test_an_answer_from_before_the_last_progress_does_not_count() -> None:
    schedule = schedule_of()
    ask(schedule)
    for device in ("b", "c"):
        schedule.deadlines.patience.answered(device, pong(), 1.0)
    schedule.moved(100, 2.0)
    (error,) = told(Error, schedule.check_deadlines(7.3))
    assert "b, c do not answer" in error.problem.message


def test_waiting_for_a_ring_ends_as_well() -> None:
    """5 s after the request came or the ring broke, whichever is later."""
    schedule = schedule_of(absent=("b", "c"))
    ask(schedule, 1, now=1.0)
    schedule.deadlines.incomplete_since = 3.0
    ask(schedule, 2, now=4.0)
    assert told(Error, schedule.check_deadlines(7.9)) == []
    (error,) = told(Error, schedule.check_deadlines(8.3))
    assert (error.ticket, error.problem.message) == (ticket(1), "b, c has not joined the ring")
    assert (error.problem.cause, error.problem.where) == ("lost-peer", "b, c")
    assert [error.ticket for error in told(Error, schedule.check_deadlines(9.3))] == [ticket(2)]


def test_requests_that_wait_for_a_slot_are_patient() -> None:
    schedule = schedule_of()
    for number in range(4):
        ask(schedule, number)
    for number in range(100, 103):
        schedule.moved(number, 20.0)
    assert told(Error, schedule.check_deadlines(20.5)) == []


def test_when_to_look_again() -> None:
    """Never while there is nothing to wait for; else a little late at most."""
    schedule = schedule_of()
    list(schedule.check_deadlines(1.0))
    assert schedule.deadlines.due is None
    ask(schedule, now=1.0)
    list(schedule.check_deadlines(1.0))
    assert schedule.deadlines.due == 1.25
    assert list(schedule.check_deadlines(1.2)) == []
    list(schedule.client_disconnected(CLIENT_ROUTE, 1.2))
    list(schedule.check_deadlines(1.3))
    assert schedule.deadlines.due is None


def test_a_device_that_computes_is_slow_and_not_gone() -> None:
    """12 × as long, while it says so; what it said long ago does not count."""
    schedule = schedule_of()
    ask(schedule)
    for now in (4.0, 8.0, 40.0):
        schedule.deadlines.patience.answered("b", pong(True, "computes for request 100"), now)
        schedule.deadlines.patience.answered("c", pong(), now)
        assert told(Error, schedule.check_deadlines(now + 2.0)) == []
    schedule.deadlines.patience.answered("c", pong(), 46.0)
    (error,) = told(Error, schedule.check_deadlines(46.1))
    assert "no progress for 5.0 s in step 0: b does not answer" in error.problem.message
