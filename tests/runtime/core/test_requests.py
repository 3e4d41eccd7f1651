"""All requests of the devices of a ring: what each computes does not depend on what else is in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import RunError
from partc.format.program import parse_program
from partc.format.role import Role
from partc.runtime.core.actions import Emitted, Failed, Forward
from partc.runtime.core.commands import Compute, Draw
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.script import Script
from tests.runtime.bundles import HIDDEN, Build, language_model
from tests.runtime.core.network import Network
from tests.runtime.core.roles import changed, hidden, ids_of, roles, step_of
from tests.runtime.returning import returning_model

TOKEN = {"token": np.zeros(1, np.int64)}
DECODE_LENGTH = 1


@pytest.fixture
def net() -> Network:
    return Network(roles())


@pytest.fixture
def returning() -> Network:
    """Devices that a step comes back to."""
    return Network(roles(returning_model))


def requests_of(device: str, given: Mapping[str, Role] | None = None) -> Requests:
    return Requests(Script.of((given or roles())[device]))


def computed_slots(requests: Requests) -> list[int]:
    """Slots of what device b computes until nothing can go on, in order."""
    slots = []
    while commands := list(requests.advance(4.0)):
        *_, command = commands
        assert isinstance(command, Compute)
        assert requests.computing is not None
        slots.append(command.slot)
        list(requests.computed([hidden("hidden_2")["hidden_2"]], 0.1, 5.0))
    return slots


# -- requests in flight


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("model", [language_model, returning_model], ids=["once", "returning"])
@given(random=st.randoms(use_true_random=False))
def test_interleaving_changes_nothing(model: Callable[..., Build], random: Random) -> None:
    """Three requests in flight, messages in any order that each link allows, give what each gives alone.

    So they do however often devices prepare what comes next.
    """
    net = Network(roles(model))
    steps = dict.fromkeys(range(3), 0)
    for request in steps:
        net.open(request)
    while any(count < 4 for count in steps.values()):
        net.advance()
        for request, count in steps.items():
            if len(net.tokens.get(request, [])) > count:
                steps[request] += 1
                if steps[request] < 4:
                    net.open(request, step=steps[request])
                    net.advance()
        if net.air:
            net.deliver(random.choice(net.heads()))
    for request in steps:
        assert net.tokens[request] == tokens_alone(model, request, 4)


def tokens_alone(model: Callable[..., Build], request: int, steps: int) -> list[list[int]]:
    net = Network(roles(model))
    for step in range(steps):
        net.open(request, step=step)
        net.settle()
    return net.tokens[request]


def test_the_oldest_step_goes_first() -> None:
    requests = requests_of("b")
    for number, now in ((2, 1.0), (0, 2.0), (1, 3.0)):
        assert list(requests.deliver("a", step_of(number, 0), hidden("hidden_1"), now)) == []
    assert computed_slots(requests) == [2, 0, 1]


def test_a_step_goes_on_before_any_other() -> None:
    """Device c computes logits, then tokens; another request is ready meanwhile."""
    requests = requests_of("c")
    for number in range(2):
        list(requests.deliver("a", step_of(number, 0), hidden("embed"), 1.0))
        list(requests.deliver("b", step_of(number, 0), hidden("hidden_2"), 1.0))
    (first,) = requests.advance(2.0)
    assert isinstance(first, Compute)
    (drawn,) = requests.computed([np.zeros((1, 1, 17), np.float32)], 0.1, 3.0)
    assert isinstance(drawn, Draw)
    (sent,) = requests.computed([np.zeros(1, np.int64)], 0.1, 3.0)
    assert isinstance(sent, Forward)
    assert sent.step.request == 0
    (second,) = requests.advance(4.0)
    assert isinstance(second, Compute)
    assert second.slot == 1


def test_nothing_else_is_computed_meanwhile() -> None:
    requests = requests_of("b")
    for number in range(2):
        list(requests.deliver("a", step_of(number, 0), hidden("hidden_1"), 1.0))
    assert len(list(requests.advance(2.0))) == 1
    assert list(requests.advance(2.0)) == []
    assert requests.doing() == "computes for request 0"


def test_a_failure_of_the_engine_is_its_request_s() -> None:
    requests = requests_of("b")
    for number in range(2):
        list(requests.deliver("a", step_of(number, 0), hidden("hidden_1"), 1.0))
    list(requests.advance(2.0))
    error = RunError("out of memory")
    assert list(requests.failed(error)) == [Failed(0, error)]
    assert requests.computing is None
    (command,) = requests.advance(3.0)
    assert isinstance(command, Compute)
    assert command.slot == 1


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_computed_for_a_closed_request_is_dropped(fails: bool) -> None:
    """Its slot may have a new request by then."""
    requests = requests_of("b")
    list(requests.deliver("a", step_of(0, 0), hidden("hidden_1"), 1.0))
    list(requests.advance(1.0))
    list(requests.deliver("a", step_of(5, 0, slot=0), hidden("hidden_1"), 2.0))
    assert list(requests.advance(2.0)) == [], "the engine is at work still"
    late = requests.failed(RunError("x")) if fails else requests.computed([np.zeros(1)], 0.1, 3.0)
    assert list(late) == []
    (command,) = requests.advance(3.0)
    assert isinstance(command, Compute)
    assert command.resets, "the states are another request's"


# -- the end of a request


def test_a_new_request_takes_the_slot_over(net: Network) -> None:
    """What is still under way for the slot's old request is dropped wherever it arrives."""
    net.open(0)
    net.advance()
    net.source.close(0)
    net.open(5, slot=0)
    net.advance()
    order = [0, 1, 0, 0, 0]  # of the old request: b's message comes first, c's after the new one's
    while net.air:
        net.deliver(order.pop(0) if order and order[0] < len(net.air) else 0)
        net.advance()
    assert list(net.tokens) == [5]


