"""The handshake, and what may travel over the links of one device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.frames import to_frame
from partc.format.message_parts import Opening, Problem, Row, TensorSpec
from partc.format.messages import CLIENT, Ack, AnyMessage, Data, Hello, Ping, Pong, Refuse, Welcome
from partc.runtime.core.actions import Delivered, Greeted, Heard, Linked, Lost, Misfit
from partc.runtime.core.commands import Send
from partc.runtime.core.events import Origin, Unreadable
from tests.runtime.bundles import HIDDEN, LENGTH
from tests.runtime.core.link_end import ROUTE, ZEROS, End, data, failure, later, welcome
from tests.runtime.core.roles import GREEDY, hello, step_of
from tests.runtime.returning import returning_model

# -- a connection to this device


def test_a_greeting_is_answered() -> None:
    end = End(greeted_by=None)
    assert end.receive(hello("a")) == [Greeted(hello("a"))]
    assert end.last() == Welcome(name="b", incarnation=1, epoch=0, next=0, info={"patience_s": 5.0})
    end.data(0)
    assert end.receive(hello("a"), origin=b"another route") == [Lost("a", ROUTE), Greeted(hello("a"))]
    assert end.last() == Welcome(name="b", incarnation=1, epoch=0, next=1, info={"patience_s": 5.0}), (
        "the session goes on"
    )
    end.receive(hello("a", session=10), origin=b"another route")
    assert end.last() == Welcome(name="b", incarnation=1, epoch=0, next=0, info={"patience_s": 5.0})


@pytest.mark.parametrize(
    ("device", "greeting", "user", "message"),
    [
        ("b", hello("d"), None, "'d' does not connect to b in this build"),
        ("b", hello("b"), None, "'b' does not connect to b"),
        ("b", hello(CLIENT), None, "'client' does not connect to b"),
        ("a", hello("somebody" * 20), None, "somebodysome"),
        ("b", hello("a"), "c", "the key of 'c' does not belong to 'a'"),
        ("b", hello("a", plan=bytes(32)), None, "b runs build .*, a has build 000000000000"),
        ("b", hello("a", placement=bytes(32)), None, "a has another placement of this build than b"),
    ],
)
def test_greetings_that_are_refused(device: str, greeting: Hello, user: str | None, message: str) -> None:
    end = End(device, greeted_by=None)
    assert end.receive(greeting, user=user) == []
    refused = end.last()
    assert isinstance(refused, Refuse)
    with pytest.raises(RunError, match=message):
        raise refused.problem.error()
    assert refused.problem.cause == "refused"
    assert len(refused.problem.message) < 200
    assert end.data(0) == [], "a stranger's message is ignored"


def test_all_devices_and_clients_connect_to_the_source() -> None:
    """Also those that send it no values."""
    end = End("a", greeted_by=None)
    for name in ("b", "c", CLIENT):
        end.receive(hello(name), origin=name.encode(), user=name)
        assert end.last() == Welcome(name="a", incarnation=1, epoch=0, next=0, info={"patience_s": 5.0})


def test_messages_before_a_greeting_are_ignored() -> None:
    """They are left over from a connection that broke."""
    end = End(greeted_by=None)
    assert end.data(0) == end.receive(Ping()) == []
    assert end.sent == []


def test_other_messages_are_handed_on() -> None:
    end = End()
    assert end.receive(Ping(token=3)) == [Heard("a", ROUTE, Ping(token=3), [])]


def test_what_cannot_be_read() -> None:
    """A device's link is not to be trusted any more; strangers and clients are refused."""
    error = RunError("a message that cannot be read", cause="refused")
    end = End("a", greeted_by=None)
    for name in ("c", CLIENT):
        end.receive(hello(name), origin=name.encode())
    for origin in (CLIENT.encode(), b"stranger"):
        assert end.take(end.links.unreadable(Unreadable(origin, error))) == []
        assert end.sent[-1] == Send(origin, Refuse(problem=Problem.of(error)))
    failed = failure(end.take(end.links.unreadable(Unreadable(b"c", error))))
    assert (failed.request, failed.error.where) == (None, "c -> a")


def test_the_end_of_a_connection() -> None:
    end = End()
    assert end.take(end.links.disconnected(b"nobody's")) == []
    assert end.take(end.links.disconnected(ROUTE)) == [Lost("a", ROUTE)]
    assert end.take(end.links.disconnected(ROUTE)) == []
    assert end.data(0) == []


def test_a_connection_whose_end_is_noticed_late() -> None:
    """The device has greeted on another one before: so it was lost then, and is not lost again."""
    end = End()
    again = hello("a", session=10)
    assert end.receive(again, origin=b"another route") == [Lost("a", ROUTE), Greeted(again)]
    assert end.take(end.links.disconnected(ROUTE)) == []
    assert [
        type(action)
        for action in end.receive(data(0, session=10), [to_frame(ZEROS)], origin=b"another route")
    ] == [Delivered]


