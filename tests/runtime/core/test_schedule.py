"""Requests at the source: queue, slots, tokens, reports, ends."""

from __future__ import annotations

import numpy as np
import pytest

from partc.errors import RunError
from partc.format.message_parts import Reached, TensorSpec
from partc.format.messages import Cancel, Crossed, Error, Result, Resume, Stats, Token, Trace
from partc.runtime.core.actions import Begin, End, Failed
from partc.runtime.core.commands import Log, Send
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
    assert list(schedule.open_waiting(1.0)) == []
    schedule.absent = ()
    assert begun(schedule.open_waiting(2.0)).request == 100


def test_numbers_grow_beyond_those_that_devices_know() -> None:
    """The clock that gave the first one may have been set back."""
    schedule = schedule_of()
    schedule.queue.raise_next_number(500)
    schedule.queue.raise_next_number(300)
    schedule.queue.raise_next_number(2**62)  # of a member that lies: the numbers would soon be used up
    assert begun(ask(schedule)).request == 500


def test_what_is_wrong_with_a_request_is_answered_at_once() -> None:
    schedule = schedule_of()
    sent, line = ask(schedule, max_new_tokens=0)
    assert line == Log("request-refused", {"cause": "input"}), "the reason may name tokens"
    assert isinstance(sent, Send)
    assert sent.origin == CLIENT_ROUTE
    (error,) = told(Error, [sent])
    assert (error.ticket, error.problem.cause) == (ticket(1), "input")


def test_a_request_that_is_submitted_again_is_the_same() -> None:
    """A client whose connection broke cannot know whether a request ever came here."""
    schedule = schedule_of(linger_s=30.0)
    step = begun(ask(schedule, max_new_tokens=1))
    assert ask(schedule, origin=b"back") == [], "it goes on"
    told_of = emit(schedule, step, 4)
    assert {sent.origin for sent in told_of if isinstance(sent, Send)} == {b"back"}
    (token,) = told(Token, ask(schedule, origin=b"again"))
    assert (token.step, token.tokens) == (0, (4,))
    for device in ("a", "b", "c"):
        list(schedule.reported(timings(100, device), (), 1.0))
    answers = ask(schedule, origin=b"and again")
    assert [type(sent.message) for sent in answers if isinstance(sent, Send)] == [Token, Result]


def test_ends_are_kept_for_a_while_and_not_too_many() -> None:
    """A gap shows late: until then a client seems to be there, and hears nothing."""
    schedule = schedule_of(linger_s=30.0)
    for number in range(70):
        ask(schedule, number, max_new_tokens=1)
        list(schedule.cancel(CLIENT_ROUTE, Cancel(ticket=ticket(number)), 1.0))
    for number, cause in ((5, "refused"), (6, "input"), (69, "input")):
        (error,) = told(Error, list(schedule.resume(b"back", Resume(ticket=ticket(number), from_step=0))))
        assert error.problem.cause == cause, number
    list(schedule.check_deadlines(31.0))
    (error,) = told(Error, list(schedule.resume(b"back", Resume(ticket=ticket(69), from_step=0))))
    assert error.problem.cause == "refused"


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
    assert told(Token, schedule.clients.flush_tokens()) == [
        Token(ticket=ticket(1), step=1, tokens=(5,), finish=("",))
    ]
    assert list(schedule.clients.flush_tokens()) == []


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
    list(schedule.client_disconnected(CLIENT_ROUTE, 0.0))
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
    assert told(Result, schedule.check_deadlines(2.5)) == []
    assert told(Result, schedule.check_deadlines(3.3)) != [], "1 s, and up to 0.25 s late"
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
    assert list(schedule.client_disconnected(CLIENT_ROUTE, 1.0)) == []


def test_all_requests_of_a_client_that_went_away() -> None:
    schedule = schedule_of()
    for number in range(5):
        ask(schedule, number, origin=b"client 2" if number == 1 else CLIENT_ROUTE)
    actions = list(schedule.client_disconnected(CLIENT_ROUTE, 1.0))
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
    actions = list(schedule.devices_lost(("b",), 1.0))
    errors = told(Error, actions)
    assert sorted(error.ticket for error in errors) == [ticket(n) for n in range(4)]
    assert {(error.problem.cause, error.problem.where) for error in errors} == {("lost-peer", "b")}
    assert only(Begin, actions) == []
    schedule.absent = ()
    assert begun(schedule.open_waiting(2.0)).request == 104


