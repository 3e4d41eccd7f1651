"""Rows on their way between two devices: who asks, who answers, and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from partc.errors import RunError
from partc.format.build import State, Submodule
from partc.format.dtypes import Array
from partc.format.frames import to_frames
from partc.format.message_parts import Held, Opening, Reached, Sampling, TensorSpec
from partc.format.messages import Rows, Want
from partc.format.role import Role
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import Connect, ReadRows, Reset, Send, WriteRows
from partc.runtime.core.links import Links
from partc.runtime.core.request import Script
from partc.runtime.core.requests import Requests
from partc.runtime.core.step import Step
from partc.runtime.core.transfer import Transfer
from tests.runtime.core.changing import PATIENCE_S, only, prepare, role_of, with_d, without_c
from tests.runtime.core.link_end import welcome

ROUTE = b"route of c"
MANY = 20_000
"""Rows of 16 bytes: more than one part of 256 KiB."""


class End:
    """Rows at one device; `b` runs p1, `d` nothing yet."""

    def __init__(self, device: str, role: Role | None = None) -> None:
        self.role = role or role_of(device)
        self.links = Links(self.role, 1)
        self.requests = Requests(Script.of(self.role))
        self.transfer = Transfer(self.role, self.requests, self.links, PATIENCE_S)

    def link(self, peer: str) -> list[Action]:
        """A connection to a peer stands, which `connect` opened or the role asks for."""
        list(self.links.connected(peer))
        self.links._welcomed(peer, welcome(peer))
        return list(self.transfer.linked(peer))

    def open(self, steps: int, *ends: tuple[int, ...], slot: int = 0, request: int = 40) -> None:
        """A request has gone through so many steps; `ends` are the valid tokens after those of the prompt."""
        length = ends[0] if ends else (3,)
        dims = {"batch": len(length), "sequence": max(length)}
        opening = Opening(request, Sampling())
        step = Step(request, slot, 0, "prefill", dims, (0,) * len(length), length, opening)
        opened = self.requests._admit(step, 0.0)
        opened.steps = steps
        opened._ends = list(ends)

    def begin(
        self,
        *requests: Reached,
        epoch: int = 1,
        stands_still: bool = False,
        holders: Mapping[str, str] = {"p1": "b", "p2": "c"},
    ) -> list[Action]:
        """The change to the placement in which b runs p1 and p2, or d runs p2."""
        placement = without_c(epoch) if self.role.device == "b" else with_d(epoch)
        message = prepare(placement, *requests, stands_still=stands_still, holders=holders)
        return list(self.transfer.begin(Role(self.role.build, placement), message, 1.0))

    def came(
        self, peer: str = "c", now: float = 2.0, shape: tuple[int, ...] = (3, 1, 4), **changes: Any
    ) -> list[Action]:
        """A part of p2's rows."""
        array = np.zeros(shape, np.float32)
        message = rows(TensorSpec("p2.state", "float32", array.shape), **changes)
        return list(self.transfer.came(peer, message, to_frames(array), now))


def rows(*values: TensorSpec, **changes: Any) -> Rows:
    facts: dict[str, Any] = {
        "epoch": 1, "request": 40, "submodule": "p2", "begin": 0, "end": 1, "part": 0, "parts": 1, "sequences": 1,
        "state": "p2.state", "row": 0, "position": 0, "values": values,
    }  # fmt: skip
    return Rows(**{**facts, **changes})


def want(**changes: Any) -> Want:
    facts: dict[str, Any] = {
        "epoch": 1, "request": 40, "submodule": "p1", "begin": 0, "end": 0, "part": 0, "waits": True,
    }  # fmt: skip
    return Want(**{**facts, **changes})


def questions(actions: list[Action]) -> list[tuple[int, int, int]]:
    """(begin, end, part) of each."""
    messages = [send.message for send in only(Send, actions)]
    return [(item.begin, item.end, item.part) for item in messages if isinstance(item, Want)]


def receiver(**options: Any) -> End:
    """Device b, which asks c for the rows of p2 of request 40."""
    end = End("b")
    end.link("c")
    assert questions(end.begin(Reached(40, 0, 3), **options)) == [(0, 0, 0)]
    return end


# -- the receiving end