def test_messages_of_a_closed_request_are_dropped(net: Network) -> None:
    net.open(0)
    net.advance()
    net.deliver()
    net.close(0)
    net.close(0)
    net.settle()
    assert net.tokens == {}
    assert net.doing() == {"idle"}
    assert not any(requests.in_flight for requests in net.requests.values())


def test_timings_of_a_request_whose_slot_is_taken_before_its_end_is_told_of() -> None:
    """The end travels on another connection than the next request's values."""
    requests = requests_of("b")
    requests.deliver("a", step_of(0, 0), hidden("hidden_1"), 1.0)
    assert computed_slots(requests) == [0]
    requests.deliver("a", step_of(5, 0, slot=0), hidden("hidden_1"), 2.0)
    (timing,) = requests.close(0)
    assert (timing.request, timing.step) == (0, 0)
    assert requests.close(0) == [], "they are told once"
    assert computed_slots(requests) == [0], "the new request goes on"


def test_a_failure_ends_what_it_concerns() -> None:
    def left(failed: Failed) -> list[int]:
        requests = requests_of("b")
        for number in range(3):
            list(requests.deliver("a", step_of(number, 0), hidden("hidden_1"), 1.0))
        requests.close_failed(failed)
        return computed_slots(requests)

    error = RunError("x")
    assert left(Failed(1, error)) == [0, 2]
    assert left(Failed(1, error, earlier=True)) == [2], "the one that began later is innocent"
    assert left(Failed(None, error)) == []
    assert left(Failed(7, error)) == [0, 1, 2]


def test_all_requests_end(net: Network) -> None:
    for request in range(3):
        net.open(request)
    assert net.source.in_flight
    net.source.close_all()
    assert not net.source.in_flight
    assert net.source.next_request == 3


# -- messages that open nothing


def test_later_steps_of_an_unknown_request_are_dropped() -> None:
    requests = requests_of("b")
    assert list(requests.deliver("a", step_of(0, 1), hidden("hidden_1", 1), 1.0)) == []
    assert list(requests.advance(1.0)) == []
    assert not requests.in_flight


def test_the_source_opens_nothing_for_a_message(net: Network) -> None:
    """After a restart, it is sent what its former life had not acknowledged."""
    net.source.opens = False
    net.put("a", "c", step_of(0, 0), TOKEN)
    assert not net.source.in_flight
    net.open(1)
    net.settle()
    with pytest.raises(RunError, match="has not begun"):
        net.put("a", "c", step_of(1, 1), TOKEN)


def test_a_step_that_opens_nothing_cannot_begin_a_request() -> None:
    requests = requests_of("a")
    (failed,) = requests.begin(step_of(4, 1), ids_of(step_of(4, 1)), 1.0)
    assert isinstance(failed, Failed)
    assert failed.request == 4
    assert "does not open it" in failed.error.message
    assert not requests.in_flight


# -- order of steps


def test_steps_must_follow(net: Network) -> None:
    net.open(0)
    net.settle()
    with pytest.raises(RunError, match="does not follow"):
        net.put("b", "a", step_of(0, 2), hidden("hidden_1", 1))
    with pytest.raises(RunError, match="does not follow"):
        net.put("b", "a", step_of(0, 1, off=1), hidden("hidden_1", 1))
    with pytest.raises(RunError, match="is over"):
        net.put("b", "a", step_of(0, 0), hidden("hidden_1"))


def test_steps_of_the_source_must_follow(net: Network) -> None:
    net.open(0)
    net.settle()
    wrong = step_of(0, 1, off=1)
    with pytest.raises(RunError, match="does not follow"):
        net.begin(wrong, ids_of(wrong))
    net.source.close(0)
    net.open(1, slot=0)
    assert net.goes_on("a"), "nothing is left of it"


