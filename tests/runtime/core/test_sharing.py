"""Steps that requests share at the source: who is in the next one, and what the end of one of them does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from partc.errors import RunError
from partc.format.message_parts import Likely, Sampling
from partc.format.messages import Cancel, Error, Token
from partc.runtime.core.actions import Action, Begin, End, Failed
from partc.runtime.core.source.schedule import Schedule
from partc.runtime.core.step import Step
from tests.runtime.core.asking import CLIENT_ROUTE, FLOOR_S, ask, emit, only, schedule_of, ticket, told
from tests.runtime.core.roles import changed, roles


def sharing(most: int = 8, slots: int = 8) -> Schedule:
    """The schedule of a ring of three devices that all take shared steps; its first request has the number 100."""
    role = roles()["a"]
    schedule = schedule_of(
        changed(role, model=structs.replace(role.model, max_requests=slots, step_requests=most))
    )
    for name in ("b", "c"):
        schedule.sharing.greeted(name, takes=True)
    return schedule


def steps_of(actions: Sequence[Action]) -> list[Step]:
    return [action.step for action in only(Begin, actions)]


def numbers_of(actions: Sequence[Action]) -> list[list[int]]:
    """The requests of each step that begins."""
    return [[member.request for member in step.members] for step in steps_of(actions)]


def prefilled(schedule: Schedule, count: int, **changes: Any) -> list[Step]:
    """The steps under way once so many requests have their first token, each."""
    asked = {"reuse": True, "max_new_tokens": 9, **changes}
    prompts = [steps_of(ask(schedule, number, **asked))[0] for number in range(count)]
    return [step for prompt in prompts for step in steps_of(emit(schedule, prompt, 4))]


def cancel(schedule: Schedule, number: int, now: float = 2.0) -> list[Action]:
    return list(schedule.cancel(CLIENT_ROUTE, Cancel(ticket=ticket(number)), now))


def shared_step(schedule: Schedule, count: int) -> Step:
    """A step of several requests that has just begun."""
    for flight in prefilled(schedule, count):
        (step,) = steps_of(emit(schedule, flight, 5))
        if step.others:
            return step
    raise AssertionError("none is shared")


def test_as_many_steps_are_under_way_as_there_are_devices() -> None:
    schedule = sharing()
    flights = prefilled(schedule, 7)
    assert [step.others for step in flights] == [(), (), ()]
    actions = emit(schedule, flights[0], 5)
    assert numbers_of(actions) == [[103, 104, 105]], "seven requests, three steps: those that waited longest"
    assert numbers_of(emit(schedule, flights[1], 5)) == [[106, 100, 101]]
    assert numbers_of(emit(schedule, flights[2], 5)) == [[102]]


def test_no_step_has_more_requests_than_the_build_allows() -> None:
    schedule = sharing(most=2)
    flights = prefilled(schedule, 7)
    assert numbers_of(emit(schedule, flights[0], 5)) == [[103, 104]]


def test_every_request_has_its_own_token() -> None:
    schedule = sharing()
    step = shared_step(schedule, 5)
    assert [member.request for member in step.members] == [103, 104]
    list(schedule.clients.flush_tokens())
    emit(schedule, step, 6, 7, now=2.0)
    tokens = told(Token, list(schedule.clients.flush_tokens()))
    assert [(token.ticket, token.tokens) for token in tokens] == [(ticket(3), (6,)), (ticket(4), (7,))]


def test_probabilities_go_to_those_who_ask_for_them() -> None:
    schedule = sharing()
    prompts = [
        steps_of(ask(schedule, number, reuse=True, max_new_tokens=9, sampling=Sampling(likely=number % 2)))[0]
        for number in range(5)
    ]
    flights = [step for prompt in prompts for step in steps_of(emit(schedule, prompt, 4))]
    (step,) = steps_of(emit(schedule, flights[0], 5))
    assert [member.request for member in step.members] == [103, 104]
    list(schedule.clients.flush_tokens())
    likely = (Likely(6, -0.5),)
    emit(schedule, structs.replace(step, likely=(likely, ())), 6, 7)
    tokens = told(Token, list(schedule.clients.flush_tokens()))
    assert [(token.ticket, token.likely) for token in tokens] == [(ticket(3), (likely,)), (ticket(4), ())]


@pytest.mark.parametrize(
    "changes",
    [
        {"reuse": False},
        {"trace": True},
        {"prompts": ((1, 2, 5), (1, 2))},
    ],
    ids=["deterministic", "traced", "of two sequences"],
)
def test_requests_that_share_no_step(changes: dict[str, Any]) -> None:
    """Theirs begin at once, however many are under way."""
    schedule = sharing()
    asked = {"reuse": True, "max_new_tokens": 9, **changes}
    rows = len(asked.get("prompts", ((),)))
    for number in range(5):
        (prompt,) = steps_of(ask(schedule, number, **asked))
        assert numbers_of(emit(schedule, prompt, *[4] * rows)) == [[100 + number]]


@pytest.mark.parametrize("name", ["b", "c"])
def test_a_device_that_takes_none(name: str) -> None:
    schedule = sharing()
    schedule.sharing.greeted(name, takes=False)
    assert numbers_of([Begin(step, {}) for step in prefilled(schedule, 5)]) == [[100 + n] for n in range(5)]


def test_a_build_without_shared_steps() -> None:
    schedule = sharing(most=1)
    assert len(prefilled(schedule, 5)) == 5


# -- ends


def test_a_request_that_waits_for_a_step_is_cancelled() -> None:
    schedule = sharing()
    flights = prefilled(schedule, 5)
    (end,) = only(End, cancel(schedule, 3))
    assert end.request == 103
    assert numbers_of(emit(schedule, flights[0], 5)) == [[104, 100]]


@pytest.mark.parametrize("number", [3, 4], ids=["first", "other"])
def test_a_request_that_ends_while_others_compute_its_row(number: int) -> None:
    """Its client knows at once; its slot and its number are taken until the step is over."""
    schedule = sharing(slots=5)
    step = shared_step(schedule, 5)
    actions = cancel(schedule, number)
    assert [error.ticket for error in told(Error, actions)] == [ticket(number)]
    assert not only(End, actions)
    assert steps_of(ask(schedule, 9)) == [], "there is no free slot"
    for other in {0, 1, 2, 3, 4} - {number}:
        if other not in (3, 4):
            cancel(schedule, other)
    assert schedule.first_number == 103
    actions = emit(schedule, step, 6, 7, now=3.0)
    assert [end.request for end in only(End, actions)] == [100 + number]
    assert not any(
        token.ticket == ticket(number) for token in told(Token, list(schedule.clients.flush_tokens()))
    )


def test_the_last_request_of_a_step_takes_it_along() -> None:
    schedule = sharing()
    step = shared_step(schedule, 5)
    cancel(schedule, 4)
    actions = cancel(schedule, 3)
    assert {end.request for end in only(End, actions)} == {103, 104}
    assert numbers_of(actions) == [[100]], "a step less is under way"
    assert emit(schedule, step, 6, 7, now=3.0) == []


@pytest.mark.parametrize("failed", [103, 104])
def test_a_failure_ends_all_of_its_step(failed: int) -> None:
    schedule = sharing()
    shared_step(schedule, 5)
    actions = list(schedule.fail(Failed(failed, RunError("no memory")), 2.0))
    assert {error.ticket for error in told(Error, actions)} == {ticket(3), ticket(4)}
    assert {end.request for end in only(End, actions)} == {103, 104}
    assert len(list(schedule.queue)) == 3


def test_a_failure_of_a_request_whose_client_has_gone_ends_the_others() -> None:
    schedule = sharing()
    shared_step(schedule, 5)
    cancel(schedule, 3)
    actions = list(schedule.fail(Failed(103, RunError("no memory")), 2.0))
    assert [error.ticket for error in told(Error, actions)] == [ticket(4)]
    assert {end.request for end in only(End, actions)} == {103, 104}


# -- liveness


def test_progress_of_a_step_is_that_of_all_its_requests() -> None:
    """Also where its first request has ended."""
    schedule = sharing()
    shared_step(schedule, 5)
    cancel(schedule, 3)
    schedule.moved(103, 7.0)
    (job,) = [job for job in list(schedule.queue) if job.ticket == ticket(4)]
    assert job.progress.since == 7.0


def test_all_requests_of_a_step_that_stands_still_end() -> None:
    schedule = sharing()
    shared_step(schedule, 5)
    cancel(schedule, 3)
    actions = list(schedule.check_deadlines(100 * FLOOR_S))
    assert {error.problem.cause for error in told(Error, actions)} == {"stalled"}
    begun = [step.request for step in steps_of(actions)]
    assert begun == [100], "the one that had waited, which has no step under way, goes on"
    assert {end.request for end in only(End, actions)} == {101, 102, 103, 104}


# -- changes of placement


def test_requests_that_are_held_stop_at_their_boundaries() -> None:
    schedule = sharing()
    step = shared_step(schedule, 5)
    schedule.hold(at_once=False)
    assert numbers_of(emit(schedule, step, 6, 7, now=2.0)) == []
    assert not schedule.is_at_rest, "two more steps are under way"


def test_an_ended_request_keeps_its_slot_until_requests_go_on() -> None:
    """Steps that were under way are lost with the placement that they were for."""
    schedule = sharing(slots=5)
    shared_step(schedule, 5)
    cancel(schedule, 3)
    schedule.hold(at_once=True)
    assert schedule.is_at_rest
    resumptions, repeated = schedule.rewind(lambda _, reached: reached)
    assert [each.request for each in resumptions] == [100, 101, 102, 104]
    assert repeated == 0
    actions = list(schedule.go_on(3.0))
    assert [end.request for end in only(End, actions)] == [103]
    assert numbers_of(actions) == [[100, 101], [102, 104]]
    assert numbers_of(ask(schedule, 9)) == [[105]], "in the slot of 103"


def test_a_request_that_waited_for_a_step_begins_anew_where_its_rows_are_gone() -> None:
    """It is due no more: its prompt comes first."""
    schedule = sharing()
    prefilled(schedule, 5)
    schedule.hold(at_once=True)
    schedule.rewind(lambda _, reached: 0)
    begun = steps_of(list(schedule.go_on(3.0)))
    assert [(step.request, step.phase) for step in begun] == [(100 + n, "prefill") for n in range(5)]
