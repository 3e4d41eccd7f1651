from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import RunError
from partc.runtime.core.link import Receiver, Sender
from partc.runtime.core.liveness import Progress, patience_s, step_s

PLAN = bytes(32)
Packet = tuple[int, int, int, str]


def packet(sender: Sender[str], seq: int, frame: str) -> Packet:
    return sender.epoch, sender.session, seq, frame


def accept(receiver: Receiver[str], item: Packet, plan: bytes = PLAN) -> list[str]:
    epoch, session, seq, frame = item
    return receiver.accept(plan, epoch, session, seq, frame)


@given(st.integers(0, 40), st.integers(1, 12), st.floats(0, 0.8), st.integers(0, 2**32))
def test_exactly_once_in_order(count: int, capacity: int, loss: float, seed: int) -> None:
    """Over a network that loses, repeats and reorders frames and acknowledgements."""
    chance = random.Random(seed)
    sender: Sender[str] = Sender(capacity, session=9)
    receiver: Receiver[str] = Receiver(PLAN, 0, window=capacity)
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
                got += accept(receiver, item)
        air = air[len(air) // 2 :][:50]
        if chance.random() >= loss:
            sender.acknowledge(9, 0, receiver.acknowledgement())
        if chance.random() < 0.1:
            sender.acknowledge(9, 0, chance.randint(0, receiver.acknowledgement()))
    assert got == wanted


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 5)), max_size=40))
def test_only_the_session_and_epoch_in_force(items: list[tuple[int, int, int]]) -> None:
    receiver: Receiver[tuple[int, int, int]] = Receiver(PLAN, 1, window=8)
    receiver.open(1)
    got = [frame for item in items for frame in receiver.accept(PLAN, *item, item)]
    assert all(epoch == session == 1 for epoch, session, _ in got)
    assert [seq for _, _, seq in got] == list(range(len(got)))


def test_a_new_session_counts_from_zero() -> None:
    receiver: Receiver[str] = Receiver(PLAN, 0, window=8)
    receiver.open(1)
    assert accept(receiver, (0, 1, 0, "old")) == ["old"]
    receiver.open(1)
    assert accept(receiver, (0, 1, 0, "again")) == []
    receiver.open(2)
    assert accept(receiver, (0, 2, 0, "new")) == ["new"]
    assert accept(receiver, (0, 1, 1, "ghost")) == []


def test_nothing_before_a_session() -> None:
    receiver: Receiver[str] = Receiver(PLAN, 0, window=8)
    assert accept(receiver, (0, 1, 0, "early")) == []


def test_a_new_epoch_drops_the_old() -> None:
    sender: Sender[str] = Sender(4, session=1)
    receiver: Receiver[str] = Receiver(PLAN, 0, window=4)
    receiver.open(1)
    late = packet(sender, sender.push("late"), "late")
    sender.restart(1, epoch=1)
    receiver.restart(1)
    assert accept(receiver, late) == []
    assert accept(receiver, packet(sender, sender.push("new"), "new")) == ["new"]
    sender.acknowledge(1, 0, 1)
    assert list(sender.unacknowledged()) == [(0, "new")]


def test_another_plan_is_an_error() -> None:
    receiver: Receiver[str] = Receiver(PLAN, 0, window=4)
    receiver.open(1)
    with pytest.raises(RunError, match="another build"):
        accept(receiver, (0, 1, 0, "x"), plan=b"\1" * 32)


def test_out_of_the_window_is_an_error() -> None:
    receiver: Receiver[str] = Receiver(PLAN, 0, window=4)
    receiver.open(1)
    assert accept(receiver, (0, 1, 3, "x")) == []
    with pytest.raises(RunError, match="window"):
        accept(receiver, (0, 1, 4, "x"))


def test_the_buffer_is_bounded() -> None:
    sender: Sender[str] = Sender(2, session=1)
    sender.push("a")
    sender.push("b")
    with pytest.raises(RunError, match="without an acknowledgement"):
        sender.push("c")
    sender.acknowledge(1, 0, 1)
    assert sender.push("c") == 2


def test_acknowledging_the_unsent_is_an_error() -> None:
    sender: Sender[str] = Sender(2, session=1)
    sender.push("a")
    with pytest.raises(RunError, match="never sent"):
        sender.acknowledge(1, 0, 2)


def test_patience() -> None:
    assert patience_s(0.1) == 5.0
    assert patience_s(2.0) == 8.0
    assert patience_s(0.1, floor_s=1.0, slowest_s=0.5) == 2.0
    predicted = {"prefill_s": 0.5, "decode_s": 0.1, "prefill_tokens": 64}
    assert step_s(predicted, "prefill", 1, 7) == 0.5
    assert step_s(predicted, "prefill", 2, 128) == 2.0
    assert step_s(predicted, "decode", 3, 1) == pytest.approx(0.3)
    assert step_s({}, "decode", 3, 1) == 0.0
    progress = Progress(10.0)
    progress.moved(12.0)
    assert progress.silent_s(15.0) == 3.0
    assert progress.expires(5.0) == 17.0
