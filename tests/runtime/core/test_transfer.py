"""Rows on their way to a device: which it asks for, which it takes, and what is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.build import State
from partc.format.message_parts import Held, Reached, TensorSpec
from partc.format.messages import Want
from partc.format.placement import seal_placement
from partc.format.role import Role
from partc.runtime.core.commands import Connect, Reset, Send, WriteRows
from tests.runtime.core.changing import PATIENCE_S, only, role_of
from tests.runtime.core.transferring import End, of_states, questions, rows


def receiver(**options: Any) -> End:
    """Device b, which asks c for the rows of p2 of request 40."""
    end = End("b")
    end.link("c")
    known = 3 if options.get("stands_still") else 0
    assert questions(end.begin(Reached(40, 0, 3), **options)) == [(0, known, 0)]
    return end


def rewriting(*states: State) -> End:
    """Device b, which is to run p2 of c, with a state that steps rewrite."""
    whole = State("s", "s.in", "s.out", "float32", ("batch", 3, 4), kind="whole")
    end = End("b", of_states(role_of("b"), "p2", whole, *states))
    end.link("c")
    return end


def test_rows_of_all_steps() -> None:
    """Parts come one after another, and the watermark rises with the last part of some steps."""
    end = receiver()
    actions = end.came(parts=2)
    assert only(Reset, actions) == [Reset(0, {"batch": 1, "sequence": 24})]
    assert questions(actions) == [(0, 1, 1)]
    assert list(end.transfer.fetches.held()) == []
    actions = end.came(part=1, parts=2, position=1, shape=(2, 1, 4))
    assert only(Reset, actions) == [], "the slot has begun anew already"
    assert questions(actions) == [(1, 0, 0)]
    assert list(end.transfer.fetches.held()) == [Held(40, "p2", 1)]
    (write,) = only(WriteRows, end.came(begin=1, end=3, position=3, shape=(2, 1, 4)))
    assert (write.submodule, write.slot, write.state, write.row, write.begin) == ("p2", 0, "p2.state", 0, 3)
    assert write.rows.shape == (2, 1, 4)
    assert end.transfer.fetches.done
    assert list(end.transfer.fetches.held()) == [Held(40, "p2", 3)]


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
    assert end.transfer.fetches.done
    assert list(end.transfer.fetches.held()) == []


def test_a_request_in_its_first_step_has_no_rows() -> None:
    end = End("b")
    end.link("c")
    assert end.begin(Reached(40, 0, 0)) == []
    assert end.transfer.fetches.done


def test_a_sub_module_without_states_has_all_rows() -> None:
    end = End("b", of_states(role_of("b"), "p2"))
    assert end.begin(Reached(40, 0, 3)) == []
    assert Held(40, "p2", 3) in list(end.transfer.fetches.held())


def test_a_state_that_steps_rewrite_does_not_come_while_they_do() -> None:
    end = rewriting()
    assert end.begin(Reached(40, 0, 3)) == []
    assert end.transfer.fetches.done
    assert list(end.transfer.fetches.held()) == []


def test_a_state_that_steps_rewrite_comes_when_requests_stand_still() -> None:
    """A single row, of the very step that is over."""
    end = rewriting()
    end.begin(Reached(40, 0, 3))
    assert questions(end.begin(Reached(40, 0, 3), stands_still=True)) == [(0, 0, 0)]
    assert not end.transfer.fetches.done
    (write,) = only(WriteRows, end.came(state="s", end=3, shape=(1, 1, 12)))
    assert (write.state, write.begin, write.rows.shape) == ("s", 0, (1, 1, 12))
    assert end.transfer.fetches.done
    assert list(end.transfer.fetches.held()) == [Held(40, "p2", 3, True)]
    assert end.came(state="s", begin=3, end=3, shape=(1, 1, 12)) == [], "it is there"


def test_rows_come_first_and_what_steps_rewrite_behind_them() -> None:
    """The rows of the steps so far come while further ones follow; they count once the rest is there."""
    end = rewriting(State("p2.state", "r", "r.out", "float32", ("batch", 24, 4)))
    assert questions(end.begin(Reached(40, 0, 2))) == [(0, 0, 0)]
    end.came(end=2, shape=(4, 1, 4))
    assert end.transfer.fetches.done
    assert list(end.transfer.fetches.held()) == []
    assert questions(end.begin(Reached(40, 0, 3), stands_still=True)) == [(2, 0, 0)]
    end.came(begin=2, end=3, parts=2, position=4, shape=(1, 1, 4))
    assert list(end.transfer.fetches.held()) == []
    assert end.came(begin=2, end=3, part=1, parts=2, state="s", shape=(1, 1, 12))
    assert list(end.transfer.fetches.held()) == [Held(40, "p2", 3, True)]


def test_an_answer_without_what_steps_rewrite_is_not_enough() -> None:
    """It was for a question from before requests stood still; the rest is asked for."""
    end = rewriting(State("p2.state", "r", "r.out", "float32", ("batch", 24, 4)))
    end.begin(Reached(40, 0, 3), stands_still=True)
    assert questions(end.came(end=3)) == [(3, 0, 0)]
    assert list(end.transfer.fetches.held()) == []


@pytest.mark.parametrize("changes", [{"position": 1}, {"shape": (2, 1, 12)}, {"shape": (1, 3, 4)}])
def test_a_state_that_steps_rewrite_is_one_row(changes: dict[str, Any]) -> None:
    end = rewriting()
    end.begin(Reached(40, 0, 3), stands_still=True)
    with pytest.raises(RunError) as caught:
        end.came(**{"state": "s", "end": 3, "shape": (1, 1, 12), **changes})
    assert caught.value.cause == "refused"


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
    assert end.transfer.fetches.due == 2.0 + PATIENCE_S
    end.transfer.fetches.look(6.9)
    assert not end.transfer.fetches.done
    end.transfer.fetches.look(7.0)
    assert end.transfer.fetches.done
    assert end.transfer.fetches.due is None
    assert list(end.transfer.fetches.held()) == [Held(40, "p2", 1)], "what has come counts"


def test_there_are_no_more() -> None:
    end = receiver(stands_still=True)
    end.came()
    list(end.transfer.came("c", rows(begin=1, end=1, parts=0), (), 3.0))
    assert end.transfer.fetches.done
    assert list(end.transfer.fetches.held()) == [Held(40, "p2", 1)]


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
    assert not end.transfer.fetches.done


def test_rows_that_come_twice() -> None:
    end = receiver()
    end.came()
    assert end.came() == []


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ((3, 1, 5), {}),
        ((3, 4, 1), {}),
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
    assert end.transfer.fetches.done
    assert questions(end.begin(Reached(40, 0, 4))) == [(3, 0, 0)]
    assert questions(end.begin(Reached(40, 0, 4))) == [(3, 0, 0)]


def test_another_change_begins_anew() -> None:
    end = receiver()
    end.came()
    assert questions(end.begin(Reached(40, 0, 3), epoch=2)) == [(0, 0, 0)]
    assert list(end.transfer.fetches.held()) == []
    assert only(Reset, end.came(epoch=2)) != [], "nobody knows what became of the slot"


def test_a_slot_that_begins_anew_forgets_its_rows() -> None:
    end = receiver()
    end.came()
    end.transfer.fetches.reset(1)
    assert list(end.transfer.fetches.held()) == [Held(40, "p2", 1)]
    end.transfer.fetches.reset(0)
    assert list(end.transfer.fetches.held()) == []
    assert end.transfer.fetches.done


# -- copies


@pytest.mark.parametrize(("step", "written"), [(0, 0), (1, 3)], ids=["no step is over", "one is"])
def test_rows_of_a_copy_are_written_as_far_as_steps_are_over(step: int, written: int) -> None:
    """Before the first step is over, the slot may still be that of another request."""
    role = role_of("d")
    end = End("d", Role(role.build, seal_placement(replace(role.placement, mirrors={"p2": "d"}))))
    of_first_step = rows(TensorSpec("p2.state", "float32", (3, 1, 4)), epoch=0)
    end.transfer.copies.take("c", of_first_step, np.ones((3, 1, 4), np.float32))
    actions = end.begin(Reached(40, 0, step), holders={"p2": "d"})
    assert [len(write.rows) for write in only(WriteRows, actions)] == [written] * bool(written)
    assert len(only(Reset, actions)) == bool(written)
    assert end.transfer.fetches.done
