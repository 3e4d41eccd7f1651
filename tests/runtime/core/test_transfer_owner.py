"""Rows on their way from the device that has them: what it answers, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from partc.format.build import State
from partc.format.dtypes import Array
from partc.format.message_parts import Reached, TensorSpec
from partc.format.messages import Rows, Want
from partc.format.placement import seal_placement
from partc.format.role import Role
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import ReadRows, Send, WriteRows
from tests.runtime.core.changing import only, prepare, role_of, with_d
from tests.runtime.core.transferring import End, of_states, want

ROUTE = b"route of c"


def owner(steps: int = 1, *ends: tuple[int, ...], max_batch: int = 1, prompt_chunk: int | None = None) -> End:
    """Device b, which runs p1, with request 40."""
    end = End("b", role_of("b", max_batch, prompt_chunk))
    end.open(steps, *(ends or ((3,),)))
    return end


def reads(actions: list[Action]) -> list[tuple[int, int, int]]:
    """(sequence, begin, end) of each."""
    return [(read.row, read.begin, read.end) for read in only(ReadRows, actions)]


def answered(end: End, count: int = 3) -> Rows:
    (send,) = only(Send, end.transfer.offers.read(np.zeros((count, 1, 4), np.float32)))
    assert send.origin == ROUTE
    assert isinstance(send.message, Rows)
    return send.message


def test_a_question_for_all_steps() -> None:
    end = owner(4)
    assert reads(list(end.transfer.offers.wanted("c", ROUTE, want()))) == [(0, 0, 6)]
    answer = answered(end, 6)
    assert (answer.begin, answer.end, answer.part, answer.parts, answer.position) == (0, 4, 0, 1, 0)
    assert answer.values == (TensorSpec("p1.state", "float32", (6, 1, 4)),)


@pytest.mark.parametrize(
    ("begin", "end", "rows"), [(1, 0, (0, 3, 6)), (1, 2, (0, 3, 4)), (2, 9, (0, 4, 6)), (0, 1, (0, 0, 3))]
)
def test_a_question_for_some_steps(begin: int, end: int, rows: tuple[int, int, int]) -> None:
    """They wrote the rows between two positions."""
    assert reads(list(owner(4).transfer.offers.wanted("c", ROUTE, want(begin=begin, end=end)))) == [rows]


def test_the_steps_of_a_prompt_in_parts() -> None:
    end = owner(4, (2,), (4,), (7,), prompt_chunk=3)
    assert reads(list(end.transfer.offers.wanted("c", ROUTE, want(begin=1, end=3)))) == [(0, 2, 7)]
    assert reads(list(end.transfer.offers.wanted("c", ROUTE, want(begin=2)))) == [(0, 4, 8)]


def test_every_sequence_is_a_part() -> None:
    """They are as long as they are, not as long as the longest."""
    end = owner(2, (3, 1), max_batch=2)
    assert reads(list(end.transfer.offers.wanted("c", ROUTE, want()))) == [(0, 0, 4)]
    assert answered(end).parts == 2
    assert reads(list(end.transfer.offers.wanted("c", ROUTE, want(end=2, part=1)))) == [(1, 0, 2)]
    assert answered(end).part == 1


def test_a_part_has_at_most_256_kib() -> None:
    wide = State("p1.state", "s", "s.out", "float32", ("batch", 2, 24, 4096))
    end = End("b", of_states(role_of("b"), "p1", wide))
    end.open(1, (20,))
    parts = [reads(list(end.transfer.offers.wanted("c", ROUTE, want(end=1, part=part)))) for part in range(4)]
    assert parts == [[(0, 0, 8)], [(0, 8, 16)], [(0, 16, 20)], []], "a row has 32 KiB"


def test_steps_that_are_not_over_are_waited_for() -> None:
    end = owner(1)
    assert list(end.transfer.offers.wanted("c", ROUTE, want(begin=1))) == []
    assert end.transfer.offers.has_waiting
    assert list(end.transfer.offers.stepped()) == []
    assert end.transfer.offers.has_waiting
    end.requests.request(40).steps = 2  # type: ignore[union-attr]
    assert reads(list(end.transfer.offers.stepped())) == [(0, 3, 4)]
    assert not end.transfer.offers.has_waiting


def test_a_device_has_one_question_that_waits_for_a_sub_module() -> None:
    end = owner(1)
    for begin in (1, 1, 2):
        assert list(end.transfer.offers.wanted("c", ROUTE, want(begin=begin))) == []
    end.requests.request(40).steps = 3  # type: ignore[union-attr]
    assert reads(list(end.transfer.offers.stepped())) == [(0, 4, 5)]


def test_questions_beyond_what_can_be_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partc.runtime.core.device.offers._MOST_READING", 2)
    end = owner(1)
    answers = [reads(list(end.transfer.offers.wanted("c", ROUTE, want(end=1)))) for _ in range(3)]
    assert answers == [[(0, 0, 3)], [(0, 0, 3)], []]
    answered(end)
    assert reads(list(end.transfer.offers.wanted("c", ROUTE, want(end=1)))) == [(0, 0, 3)]


@pytest.mark.parametrize(
    "question",
    [want(begin=1, waits=False), want(request=39), want(submodule="p2")],
    ids=["it stands still", "another request", "another sub-module"],
)
def test_there_is_nothing_to_answer(question: Want) -> None:
    end = owner(1)
    (send,) = only(Send, end.transfer.offers.wanted("c", ROUTE, question))
    assert isinstance(send.message, Rows)
    assert (send.message.parts, send.message.begin, send.message.values) == (0, question.begin, ())
    assert not end.transfer.offers.has_waiting


def test_a_request_that_ends_while_somebody_waits() -> None:
    end = owner(1)
    list(end.transfer.offers.wanted("c", ROUTE, want(begin=1)))
    end.requests.close(40)
    (send,) = only(Send, end.transfer.offers.stepped())
    assert isinstance(send.message, Rows)
    assert send.message.parts == 0


def test_a_part_that_does_not_exist_is_ignored() -> None:
    assert list(owner(1).transfer.offers.wanted("c", ROUTE, want(end=1, part=1))) == []


def test_answers_come_in_the_order_of_the_questions() -> None:
    end = owner(2)
    list(end.transfer.offers.wanted("c", ROUTE, want(end=1)))
    list(end.transfer.offers.wanted("c", ROUTE, want(begin=1)))
    first, second = answered(end), answered(end, 1)
    assert (first.begin, second.begin) == (0, 1)


def test_both_ends_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go over whole, whatever the size of a part."""
    monkeypatch.setattr("partc.runtime.core.device.rows._PART_BYTES", 2 * 16)
    sender, taker = owner(3, (5,)), End("d")
    taker.link("a")
    store = np.arange(7 * 4, dtype=np.float32).reshape(7, 1, 4)
    found = np.zeros_like(store)
    taker.links.callers._names[b"b"] = "b"
    actions = list(
        taker.transfer.begin(
            Role(taker.role.build, with_d(1)), prepare(with_d(1), Reached(40, 0, 3), holders={"p2": "b"}), 1.0
        )
    )
    while questions_left := [s.message for s in only(Send, actions) if isinstance(s.message, Want)]:
        (question,) = questions_left
        asked = Want(**{**_fields(question), "submodule": "p1"})
        (read,) = only(ReadRows, sender.transfer.offers.wanted("c", ROUTE, asked))
        (send,) = only(Send, sender.transfer.offers.read(store[read.begin : read.end]))
        answer = Rows(**{**_fields(send.message), "submodule": "p2", "state": "p2.state"})
        actions = list(taker.transfer.came("b", answer, [memoryview(f) for f in send.frames], 2.0))
        for write in only(WriteRows, actions):
            _put(found, write.begin, write.rows)
    assert taker.transfer.fetches.done
    np.testing.assert_array_equal(found, store)


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}