def test_a_device_that_is_lost_is_waited_for() -> None:
    schedule = schedule_of(rejoin_s=10.0)
    ask(schedule)
    assert list(schedule.devices_lost(("b",), 1.0)) == []
    assert told(Error, schedule.check_deadlines(10.9)) == []
    assert list(schedule.devices_lost(("c",), 5.0)) == [], "the wait for the first one goes on"
    (error,) = told(Error, schedule.check_deadlines(11.0))
    assert error.problem.message == "b closed its connection and did not come back within 10 s"


def test_a_device_that_is_back_is_not_waited_for() -> None:
    schedule = schedule_of(rejoin_s=10.0)
    ask(schedule)
    list(schedule.devices_lost(("b",), 1.0))
    schedule.outage_over(9.0)
    assert told(Error, schedule.check_deadlines(13.9)) == [], "patience begins anew"


# -- changes of placement


def test_requests_that_are_held_stop_at_their_boundaries() -> None:
    schedule = schedule_of()
    step = begun(ask(schedule))
    schedule.hold(at_once=False)
    assert ask(schedule, 2) == [], "nothing is opened"
    assert not schedule.is_at_rest
    actions = emit(schedule, step, 4)
    assert len(told(Token, actions)) == 1
    assert only(Begin, actions) == []
    assert schedule.is_at_rest
    assert [each.step.step for each in only(Begin, schedule.go_on(2.0))] == [1, 0]


def test_requests_that_are_held_at_once_wait_for_nothing() -> None:
    """Nor are they stalled, however long it takes."""
    schedule = schedule_of()
    ask(schedule)
    schedule.hold(at_once=True)
    assert schedule.is_at_rest
    assert told(Error, schedule.check_deadlines(100.0)) == []


def test_where_requests_are() -> None:
    schedule = schedule_of()
    first = begun(ask(schedule, 1, max_new_tokens=5))
    ask(schedule, 2)
    emit(schedule, first, 4)
    assert schedule.queue.reached == (Reached(100, 0, 1), Reached(101, 1, 0))
    assert schedule.first_number == 100


def test_each_request_goes_on_from_its_watermark() -> None:
    schedule = schedule_of()
    step = begun(ask(schedule, 1, max_new_tokens=9))
    for token in (4, 5, 6):
        step = begun(emit(schedule, step, token))
    ask(schedule, 2, max_new_tokens=9)
    schedule.hold(at_once=True)
    resumptions, repeated = schedule.rewind(lambda number, reached: {100: reached - 2, 101: reached}[number])
    assert [(each.request, each.slot, each.step, each.phase) for each in resumptions] == [
        (100, 0, 1, "prefill"),
        (101, 1, 0, ""),
    ]
    assert repeated == 2
    steps = [begin.step for begin in only(Begin, schedule.go_on(2.0))]
    assert [(step.request, step.step, step.phase) for step in steps] == [
        (100, 1, "replay"),
        (100, 2, "decode"),
        (101, 0, "prefill"),
    ]


def test_forced_tokens_are_compared_and_not_told() -> None:
    schedule = schedule_of()
    step = begun(ask(schedule, max_new_tokens=3))
    step = begun(emit(schedule, step, 4))
    emit(schedule, step, 5)
    list(schedule.clients.flush_tokens())
    schedule.hold(at_once=True)
    schedule.rewind(lambda _, reached: 0)
    again = begun(schedule.go_on(2.0))
    actions = emit(schedule, again, 9)
    assert told(Token, [*actions, *schedule.clients.flush_tokens()]) == []
    actions = emit(schedule, begun(actions), 5)
    actions = emit(schedule, begun(actions), 6)
    assert [token.step for token in told(Token, actions)] == [2]
    for device in ("a", "b", "c"):
        actions = list(schedule.reported(timings(100, device), (), 3.0))
    (result,) = told(Result, actions)
    assert (result.tokens, result.replayed, result.mismatches) == (((4, 5, 6),), 2, 1)