def test_rows_of_all_steps() -> None:
    """Parts come one after another, and the watermark rises with the last part of some steps."""
    end = receiver()
    actions = end.came(parts=2)
    assert only(Reset, actions) == [Reset(0, {"batch": 1, "sequence": 24})]
    assert questions(actions) == [(0, 1, 1)]
    assert list(end.transfer.held()) == []
    actions = end.came(part=1, parts=2, position=1, shape=(2, 1, 4))
    assert only(Reset, actions) == [], "the slot has begun anew already"
    assert questions(actions) == [(1, 0, 0)]
    assert list(end.transfer.held()) == [Held(40, "p2", 1)]
    (write,) = only(WriteRows, end.came(begin=1, end=3, position=3, shape=(2, 1, 4)))
    assert (write.submodule, write.slot, write.state, write.row, write.begin) == ("p2", 0, "p2.state", 0, 3)
    assert write.rows.shape == (2, 1, 4)
    assert end.transfer.done
    assert list(end.transfer.held()) == [Held(40, "p2", 3)]


def test_a_request_that_runs_here_keeps_its_slot() -> None:
    end = receiver()
    end.open(3)
    assert only(Reset, end.came()) == []


def test_what_runs_here_is_not_fetched() -> None:
    end = End("b")
    end.link("c")
    end.open(3)
    (send,) = only(Send, end.begin(Reached(40, 0, 3)))
    assert isinstance(send.message, Want)
    assert send.message.submodule == "p2"


@pytest.mark.parametrize(
    "holders", [{}, {"p2": "b", "p1": "b"}], ids=["nobody has them", "they were its own, and are gone"]
)
def test_rows_that_nobody_has(holders: dict[str, str]) -> None:
    end = End("b")
    assert end.begin(Reached(40, 0, 3), holders=holders) == []
    assert end.transfer.done
    assert list(end.transfer.held()) == []


def test_a_request_in_its_first_step_has_no_rows() -> None:
    end = End("b")
    end.link("c")
    assert end.begin(Reached(40, 0, 0)) == []
    assert end.transfer.done


def of_states(role: Role, submodule: str, *states: State) -> Role:
    """The same role, where a sub-module has other states."""
    changed = [
        Submodule(item.name, item.file, item.weights, item.inputs, item.outputs, states)
        if item.name == submodule
        else item
        for item in role.build.submodules
    ]
    return role.changed(submodules=tuple(changed))


def test_a_sub_module_without_states_has_all_rows() -> None:
    end = End("b", of_states(role_of("b"), "p2"))
    assert end.begin(Reached(40, 0, 3)) == []
    assert Held(40, "p2", 3) in list(end.transfer.held())


def test_a_state_that_has_no_rows_is_that_of_one_step() -> None:
    """Its step may be over when it is here, so it is computed again."""
    whole = State("s", "s.in", "s.out", "float32", ("batch", 1, 4), kind="whole")
    end = End("b", of_states(role_of("b"), "p2", whole))
    assert end.begin(Reached(40, 0, 3)) == []
    assert end.transfer.done
    assert list(end.transfer.held()) == []


def test_a_device_that_is_not_connected() -> None:
    """It is connected to, and asked once the connection stands."""
    end = End("b")
    end.links.devices.clear()
    assert end.begin(Reached(40, 0, 3), holders={"p2": "d"}) == [Connect("d", "")]
    assert questions(end.link("d")) == [(0, 0, 0)]


def test_a_question_that_may_be_lost_is_asked_again() -> None:
    end = receiver()
    end.came(parts=2)
    assert questions(end.link("c")) == [(0, 1, 1)]
    assert end.link("a") == [], "it was not asked"


def test_rows_that_do_not_come() -> None:
    """They are given up after the patience since the last part."""
    end = receiver()
    end.came(now=2.0)
    assert end.transfer.due == 2.0 + PATIENCE_S
    end.transfer.look(6.9)
    assert not end.transfer.done
    end.transfer.look(7.0)
    assert end.transfer.done
    assert end.transfer.due is None
    assert list(end.transfer.held()) == [Held(40, "p2", 1)], "what has come counts"


def test_there_are_no_more() -> None:
    end = receiver(stands_still=True)
    end.came()
    list(end.transfer.came("c", rows(begin=1, end=1, parts=0), (), 3.0))
    assert end.transfer.done
    assert list(end.transfer.held()) == [Held(40, "p2", 1)]