def test_a_failure_names_the_link_and_the_request() -> None:
    requests = requests_of("b")
    list(requests.deliver("a", step_of(0, 0), hidden("hidden_1"), 1.0))
    (failed,) = requests.deliver("a", step_of(0, 0), hidden("hidden_1"), 1.0)
    assert isinstance(failed, Failed)
    assert (failed.request, failed.error.where) == (0, "a -> b")
    assert isinstance(failed.error, RunError)
    assert failed.error.cause == "refused"


def test_a_message_twice(net: Network) -> None:
    net.open(0)
    net.advance()
    embed = next(index for index, item in enumerate(net.air) if item[0] == "c")
    twice = net.air[embed]
    net.deliver(embed)
    with pytest.raises(RunError, match="twice"):
        net.put(*twice)


# -- several messages of one device in a step


def test_messages_of_one_peer_are_told_apart_by_their_values(returning: Network) -> None:
    """The second message before the first one: it waits for its `recv`."""
    returning.open(0)
    returning.advance()
    receiver = returning.requests["b"]
    returning.put("b", "a", step_of(0, 0), hidden("sum"))
    assert receiver.doing() == "waits for hidden_1 from a (step 0)"
    assert not returning.goes_on("b")
    returning.deliver()
    returning.advance()
    assert receiver.doing() == "idle", "it has gone to the end"


def test_a_message_that_was_used_may_not_come_again(returning: Network) -> None:
    returning.open(0)
    returning.advance()
    first = returning.air[0]
    returning.deliver()
    returning.advance()
    assert returning.requests["b"].doing() == "waits for sum from a (step 0)"
    with pytest.raises(RunError, match="sent hidden_1 twice"):
        returning.put(*first)


def test_messages_of_later_steps_may_wait_as_many_as_there_are(returning: Network) -> None:
    returning.open(0)
    returning.advance()
    returning.deliver()
    for step in range(1, 10):
        returning.put("b", "a", step_of(0, step), hidden("hidden_1", DECODE_LENGTH))
        returning.put("b", "a", step_of(0, step), hidden("sum", DECODE_LENGTH))
    with pytest.raises(RunError, match="is at step 9"):
        returning.put("b", "a", step_of(0, 9), hidden("hidden_1", DECODE_LENGTH))


# -- what others are told


def test_numbers_of_requests_that_were_told_of(net: Network) -> None:
    """A source whose clock was set back must begin above them."""
    second = net.requests["b"]
    assert second.next_request == 0
    net.open(7, slot=0)
    net.advance()
    net.deliver()
    assert second.next_request == 8
    second.close(11)
    second.close(9)
    assert second.next_request == 12


def test_requests_that_were_over_before_this_device_heard_of_them() -> None:
    """Their messages are ignored; and a source whose clock was set back must begin above them, too."""
    requests = requests_of("b")
    requests.deliver("a", step_of(2, 0, slot=2), hidden("hidden_1"), 1.0)
    requests.close_below(5)
    assert not requests.in_flight
    assert requests.deliver("a", step_of(4, 0, slot=1), hidden("hidden_1"), 1.0) == []
    assert not requests.in_flight
    assert requests.next_request == 5
    requests.deliver("a", step_of(5, 0, slot=1), hidden("hidden_1"), 1.0)
    assert requests.in_flight


def test_doing_names_what_is_awaited(net: Network) -> None:
    net.open(0)
    net.advance()
    assert net.source.doing() == "waits for token from c (step 0)"
    assert net.requests["b"].doing() == "idle"


def test_timings(net: Network) -> None:
    net.open(0)
    net.settle()
    (timing,) = net.requests["c"].close(0)
    assert timing.compute_s > 0
    assert set(timing.wait_s) <= {"a", "b"}
    assert timing.received_bytes == 2 * 3 * HIDDEN * 4
    assert net.requests["c"].close(0) == [], "an unknown request has none"


def test_a_ring_of_one_emits_by_itself() -> None:
    """The token comes with the last value that is computed."""
    role = roles()["c"]
    program = parse_program("sample logits -> token\nemit token\n")
    alone = changed(role, source="c", ring=("c",), programs={"prefill": program})
    requests = Requests(Script.of(alone))
    logits = {"logits": np.zeros((1, 1, 17), np.float32)}
    list(requests.begin(step_of(0, 0), logits, 1.0))
    (drawn,) = requests.advance(1.0)
    assert isinstance(drawn, Draw)
    (emitted,) = requests.computed([np.array([4])], 0.1, 2.0)
    assert isinstance(emitted, Emitted)
    assert emitted.values["token"].tolist() == [4]