def test_a_request_during_which_a_device_is_lost_twice() -> None:
    schedule = schedule_of()
    ask(schedule, 1)
    assert list(schedule.count_losses(("b", "c"), 1.0)) == []
    ask(schedule, 2)
    actions = list(schedule.count_losses(("c",), 2.0))
    assert [error.ticket for error in told(Error, actions)] == [ticket(1)]
    assert told(Error, actions)[0].problem.where == "c"


def test_a_link_that_was_cut_before_a_device_is_lost() -> None:
    """While the device is waited for, nothing is due for the link: it could not be met, and time would stand still."""
    schedule = schedule_of(rejoin_s=20.0)
    ask(schedule)
    schedule.deadlines.links_down([("b", "c")], 1.0)
    list(schedule.check_deadlines(1.0))
    list(schedule.devices_lost(("c",), 4.0))
    assert told(Error, list(schedule.check_deadlines(21.0))) == []
    assert schedule.deadlines.due is not None
    assert schedule.deadlines.due > 21.0
    (error,) = told(Error, list(schedule.check_deadlines(24.0)))
    assert error.problem.where == "c"


# -- clients that come back


def test_a_client_that_is_away_for_a_while() -> None:
    """Its request goes on; what it missed comes at once, and what follows as ever."""
    schedule = schedule_of(linger_s=30.0)
    step = begun(ask(schedule, max_new_tokens=4))
    step = begun(emit(schedule, step, 4))
    assert list(schedule.client_disconnected(CLIENT_ROUTE, 1.0)) == []
    step = begun(emit(schedule, step, 5))
    assert list(schedule.clients.flush_tokens()) == []
    actions = list(schedule.resume(b"client 2", Resume(ticket=ticket(1), from_step=0)))
    assert [(token.step, token.tokens) for token in told(Token, actions)] == [(0, (4,)), (1, (5,))]
    emit(schedule, step, 6)
    assert [send.origin for send in only(Send, schedule.clients.flush_tokens())] == [b"client 2"]


def test_a_client_that_missed_nothing() -> None:
    """Tokens that wait for it to be told are told before, on its former connection."""
    schedule = schedule_of(linger_s=30.0)
    step = begun(emit(schedule, begun(ask(schedule, max_new_tokens=4)), 4))
    emit(schedule, step, 5)
    actions = only(Send, schedule.resume(b"client 2", Resume(ticket=ticket(1), from_step=2)))
    assert [send.origin for send in actions] == [CLIENT_ROUTE]
    assert list(schedule.client_disconnected(CLIENT_ROUTE, 3.0)) == [], "it has no requests any more"


def test_the_end_of_a_request_is_kept_for_its_client() -> None:
    schedule = schedule_of(linger_s=30.0)
    ask(schedule)
    list(schedule.client_disconnected(CLIENT_ROUTE, 1.0))
    assert told(Error, schedule.fail(Failed(100, RunError("x")), 2.0)) == []
    resume = Resume(ticket=ticket(1), from_step=0)
    (error,) = told(Error, schedule.resume(b"client 2", resume))
    assert error.problem.message == "x"
    (error,) = told(Error, schedule.resume(b"client 3", resume))
    assert error.problem.message == "x", "that may have been lost as well"


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_client_that_stays_away(has_ended: bool) -> None:
    """Its request ends, or is forgotten if it has ended."""
    schedule = schedule_of(linger_s=3.0)
    step = begun(ask(schedule, max_new_tokens=1))
    list(schedule.client_disconnected(CLIENT_ROUTE, 1.0))
    if has_ended:
        emit(schedule, step, 4)
        for device in ("a", "b", "c"):
            list(schedule.reported(timings(100, device), (), 1.0))
    actions = list(schedule.check_deadlines(4.0))
    assert only(End, actions) == ([] if has_ended else [End(100, report=False)])
    (error,) = told(Error, schedule.resume(b"client 2", Resume(ticket=ticket(1), from_step=0)))
    assert ("not known here" if has_ended else "was away for 3 s") in error.problem.message
    list(schedule.check_deadlines(5.0))
    assert schedule.deadlines.due is None
