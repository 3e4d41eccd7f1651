"""Requests at the source: queue, slots, tokens, reports, ends."""

from __future__ import annotations

import numpy as np
import pytest

from partc.errors import RunError
from partc.format.message_parts import TensorSpec
from partc.format.messages import Cancel, Crossed, Error, Result, Stats, Token, Trace
from partc.runtime.core.actions import Begin, End, Failed
from partc.runtime.core.commands import Send
from partc.runtime.core.step import Step
from tests.runtime.bundles import EOS
from tests.runtime.core.asking import CLIENT_ROUTE, ask, begun, emit, only, schedule_of, ticket, timings, told
from tests.runtime.core.roles import changed, encoder, roles, submit

# -- queue and slots


def test_a_request_begins_at_once() -> None:
    """It has the next number and a free slot."""
    schedule = schedule_of()
    (begin,) = ask(schedule)
    assert isinstance(begin, Begin)
    assert (begin.step.request, begin.step.slot, begin.step.step, begin.step.phase) == (100, 0, 0, "prefill")
    assert begin.inputs["input_ids"].tolist() == [[1, 2, 5]]


def test_requests_queue_for_a_slot() -> None:
    """There are three; a fourth request begins when one of them has ended, in its slot."""
    schedule = schedule_of()
    steps = [begun(ask(schedule, number)) for number in range(3)]
    assert [(step.request, step.slot) for step in steps] == [(100, 0), (101, 1), (102, 2)]
    assert ask(schedule, 3) == []
    actions = list(schedule.cancel(CLIENT_ROUTE, Cancel(ticket=ticket(1)), 1.0))
    assert begun(actions) == replace_step(steps[1], request=103)
    assert actions.index(End(101, report=False)) < [type(action) for action in actions].index(Begin)


def replace_step(step: Step, request: int) -> Step:
    assert step.opening is not None
    opening = type(step.opening)(request, step.opening.sampling, step.opening.trace)
    return Step(request, step.slot, step.step, step.phase, step.dims, step.position, step.length, opening)


def test_a_prompt_in_parts_begins_with_all_of_them() -> None:
    schedule = schedule_of(roles(prompt_chunk=4)["a"])
    actions = list(schedule.submit(CLIENT_ROUTE, submit([1] * 11), (), 0.0))
    assert [begin.step.phase for begin in only(Begin, actions)] == ["chunk", "chunk", "prefill"]


def test_requests_wait_for_a_complete_ring() -> None:
    schedule = schedule_of(absent=("c",))
    assert ask(schedule) == []
    assert list(schedule.pump(1.0)) == []
    schedule.absent = ()
    assert begun(schedule.pump(2.0)).request == 100


def test_numbers_grow_beyond_those_that_devices_know() -> None:
    """The clock that gave the first one may have been set back."""
    schedule = schedule_of()
    schedule.seen(500)
    schedule.seen(300)
    assert begun(ask(schedule)).request == 500


def test_what_is_wrong_with_a_request_is_answered_at_once() -> None:
    schedule = schedule_of()
    (sent,) = ask(schedule, max_new_tokens=0)
    assert isinstance(sent, Send)
    assert sent.origin == CLIENT_ROUTE
    (error,) = told(Error, [sent])
    assert (error.ticket, error.problem.cause) == (ticket(1), "input")


def test_a_ticket_is_used_once_at_a_time() -> None:
    schedule = schedule_of()
    step = begun(ask(schedule, max_new_tokens=1))
    (error,) = told(Error, ask(schedule))
    assert "is being worked on already" in error.problem.message
    assert ask(schedule, origin=b"client 2") != [], "another client's"
    emit(schedule, step, 4)
    assert told(Error, ask(schedule)) != [], "its devices report still"
    for device in ("a", "b", "c"):
        list(schedule.reported(timings(100, device), (), 1.0))
    assert begun(ask(schedule)).request == 102


def test_the_queue_is_bounded() -> None:
    schedule = schedule_of(absent=("b",))
    for number in range(1024):
        assert ask(schedule, number) == []
    (error,) = told(Error, ask(schedule, 1024))
    assert (error.problem.cause, "1024 requests are waiting" in error.problem.message) == ("refused", True)


# -- steps


