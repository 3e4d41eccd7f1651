"""The two ends of a link: every frame once and in order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import RunError
from partc.runtime.core.links.link import Receiver, Sender

Packet = tuple[int, int, int, str]


def packet(sender: Sender[str], seq: int, frame: str) -> Packet:
    return sender.epoch, sender.session, seq, frame


@given(st.integers(0, 40), st.integers(1, 12), st.floats(0, 0.8), st.integers(0, 2**32))
def test_exactly_once_in_order(count: int, capacity: int, loss: float, seed: int) -> None:
    """Over a network that loses, repeats and reorders frames and acknowledgements."""
    chance = random.Random(seed)
    sender: Sender[str] = Sender(capacity, session=9)
    receiver: Receiver[str] = Receiver(0, window=capacity)
    receiver.open(9)
    wanted = [f"frame {index}" for index in range(count)]
    todo, air, got = list(wanted), list[Packet](), list[str]()
    for _ in range(10_000):
        if len(got) == count:
            break
        while todo and len(list(sender.unacknowledged())) < capacity:
            frame = todo.pop(0)
            air.append(packet(sender, sender.push(frame), frame))
        air += [packet(sender, seq, frame) for seq, frame in sender.unacknowledged()]
        chance.shuffle(air)
        for item in air[: len(air) // 2 + 1]:
            if chance.random() >= loss:
                got += receiver.accept(*item)
        air = air[len(air) // 2 :][:50]
        if chance.random() >= loss:
            sender.acknowledge(9, 0, receiver.acknowledgement())
        if chance.random() < 0.1:
            sender.acknowledge(9, 0, chance.randint(0, receiver.acknowledgement()))
    assert got == wanted


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 5)), max_size=40))
def test_only_the_session_and_epoch_in_force(items: list[tuple[int, int, int]]) -> None:
    receiver: Receiver[tuple[int, int, int]] = Receiver(1, window=8)
    receiver.open(1)
    got = [frame for item in items for frame in receiver.accept(*item, item)]
    assert all(epoch == session == 1 for epoch, session, _ in got)
    assert [seq for _, _, seq in got] == list(range(len(got)))


def test_a_new_session_counts_from_zero() -> None:
    receiver: Receiver[str] = Receiver(0, window=8)
    receiver.open(1)
    assert receiver.accept(0, 1, 0, "old") == ["old"]
    receiver.open(1)
    assert receiver.accept(0, 1, 0, "again") == []
    receiver.open(2)
    assert receiver.accept(0, 2, 0, "new") == ["new"]
    assert receiver.accept(0, 1, 1, "ghost") == []


def test_nothing_before_a_session() -> None:
    receiver: Receiver[str] = Receiver(0, window=8)
    assert receiver.accept(0, 1, 0, "early") == []
    assert receiver.session is None


def test_a_new_epoch_drops_the_old() -> None:
    sender: Sender[str] = Sender(4, session=1)
    receiver: Receiver[str] = Receiver(0, window=4)
    receiver.open(1)
    late = packet(sender, sender.push("late"), "late")
    sender.restart(1, epoch=1)
    receiver.expect(1, window=4)
    assert receiver.restart() == []
    assert receiver.accept(*late) == []
    assert receiver.accept(*packet(sender, sender.push("new"), "new")) == ["new"]
    sender.acknowledge(1, 0, 1)
    assert list(sender.unacknowledged()) == [(0, "new")]


def prepared(epoch: int, window: int = 4) -> Receiver[str]:
    """A receiver of epoch 0 that has taken one frame, and expects an epoch."""
    receiver: Receiver[str] = Receiver(0, window=4)
    receiver.open(1)
    receiver.accept(0, 1, 0, "old")
    receiver.expect(epoch, window)
    return receiver


def test_frames_of_the_prepared_epoch_wait_for_it() -> None:
    """They are handed on when it is in force, in order; a gap is waited for as ever."""
    receiver = prepared(2)
    assert [receiver.accept(2, 1, seq, f"new {seq}") for seq in (1, 0, 1, 3)] == [[], [], [], []]
    assert receiver.accept(0, 1, 1, "the last") == ["the last"], "the epoch in force goes on"
    assert receiver.restart() == ["new 0", "new 1"]
    assert (receiver.epoch, receiver.acknowledgement()) == (2, 2)
    assert receiver.accept(2, 1, 2, "new 2") == ["new 2", "new 3"]


def test_frames_of_an_epoch_that_nobody_prepared_are_dropped() -> None:
    """Their sender repeats them after its next `hello`."""
    receiver = prepared(2)
    for epoch in (1, 3):
        assert receiver.accept(epoch, 1, 0, "whatever") == []
    assert receiver.restart() == []


def test_another_epoch_that_is_prepared_takes_the_place_of_the_former() -> None:
    receiver = prepared(1)
    receiver.accept(1, 1, 0, "never")
    receiver.expect(2, window=4)
    receiver.accept(2, 1, 0, "new")
    assert receiver.restart() == ["new"]


def test_another_placement_under_the_same_epoch_forgets_what_came_early() -> None:
    """A source that has restarted may give out an epoch again that its former life gave out."""
    receiver = prepared(1)
    receiver.accept(1, 1, 0, "never")
    receiver.expect(1, window=4)
    assert receiver.restart() == []


def test_a_new_session_drops_what_came_early() -> None:
    receiver = prepared(1)
    receiver.accept(1, 1, 0, "of the former life")
    receiver.open(2)
    assert receiver.restart() == []
    assert receiver.accept(1, 2, 0, "new") == ["new"]


def test_early_frames_have_the_window_of_their_epoch() -> None:
    receiver = prepared(1, window=8)
    assert receiver.accept(1, 1, 7, "x") == []
    with pytest.raises(RunError, match="message 8 came while 0 was awaited: out of the window"):
        receiver.accept(1, 1, 8, "x")
    receiver.restart()
    assert receiver.accept(1, 1, 0, "x") == ["x"]
    assert receiver.accept(1, 1, 8, "x") == [], "its own from now on"


def test_a_link_without_part_in_the_change_goes_on() -> None:
    receiver: Receiver[str] = Receiver(0, window=4)
    receiver.open(1)
    assert receiver.restart() == []
    assert receiver.accept(0, 1, 0, "x") == ["x"]


def test_out_of_the_window_is_an_error() -> None:
    receiver: Receiver[str] = Receiver(0, window=4)
    receiver.open(1)
    assert receiver.accept(0, 1, 3, "x") == []
    with pytest.raises(RunError, match="window") as caught:
        receiver.accept(0, 1, 4, "x")
    assert caught.value.cause == "refused"


def test_the_buffer_is_bounded() -> None:
    sender: Sender[str] = Sender(2, session=1)
    sender.push("a")
    sender.push("b")
    with pytest.raises(RunError, match="without an acknowledgement") as caught:
        sender.push("c")
    assert caught.value.cause == "stalled"
    sender.acknowledge(1, 0, 1)
    assert sender.push("c") == 2


def test_acknowledging_the_unsent_is_an_error() -> None:
    sender: Sender[str] = Sender(2, session=1)
    sender.push("a")
    with pytest.raises(RunError, match="never sent"):
        sender.acknowledge(1, 0, 2)


def test_which_receivers_can_be_sent_all_that_they_lack() -> None:
    """Frames 2 and 3 are kept: one that awaits 1 has lost a frame that is gone, one that awaits 5 is another's."""
    sender: Sender[str] = Sender(4, session=1)
    for frame in "abcd":
        sender.push(frame)
    sender.acknowledge(1, 0, 2)
    assert [sender.can_resume(seq) for seq in range(6)] == [False, False, True, True, True, False]
    sender.restart(2)
    assert [sender.can_resume(seq) for seq in range(2)] == [True, False]
    assert sender.next_seq == 0