def _put(found: Array, begin: int, rows: Array) -> None:
    found[begin : begin + len(rows)] = rows


# -- copies


@pytest.mark.parametrize(
    ("steps", "ends", "rows"),
    [(5, (3,), []), (6, (3,), [(0, 0, 8)]), (1, (9,), [(0, 0, 9)]), (4, (2, 5), [(0, 0, 5), (1, 0, 8)])],
    ids=["too few", "enough", "a prompt", "the longest of a batch counts"],
)
def test_rows_for_a_copy(steps: int, ends: tuple[int, ...], rows: list[tuple[int, int, int]]) -> None:
    """They go out eight at a time: a message takes as long with one."""
    end = mirrored(steps, ends)
    assert reads(list(end.transfer.offers.mirror())) == rows
    assert reads(list(end.transfer.offers.mirror())) == [], "they are on their way"


def test_further_rows_for_a_copy() -> None:
    end = mirrored(6, (3,))
    list(end.transfer.offers.mirror())
    end.open(13, (3,))
    assert reads(list(end.transfer.offers.mirror())) == [], "seven more"
    end.open(14, (3,))
    assert reads(list(end.transfer.offers.mirror())) == [(0, 8, 16)]


def mirrored(steps: int, ends: tuple[int, ...]) -> End:
    """Device b with request 40; c keeps a copy of the rows of p1."""
    role = role_of("b", max_batch=len(ends))
    end = End("b", Role(role.build, seal_placement(replace(role.placement, mirrors={"p1": "c"}))))
    end.open(steps, ends)
    list(end.link("c"))
    return end