def test_greetings_of_two_lives_that_are_read_in_the_wrong_order() -> None:
    """This process stood still meanwhile: the connection of the life before ends, and the other one counts again."""
    end = End()
    now, before = (hello("a", session=life, incarnation=life) for life in (10, 7))
    end.receive(now, origin=b"now")
    assert end.receive(before, origin=b"before") == [Lost("a", b"now"), Greeted(before)]
    assert end.take(end.links.disconnected(b"before")) == [Lost("a", b"before")]
    assert end.sent[-2:] == [Send(ROUTE, Ping(token=5)), Send(b"now", Ping(token=10))]
    pong = Pong(token=10, computing=False, doing="idle")
    assert end.receive(pong, origin=ROUTE) == [], "not what it was asked"
    assert end.receive(pong, origin=b"now") == [Greeted(now)]
    assert end.sent[-1].origin == b"now"
    assert isinstance(end.sent[-1].message, Welcome)
    delivered = end.receive(data(0, session=10), [to_frame(ZEROS)], origin=b"now")
    assert [type(action) for action in delivered] == [Delivered]


def test_clients_do_not_supersede_each_other() -> None:
    end = End("a", greeted_by=CLIENT)
    assert end.receive(hello(CLIENT), origin=b"another client") == []
    assert end.take(end.links.disconnected(ROUTE)) == [Lost(CLIENT, ROUTE)]


# -- values that arrive


def test_values_are_delivered() -> None:
    (delivered,) = End().data(0)
    assert isinstance(delivered, Delivered)
    assert (delivered.peer, delivered.step.request, delivered.step.phase) == ("a", 0, "prefill")
    np.testing.assert_array_equal(delivered.values["hidden_1"], ZEROS)


def test_a_repetition_is_dropped() -> None:
    end = End()
    assert len(end.data(0)) == 1
    assert end.data(0) == []


def test_a_gap_is_waited_for() -> None:
    end = End()
    assert end.data(1) == []
    assert [item.step.request for item in end.data(0) if isinstance(item, Delivered)] == [0, 1]


def test_acknowledged_by_number_or_by_time() -> None:
    end = End()
    for seq in range(8):
        assert [type(action) for action in end.data(seq)] == [Delivered]
    assert end.acknowledged() == [], "the device has more urgent work"
    assert end.links.incoming.due == 0.0
    end.take(end.links.incoming.acknowledgements(0.0))
    assert end.acknowledged() == [8]
    assert end.links.incoming.due is None
    end.data(8)
    due = end.links.incoming.due
    assert due == 0.1
    end.take(end.links.incoming.acknowledgements(due - 0.01))
    assert end.acknowledged() == [8]
    end.take(end.links.incoming.acknowledgements(due))
    assert end.acknowledged() == [8, 9]


def test_frames_of_another_epoch_get_no_acknowledgement() -> None:
    end = End()
    for seq in range(20):
        assert end.data(seq, epoch=1) == []
    assert end.links.incoming.due is None
    assert [type(action) for action in end.data(0)] == [Delivered], "the one in force goes on"


def test_frames_of_another_session_are_ignored() -> None:
    end = End()
    assert end.data(0, session=8) == []
    assert [type(action) for action in end.data(0)] == [Delivered]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phase": "decode"}, "step 0 is no step of 'decode'"),
        ({"rows": (Row(0, 9, 0, 0, 1),)}, "slot 3, there are 3"),
        ({"rows": (Row(0, 0, 0, LENGTH, 1),)}, "max_sequence"),
        ({"rows": (Row(0, 0, 0, 0, 1), Row(1, 1, 0, 0, 1))}, "does not belong to request 0"),
        ({"values": (TensorSpec("hidden_1", "float32", (1, 2, HIDDEN)),)}, "has the shape"),
        ({"values": (TensorSpec("embed", "float32", (1, 1, HIDDEN)),)}, "is not what prefill awaits from a"),
        ({"open": ()}, "opened by its step 0"),
    ],
)
def test_values_that_the_placement_does_not_have(changes: dict[str, Any], message: str) -> None:
    """They end their request and those before it; the requests behind it are innocent."""
    end = End()
    failed = failure(end.receive(replace(data(0), **changes), [to_frame(ZEROS)]))
    assert (failed.request, failed.earlier, failed.error.where) == (0, True, "a -> b")
    with pytest.raises(RunError, match=message):
        raise failed.error
    assert [type(action) for action in end.data(1)] == [Delivered], "the link goes on"


def test_frames_are_held_against_the_header() -> None:
    failed = failure(End().receive(data(0), [b"1234"]))
    assert "has 4 bytes" in failed.error.message
    failed = failure(End().receive(data(0), []))
    assert "1 tensors are announced, 0 came" in failed.error.message