def test_a_token_begins_the_next_step() -> None:
    schedule = schedule_of()
    first = begun(ask(schedule))
    actions = emit(schedule, first, 4)
    (begin,) = only(Begin, actions)
    assert begin.step == Step(100, 0, 1, "decode", {"batch": 1, "sequence": 1}, (3,), (1,))
    assert begin.inputs["input_ids"].tolist() == [[4]]
    assert told(Token, actions) == [Token(ticket=ticket(1), step=0, tokens=(4,), finish=("",))]


def test_later_tokens_are_told_when_there_is_time() -> None:
    """The first one is waited for; the others come when the next step is on its way."""
    schedule = schedule_of()
    first = begun(ask(schedule, max_new_tokens=3))
    second = begun(emit(schedule, first, 4))
    actions = emit(schedule, second, 5)
    assert told(Token, actions) == []
    assert told(Token, schedule.tell()) == [Token(ticket=ticket(1), step=1, tokens=(5,), finish=("",))]
    assert list(schedule.tell()) == []


def test_a_source_without_other_devices_tells_at_once() -> None:
    schedule = schedule_of(changed(roles()["a"], ring=("a",)))
    first = begun(ask(schedule, max_new_tokens=3))
    second = begun(emit(schedule, first, 4))
    assert [token.tokens for token in told(Token, emit(schedule, second, 5))] == [(5,)]


def test_a_sequence_that_ended_has_no_more_tokens() -> None:
    schedule = schedule_of()
    message = submit([1], [2], max_new_tokens=2)
    first = begun(schedule.submit(CLIENT_ROUTE, message, (), 0.0))
    actions = emit(schedule, first, EOS, 6)
    assert told(Token, actions)[0].finish == ("stop", "")
    actions = emit(schedule, begun(actions), 8, 7)
    assert [(token.tokens, token.finish) for token in told(Token, actions)] == [
        ((None, 7), ("stop", "length"))
    ]
    assert End(100, report=True) in actions


def test_values_of_an_unknown_request_are_ignored() -> None:
    schedule = schedule_of()
    step = begun(ask(schedule))
    list(schedule.away(CLIENT_ROUTE, 0.0))
    assert emit(schedule, step, 4) == []


# -- the end


def test_a_request_ends_when_all_devices_have_reported() -> None:
    """Its slot is free before."""
    schedule = schedule_of()
    actions = emit(schedule, begun(ask(schedule, max_new_tokens=1)), 4, now=2.0)
    assert [type(action) for action in actions] == [Send, End]
    assert begun(ask(schedule, 2)).slot == 0
    for device in ("a", "b"):
        reported = list(schedule.reported(timings(100, device), (memoryview(b"1"),), 3.0))
        assert reported == [
            Send(
                CLIENT_ROUTE,
                Stats(ticket=ticket(1), device=device, columns=("step",), values=()),
                (memoryview(b"1"),),
            )
        ]
    *_, last = schedule.reported(timings(100, "c"), (), 3.0)
    assert isinstance(last, Send)
    assert last.message == Result(
        ticket=ticket(1), tokens=((4,),), finish=("length",), elapsed_s=3.0, values=()
    )
    assert list(schedule.reported(timings(100, "c"), (), 3.0)) == [], "it is over"


def test_a_device_that_does_not_report_is_not_waited_for_long() -> None:
    schedule = schedule_of()
    emit(schedule, begun(ask(schedule, max_new_tokens=1)), 4, now=2.0)
    assert told(Result, schedule.look(2.5)) == []
    assert told(Result, schedule.look(3.3)) != [], "1 s, and up to 0.25 s late"
    assert list(schedule.reported(timings(100, "b"), (), 4.0)) == []


def test_tensors_of_a_model_that_does_not_generate() -> None:
    role = encoder()
    schedule = schedule_of(role)
    arrays = {name: np.ones((1, 3), np.int64) for name in role.inputs}
    values = tuple(TensorSpec(name, "int64", (1, 3)) for name in arrays)
    frames = [memoryview(array.tobytes()) for array in arrays.values()]
    step = begun(schedule.submit(CLIENT_ROUTE, submit(values=values), frames, 0.0))
    logits = np.ones((1, 17), np.float32)
    actions = list(schedule.emitted(step, {"logits": logits}, 1.0))
    assert actions == [End(100, report=True)]
    for device in role.ring[:-1]:
        list(schedule.reported(timings(100, device), (), 1.0))
    *_, last = schedule.reported(timings(100, role.ring[-1]), (), 1.0)
    assert isinstance(last, Send)
    assert told(Result, [last])[0].values == (TensorSpec("logits", "float32", (1, 17)),)
    assert bytes(last.frames[0]) == logits.tobytes()