@pytest.mark.parametrize(
    ("peer", "changes"),
    [
        ("a", {}),
        ("c", {"epoch": 2}),
        ("c", {"request": 41}),
        ("c", {"submodule": "p1"}),
        ("c", {"begin": 1, "end": 2}),
        ("c", {"part": 1, "parts": 2}),
    ],
    ids=[
        "another device",
        "another change",
        "another request",
        "what it runs",
        "other steps",
        "another part",
    ],
)
def test_rows_that_were_not_asked_for(peer: str, changes: dict[str, Any]) -> None:
    end = receiver()
    assert end.came(peer, **changes) == []
    assert not end.transfer.done


def test_rows_that_come_twice() -> None:
    end = receiver()
    end.came()
    assert end.came() == []


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((3, 1, 5), {}),
        ((3, 4), {}),
        ((25, 1, 4), {}),
        ((3, 1, 4), {"position": 22}),
        ((3, 1, 4), {"row": 1}),
        ((3, 1, 4), {"sequences": 2, "row": 1}),
        ((3, 1, 4), {"state": "p1.state"}),
        ((3, 1, 4), {"values": ()}),
        ((3, 1, 4), {"values": (TensorSpec("p2.state", "float16", (3, 1, 4)),)}),
        ((3, 1, 4), {"values": (TensorSpec("p2.state", "float32", (4, 1, 4)),)}),
    ],
)
def test_rows_that_do_not_fit_the_state(shape: tuple[int, ...], changes: dict[str, Any]) -> None:
    end = receiver()
    with pytest.raises(RunError) as caught:
        end.came(shape=shape, **changes)
    assert caught.value.cause == "refused"


def test_later_steps_of_the_same_change() -> None:
    """What has come stays; the same steps again are asked for again, in case the answer was lost."""
    end = receiver()
    end.came(end=3)
    assert end.transfer.done
    assert questions(end.begin(Reached(40, 0, 4))) == [(3, 0, 0)]
    assert questions(end.begin(Reached(40, 0, 4))) == [(3, 0, 0)]


def test_another_change_begins_anew() -> None:
    end = receiver()
    end.came()
    assert questions(end.begin(Reached(40, 0, 3), epoch=2)) == [(0, 0, 0)]
    assert list(end.transfer.held()) == []
    assert only(Reset, end.came(epoch=2)) != [], "nobody knows what became of the slot"


def test_a_slot_that_begins_anew_forgets_its_rows() -> None:
    end = receiver()
    end.came()
    end.transfer.reset(1)
    assert list(end.transfer.held()) == [Held(40, "p2", 1)]
    end.transfer.reset(0)
    assert list(end.transfer.held()) == []
    assert end.transfer.done


# -- the sending end


def owner(steps: int = 1, *ends: tuple[int, ...], max_batch: int = 1, prompt_chunk: int | None = None) -> End:
    """Device b, which runs p1, with request 40."""
    end = End("b", role_of("b", max_batch, prompt_chunk))
    end.open(steps, *(ends or ((3,),)))
    return end


def reads(actions: list[Action]) -> list[tuple[int, int, int]]:
    """(sequence, begin, end) of each."""
    return [(read.row, read.begin, read.end) for read in only(ReadRows, actions)]


def answered(end: End, count: int = 3) -> Rows:
    (send,) = only(Send, end.transfer.read(np.zeros((count, 1, 4), np.float32)))
    assert send.origin == ROUTE
    assert isinstance(send.message, Rows)
    return send.message


def test_a_question_for_all_steps() -> None:
    end = owner(4)
    assert reads(list(end.transfer.wanted(ROUTE, want()))) == [(0, 0, 6)]
    answer = answered(end, 6)
    assert (answer.begin, answer.end, answer.part, answer.parts, answer.position) == (0, 4, 0, 1, 0)
    assert answer.values == (TensorSpec("p1.state", "float32", (6, 1, 4)),)


@pytest.mark.parametrize(
    ("begin", "end", "rows"), [(1, 0, (0, 3, 6)), (1, 2, (0, 3, 4)), (2, 9, (0, 4, 6)), (0, 1, (0, 0, 3))]
)
def test_a_question_for_some_steps(begin: int, end: int, rows: tuple[int, int, int]) -> None:
    """They wrote the rows between two positions."""
    assert reads(list(owner(4).transfer.wanted(ROUTE, want(begin=begin, end=end)))) == [rows]


def test_the_steps_of_a_prompt_in_parts() -> None:
    end = owner(4, (2,), (4,), (7,), prompt_chunk=3)
    assert reads(list(end.transfer.wanted(ROUTE, want(begin=1, end=3)))) == [(0, 2, 7)]
    assert reads(list(end.transfer.wanted(ROUTE, want(begin=2)))) == [(0, 4, 8)]