def test_no_step_beyond_the_plan() -> None:
    end = End()
    for step in range(1, LENGTH):
        assert [type(action) for action in end.receive(later(step - 1, step), [to_frame(ZEROS)])] == [
            Delivered
        ]
    failed = failure(end.receive(later(LENGTH - 1, LENGTH), [to_frame(ZEROS)]))
    assert "max_sequence" in failed.error.message


def test_values_of_a_device_that_sends_none() -> None:
    """Device b tells the source that it is ready, but has no values for it."""
    end = End("a", greeted_by="b")
    failed = failure(end.data(0))
    assert failed.request is None
    assert "b sends no data here" in failed.error.message


def test_values_of_a_client() -> None:
    """Only devices send them: they are ignored."""
    end = End("a", greeted_by=CLIENT)
    before = list(end.sent)
    assert end.data(0) == []
    assert end.sent == before


def test_a_header_is_a_peer_s_own() -> None:
    """The same bytes on another connection are nobody's."""
    end = End()
    assert end.receive(data(0), [to_frame(ZEROS)], origin=b"another connection") == []


def test_each_message_of_the_program_is_awaited_and_no_other() -> None:
    end = End(model=returning_model)
    assert [type(action) for action in end.data(0, "hidden_1")] == [Delivered]
    assert end.data(0, "hidden_1") == [], "a repetition"
    assert [type(action) for action in end.data(1, "sum")] == [Delivered]
    failed = failure(end.data(2, "hidden_2"))
    assert "is not what prefill awaits from a" in failed.error.message


# -- a connection that this device opened


def test_a_link_comes_up() -> None:
    end = End()
    assert end.links.missing == ["a", "c"]
    end.take(end.links.connected("c"))
    greeting = end.last()
    assert isinstance(greeting, Hello)
    assert (greeting.name, greeting.epoch, greeting.incarnation) == ("b", 0, 1)
    assert end.links.missing == ["a", "c"], "nothing may be sent before the welcome"
    assert end.receive(welcome("c"), origin="c") == [Linked("c")]
    assert end.links.missing == ["a"]


def test_addresses_of_devices_alone_are_kept() -> None:
    links = End("b").links
    list(links.moved({"c": "192.0.2.7:5555", "nobody": "192.0.2.8:5555"}))
    assert links.addresses == {"c": "192.0.2.7:5555"}


def test_values_are_sent() -> None:
    end = End()
    end.link("c")
    step = step_of(0, 0)
    array = np.ones((1, 3, HIDDEN), np.float32)
    sent = end.out("c", step, ("hidden_2",), [array])
    message = sent.message
    assert isinstance(message, Data)
    assert (sent.origin, message.seq, message.phase, message.rows) == (
        "c",
        0,
        "prefill",
        (Row(0, 0, 0, 0, 3),),
    )
    assert message.values == (TensorSpec("hidden_2", "float32", (1, 3, HIDDEN)),)
    assert message.open == (Opening(0, GREEDY),)
    assert bytes(sent.frames[0]) == array.tobytes()
    following = end.out("c", step_of(0, 1, slot=2), ("hidden_2",), [array]).message
    assert isinstance(following, Data)
    assert (following.seq, following.rows, following.open) == (1, (Row(0, 6, 1, 3, 1),), ())


def test_values_wait_for_a_link() -> None:
    """Nothing leaves while none stands; once one does, all that has waited does, in order."""
    end = End()
    for step in range(2):
        assert end.links.outgoing.send("c", step_of(0, step), ("hidden_2",), [ZEROS]) is None
    assert end.link("c") == [Linked("c")]
    assert [item.message.seq for item in end.sent if isinstance(item.message, Data)] == [0, 1]
    end.take(end.links.disconnected("c"))
    assert end.links.outgoing.send("c", step_of(0, 2), ("hidden_2",), [ZEROS]) is None
    end.sent.clear()
    end.link("c", expected=2)
    assert [item.message.seq for item in end.sent if isinstance(item.message, Data)] == [2]


def test_after_a_break_what_was_not_acknowledged_is_repeated() -> None:
    end = End()
    end.link("c")
    first = end.out("c", step_of(0, 0), ("hidden_2",), [ZEROS])
    second = end.out("c", step_of(0, 1), ("hidden_2",), [ZEROS])
    assert end.take(end.links.disconnected("c")) == [Lost("c", "c")]
    assert end.links.missing == ["a", "c"]
    end.sent.clear()
    assert end.link("c", expected=1) == [Linked("c")]
    assert end.sent[1:] == [second]
    end.take(end.links.disconnected("c"))
    end.sent.clear()
    end.link("c", expected=1)
    assert end.sent[1:] == [second], "until it is acknowledged"
    assert first not in end.sent


