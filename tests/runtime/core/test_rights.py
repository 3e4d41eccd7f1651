"""A malicious member, and every kind of message: what it may not send changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.format.message_parts import Held, Problem
from partc.format.messages import (
    CLIENT,
    Abort,
    Cancel,
    Close,
    Commit,
    Crossed,
    Error,
    Fail,
    Message,
    Prepared,
    Refuse,
    Rows,
    Timings,
    Want,
)
from partc.runtime.core.commands import Send
from partc.runtime.core.events import Origin, Received
from tests.format.test_messages import structs_of
from tests.runtime.core.malice import Case, kept, standing, wrong_cases

CASES = list(wrong_cases())


def test_there_is_a_case_for_nearly_every_kind() -> None:
    """`hello` alone may come from everybody."""
    assert len(CASES) > 200
    assert len({case.kind for case in CASES}) == 39


@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_message_outside_its_right_changes_nothing(case: Case, data: st.DataObject) -> None:
    device = standing(case.receiver)
    before = kept(device)
    message = data.draw(structs_of(case.kind))
    commands = device.on(Received(case.origin, None, message, [memoryview(bytes(8))]), 1.0)
    if case.is_answer:
        # A device that answers what nobody asked is not to be trusted: requests in flight end, or the client is told.
        told = {type(each.message) for each in commands if isinstance(each, Send)}
        assert told == (
            {Refuse} if case.sender == CLIENT else {Close, Error} if case.receiver == "a" else {Fail}
        )
    else:
        assert commands == []
        assert kept(device) == before


PREPARED = Prepared(epoch=1, incarnation=1, have=(Held(100, "hidden", 3),))
UNTIMELY: list[tuple[str, Origin, Message]] = [
    ("a", b"b", PREPARED),
    ("b", "a", Commit(placement=bytes(32), epoch=1, incarnation=5, requests=())),
    ("b", "a", Abort(epoch=1, problem=Problem("refused", ""))),
    ("a", b"b", Timings(request=100, device="c", columns=("step",), values=())),
    ("a", b"b", Crossed(request=100, device="c", peer="b", step=0, values=())),
    ("a", b"client", Cancel(ticket=bytes(range(16)))),
    *(
        (receiver, b"c", Want(epoch=epoch, request=100, submodule=name, begin=0, end=0, part=0, waits=True))
        for receiver, name in (("a", "sub_0"), ("b", "sub_1"))
        for epoch in (1, 2**62)
    ),
    (
        "b",
        b"c",
        Rows(
            epoch=0, request=100, submodule="sub_1", begin=0, end=1, part=0, parts=1, sequences=1, state="x", row=0,
            position=0, values=(),
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("receiver", "origin", "message"), UNTIMELY)
def test_a_message_at_the_wrong_time_changes_nothing(receiver: str, origin: Origin, message: Message) -> None:
    device = standing(receiver)
    before = kept(device)
    assert device.on(Received(origin, None, message, []), 1.0) == []  # type: ignore[arg-type]
    assert kept(device) == before


def test_what_is_kept_can_be_compared() -> None:
    """The control: a message within its right changes it."""
    device = standing("a")
    before = kept(device)
    assert kept(standing("a")) == before
    device.on(Received(b"b", None, Fail(request=None, earlier=False, problem=Problem("bug", "")), []), 1.0)
    assert kept(device) != before