def test_what_crossed_a_link_is_passed_on() -> None:
    schedule = schedule_of()
    ask(schedule)
    crossed = Crossed(request=100, device="b", peer="a", step=0, values=())
    (sent,) = schedule.crossed(crossed, (memoryview(b"1"),))
    trace = Trace(ticket=ticket(1), device="b", peer="a", step=0, values=())
    assert sent == Send(CLIENT_ROUTE, trace, (memoryview(b"1"),))
    unknown = Crossed(request=99, device="b", peer="a", step=0, values=())
    assert list(schedule.crossed(unknown, ())) == []


# -- failures


@pytest.mark.parametrize("state", ["waiting", "running", "reporting"])
def test_a_request_is_cancelled(state: str) -> None:
    schedule = schedule_of(absent=("b",) if state == "waiting" else ())
    actions = ask(schedule, max_new_tokens=1)
    if state == "reporting":
        emit(schedule, begun(actions), 4)
    assert list(schedule.cancel(b"client 2", Cancel(ticket=ticket(1)), 1.0)) == [], "another client's"
    assert list(schedule.cancel(CLIENT_ROUTE, Cancel(ticket=ticket(2)), 1.0)) == []
    actions = list(schedule.cancel(CLIENT_ROUTE, Cancel(ticket=ticket(1)), 1.0))
    assert [error.problem.message for error in told(Error, actions)] == ["the request was cancelled"]
    assert only(End, actions) == ([] if state == "waiting" else [End(100, report=False)])
    assert list(schedule.away(CLIENT_ROUTE, 1.0)) == []


def test_all_requests_of_a_client_that_went_away() -> None:
    schedule = schedule_of()
    for number in range(5):
        ask(schedule, number, origin=b"client 2" if number == 1 else CLIENT_ROUTE)
    actions = list(schedule.away(CLIENT_ROUTE, 1.0))
    assert sorted(error.ticket for error in told(Error, actions)) == [ticket(n) for n in (0, 2, 3, 4)]
    assert only(Begin, actions) == [], "those that waited are gone before a slot is free"


def test_a_failure_ends_what_it_concerns() -> None:
    schedule = schedule_of()
    for number in range(3):
        ask(schedule, number)
    error = RunError("x", cause="bug")
    assert list(schedule.fail(Failed(99, error), 1.0)) == [], "a request that is over"
    actions = list(schedule.fail(Failed(101, error, earlier=True), 1.0))
    assert [message.ticket for message in told(Error, actions)] == [ticket(0), ticket(1)]
    assert {message.problem.cause for message in told(Error, actions)} == {"bug"}
    assert len(told(Error, schedule.fail(Failed(None, error), 1.0))) == 1


def test_a_late_failure_does_not_end_a_request_that_has_its_tokens() -> None:
    schedule = schedule_of()
    emit(schedule, begun(ask(schedule, max_new_tokens=1)), 4)
    assert list(schedule.fail(Failed(100, RunError("x")), 1.0)) == []
    assert list(schedule.fail(Failed(None, RunError("x")), 1.0)) == []


def test_tokens_are_told_before_an_error() -> None:
    schedule = schedule_of()
    second = begun(emit(schedule, begun(ask(schedule, max_new_tokens=3)), 4))
    emit(schedule, second, 5)
    actions = list(schedule.fail(Failed(100, RunError("x")), 1.0))
    assert [type(send.message) for send in only(Send, actions)] == [Token, Error]


def test_a_device_that_is_lost_ends_all_that_has_begun() -> None:
    """Requests that wait go on waiting."""
    schedule = schedule_of()
    emit(schedule, begun(ask(schedule, 0, max_new_tokens=1)), 4)
    for number in range(1, 5):
        ask(schedule, number)
    schedule.absent = ("b",)
    actions = list(schedule.lost(("b",), 1.0))
    errors = told(Error, actions)
    assert sorted(error.ticket for error in errors) == [ticket(n) for n in range(4)]
    assert {(error.problem.cause, error.problem.where) for error in errors} == {("lost-peer", "b")}
    assert only(Begin, actions) == []
    schedule.absent = ()
    assert begun(schedule.pump(2.0)).request == 104