def test_every_sequence_is_a_part() -> None:
    """They are as long as they are, not as long as the longest."""
    end = owner(2, (3, 1), max_batch=2)
    assert reads(list(end.transfer.wanted(ROUTE, want()))) == [(0, 0, 4)]
    assert answered(end).parts == 2
    assert reads(list(end.transfer.wanted(ROUTE, want(end=2, part=1)))) == [(1, 0, 2)]
    assert (answered(end).part, answered_twice(end)) == (1, False)


def answered_twice(end: End) -> bool:
    """Whether there is another answer whose rows are being read."""
    return bool(end.transfer._reading)


def test_a_part_has_at_most_256_kib() -> None:
    wide = State("p1.state", "s", "s.out", "float32", ("batch", 2, 24, 4096))
    end = End("b", of_states(role_of("b"), "p1", wide))
    end.open(1, (20,))
    parts = [reads(list(end.transfer.wanted(ROUTE, want(end=1, part=part)))) for part in range(4)]
    assert parts == [[(0, 0, 8)], [(0, 8, 16)], [(0, 16, 20)], []], "a row has 32 KiB"


def test_steps_that_are_not_over_are_waited_for() -> None:
    end = owner(1)
    assert list(end.transfer.wanted(ROUTE, want(begin=1))) == []
    assert end.transfer.has_waiting
    assert list(end.transfer.stepped()) == []
    assert end.transfer.has_waiting
    end.requests.request(40).steps = 2  # type: ignore[union-attr]
    assert reads(list(end.transfer.stepped())) == [(0, 3, 4)]
    assert not end.transfer.has_waiting


@pytest.mark.parametrize(
    "question",
    [want(begin=1, waits=False), want(request=39), want(submodule="p2")],
    ids=["it stands still", "another request", "another sub-module"],
)
def test_there_is_nothing_to_answer(question: Want) -> None:
    end = owner(1)
    (send,) = only(Send, end.transfer.wanted(ROUTE, question))
    assert isinstance(send.message, Rows)
    assert (send.message.parts, send.message.begin, send.message.values) == (0, question.begin, ())
    assert not end.transfer.has_waiting


def test_a_request_that_ends_while_somebody_waits() -> None:
    end = owner(1)
    list(end.transfer.wanted(ROUTE, want(begin=1)))
    end.requests.close(40)
    (send,) = only(Send, end.transfer.stepped())
    assert isinstance(send.message, Rows)
    assert send.message.parts == 0


def test_a_part_that_does_not_exist_is_ignored() -> None:
    assert list(owner(1).transfer.wanted(ROUTE, want(end=1, part=1))) == []


def test_answers_come_in_the_order_of_the_questions() -> None:
    end = owner(2)
    list(end.transfer.wanted(ROUTE, want(end=1)))
    list(end.transfer.wanted(ROUTE, want(begin=1)))
    first, second = answered(end), answered(end, 1)
    assert (first.begin, second.begin) == (0, 1)


def test_both_ends_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go over whole, whatever the size of a part."""
    monkeypatch.setattr("partc.runtime.core.transfer._PART_BYTES", 2 * 16)
    sender, taker = owner(3, (5,)), End("d")
    taker.link("a")
    store = np.arange(7 * 4, dtype=np.float32).reshape(7, 1, 4)
    found = np.zeros_like(store)
    taker.links._names[b"b"] = "b"
    actions = list(
        taker.transfer.begin(
            Role(taker.role.build, with_d(1)), prepare(with_d(1), Reached(40, 0, 3), holders={"p2": "b"}), 1.0
        )
    )
    while questions_left := [s.message for s in only(Send, actions) if isinstance(s.message, Want)]:
        (question,) = questions_left
        asked = Want(**{**_fields(question), "submodule": "p1"})
        (read,) = only(ReadRows, sender.transfer.wanted(ROUTE, asked))
        (send,) = only(Send, sender.transfer.read(store[read.begin : read.end]))
        answer = Rows(**{**_fields(send.message), "submodule": "p2", "state": "p2.state"})
        actions = list(taker.transfer.came("b", answer, [memoryview(f) for f in send.frames], 2.0))
        for write in only(WriteRows, actions):
            _put(found, write.begin, write.rows)
    assert taker.transfer.done
    np.testing.assert_array_equal(found, store)


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


def _put(found: Array, begin: int, rows: Array) -> None:
    found[begin : begin + len(rows)] = rows