def test_acknowledged_values_are_not_repeated() -> None:
    end = End()
    end.link("c")
    message = end.out("c", step_of(0, 0), ("hidden_2",), [ZEROS]).message
    assert isinstance(message, Data)
    end.receive(Ack(session=message.session, epoch=0, seq=1), origin="c")
    end.take(end.links.disconnected("c"))
    end.sent.clear()
    assert end.link("c", expected=1) == [Linked("c")]
    assert len(end.sent) == 1


def test_a_receiver_that_started_again_gets_a_new_session() -> None:
    """It awaits message 0, which is gone: so the sender counts from 0 again, and greets once more."""
    end = End()
    end.link("c")
    message = end.out("c", step_of(0, 0), ("hidden_2",), [ZEROS]).message
    assert isinstance(message, Data)
    end.receive(Ack(session=message.session, epoch=0, seq=1), origin="c")
    end.take(end.links.disconnected("c"))
    assert end.link("c", expected=0) == []
    greeting = end.last()
    assert isinstance(greeting, Hello)
    assert greeting.session != message.session
    assert end.links.missing == ["a", "c"]
    assert end.receive(welcome("c"), origin="c") == [Linked("c")]
    again = end.out("c", step_of(1, 0), ("hidden_2",), [ZEROS]).message
    assert isinstance(again, Data)
    assert (again.session, again.seq) == (greeting.session, 0)


def test_sessions_of_two_lives_differ() -> None:
    def sessions(incarnation: int) -> set[int]:
        end = End(greeted_by=None, incarnation=incarnation)
        for peer in ("a", "c"):
            end.take(end.links.connected(peer))
        return {item.message.session for item in end.sent if isinstance(item.message, Hello)}

    assert len(sessions(2**50 + 7) | sessions(2**63 + 1234)) == 4


def test_both_ends_of_a_link_have_room_for_all_messages_of_a_step() -> None:
    """8 + 9 steps × 3 requests × 2 messages + 64 = 126."""
    receiver = End(model=returning_model)
    assert receiver.data(125, "sum") == []
    assert "out of the window" in failure(receiver.data(126, "sum")).error.message
    sender = End("a", returning_model, greeted_by=None)
    sender.link("b")
    for number in range(126):
        sender.out("b", step_of(number, 0, slot=0), ("sum",), [ZEROS])
    with pytest.raises(RunError, match="126 messages were sent without an acknowledgement"):
        sender.out("b", step_of(126, 0, slot=0), ("sum",), [ZEROS])


# -- answers that do not fit


@pytest.mark.parametrize(
    ("message", "origin", "expected"),
    [
        (welcome("a"), ROUTE, "a answers a question that was not asked"),
        (Refuse(problem=Problem("refused", "no")), ROUTE, "a answers a question that was not asked"),
        (Ack(session=1, epoch=0, seq=1), "c", "was never sent"),
    ],
    ids=["welcome", "refuse", "ack"],
)
def test_answers_to_nothing(message: AnyMessage, origin: Origin, expected: str) -> None:
    end = End()
    if isinstance(message, Ack):
        message = Ack(session=end.links.outgoing._links["c"].sender.session, epoch=0, seq=1)
    failed = failure(end.receive(message, origin=origin))
    assert failed.request is None
    assert expected in failed.error.message


def test_an_acknowledgement_of_one_that_is_sent_nothing() -> None:
    failed = failure(End("c", greeted_by="b").receive(Ack(session=1, epoch=0, seq=0)))
    assert "b answers a question that was not asked" in failed.error.message


def test_a_device_that_is_refused() -> None:
    end = End()
    (misfit,) = end.receive(Refuse(problem=Problem("refused", "another build", "a", "copy it")), origin="a")
    assert isinstance(misfit, Misfit)
    assert (misfit.error.message, misfit.error.where, misfit.error.hint) == ("another build", "a", "copy it")


def test_keys_that_do_not_fit() -> None:
    end = End()
    (misfit,) = end.take(end.links.rejected("c"))
    assert isinstance(misfit, Misfit)
    assert "c and this device do not have each other's keys" in misfit.error.message


def test_an_end_of_a_batch() -> None:
    """Three sequences in slot 1 are the rows 3, 4 and 5."""
    end = End()
    end.link("c")
    rows = replace(
        step_of(7, 0, slot=1), dims={"batch": 3, "sequence": 3}, position=(0, 0, 0), length=(3, 1, 2)
    )
    message = end.out("c", rows, ("hidden_2",), [np.ones((3, 3, HIDDEN), np.float32)]).message
    assert isinstance(message, Data)
    assert message.rows == (Row(7, 3, 0, 0, 3), Row(7, 4, 0, 0, 1), Row(7, 5, 0, 0, 2))
