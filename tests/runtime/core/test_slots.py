from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from partc.format.message_parts import Reuse
from partc.runtime.core.source.slots import LEAST_REUSED, Slots

LONG = tuple(range(40))


def test_slots_that_have_no_rows_are_taken_as_they_were_left() -> None:
    slots = Slots(3)
    assert [slots.take(()) for _ in range(3)] == [(0, None), (1, None), (2, None)]
    assert not slots.any_free
    slots.give(1, 7, ())
    slots.give(0, 8, ())
    assert slots.take(LONG) == (0, None)


def test_a_conversation_finds_its_slot() -> None:
    slots = Slots(2)
    slots.take(())
    slots.take(())
    slots.give(0, 7, LONG)
    slots.give(1, 8, LONG[::-1])
    assert slots.take((*LONG, 1, 2)) == (0, Reuse(7, 40))
    assert slots.take((*LONG, 1, 2)) == (1, None), "what is left has other rows"


def test_another_conversation_with_the_same_beginning_takes_an_empty_slot() -> None:
    slots = Slots(2)
    slots.take(())
    slots.give(0, 7, LONG)
    short = (*LONG[:18], 99, 98)
    assert slots.take(short) == (1, None)
    assert slots.take(short) == (0, Reuse(7, 18)), "no other is free"


def test_the_oldest_gives_way_and_nothing_outlives_a_change() -> None:
    slots = Slots(2)
    slots.take(())
    slots.take(())
    slots.give(1, 7, LONG)
    slots.give(0, 8, LONG[::-1])
    assert slots.take((5,) * 30) == (1, None)
    slots.forget()
    assert slots.take(LONG[::-1]) == (0, None)


TOKENS = st.lists(st.integers(0, 1), max_size=40)


@given(st.lists(st.tuples(TOKENS, TOKENS), max_size=12))
def test_rows_that_are_kept_are_those_of_the_prompt(turns: Sequence[tuple[list[int], list[int]]]) -> None:
    """Never more than all but the last token, never those of another request than the slot's last."""
    slots = Slots(3)
    left: dict[int, tuple[int, list[int]]] = {}
    for number, (prompt, answer) in enumerate(turns):
        slot, reuse = slots.take(prompt)
        if reuse is not None:
            request, tokens = left[slot]
            assert reuse.request == request
            assert LEAST_REUSED <= reuse.rows < len(prompt)
            assert tokens[: reuse.rows] == prompt[: reuse.rows]
        left[slot] = number, prompt + answer
        slots.give(slot, number, prompt + answer)
