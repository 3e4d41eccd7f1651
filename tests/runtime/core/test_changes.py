"""Changes of placement at the source, until one begins: each test is a row of the table in `core/source/changes.py`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.messages import Abort, Error, Prepare
from partc.format.placement import seal_placement
from partc.runtime.core.actions import Broken, Hold, Mended, Replaced, Tell
from partc.runtime.core.commands import Send
from partc.runtime.core.source.changes import State
from tests.runtime.core.changing import (
    CLIENT,
    INCARNATION,
    REACHED,
    TICKET,
    answer,
    asked,
    changes_of,
    compiled,
    frames_of,
    greet,
    lose,
    only,
    place,
    restart,
    review,
    standing,
    told,
    wish,
    with_d,
    without_b,
    without_c,
)

STALL = RunError("no progress for 5 s", cause="stalled")

# -- settled


def test_a_ring_that_has_never_stood_waits_for_its_devices() -> None:
    changes = changes_of(without_b())
    greet(changes, "a", 1, 0)
    assert list(changes.review(("b", "c"), (), 0.0)) == []
    assert changes.state is State.SETTLED


def test_settled_a_loss_that_no_placement_makes_good() -> None:
    changes = standing(without_c())
    assert lose(changes, "b") == [Broken(("b",))]
    assert changes.state is State.BROKEN


def test_settled_a_loss_that_a_contingency_makes_good() -> None:
    changes = standing(without_c(), without_b())
    replaced, hold, *rest = lose(changes, "b")
    assert (replaced, hold) == (Replaced(("b",)), Hold(at_once=True))
    assert changes.state is State.PREPARING
    assert asked(rest) == {"a", "c"}
    message = told(Prepare, rest)["c"]
    assert (message.epoch, message.stands_still, message.requests) == (1, True, REACHED)
    assert message.holders == {"p0": "a", "p2": "c"}, "b is gone, and its rows with it"
    assert only(Tell, rest)[0].frames == frames_of(without_b(epoch=1))


def test_a_source_that_begins_anew_calls_nobody_lost() -> None:
    """The others run the placement of a move, in their old lives; they were never away."""
    changes = changes_of(without_b(), without_c())
    greet(changes, "a", 1, 0)
    for device in ("b", "c"):
        greet(changes, device, 1, 3)
    replaced, *_ = changes.review((), REACHED, 0.0)
    assert replaced == Replaced(())


def test_settled_a_return_without_memory() -> None:
    """The same placement, under a higher epoch; the device that has forgotten holds no rows."""
    changes = standing()
    replaced, _, *rest = restart(changes, "b")
    assert replaced == Replaced(("b",))
    assert asked(rest) == {"a", "b", "c"}
    assert told(Prepare, rest)["b"].holders == {"p0": "a", "p2": "c"}
    assert only(Tell, rest)[0].frames == frames_of(compiled(epoch=1))


def test_settled_a_return_with_memory() -> None:
    changes = standing()
    changes.members.gone("b")
    greet(changes, "b", INCARNATION["b"], 0)
    assert review(changes) == []
    assert changes.state is State.SETTLED


def test_settled_nothing_is_to_be_remembered() -> None:
    """No request is in flight, so a new life that has the placement in force can take its place at once."""
    changes = standing()
    changes.members.gone("b")
    greet(changes, "b", 9, 0)
    assert list(changes.review((), (), 1.0)) == []
    assert changes.members.remembers("b", 9)


def test_settled_a_device_that_had_no_commit() -> None:
    """Its incarnation is the same, but it does not know the placement in force, even if nothing is in flight."""
    changes = standing()
    restart(changes, "b")
    answer(changes, "a", "b", "c")
    changes.members.gone("c")
    greet(changes, "c", INCARNATION["c"], epoch=0)
    actions = list(changes.review((), (), 3.0))
    assert asked(actions) == {"a", "b", "c"}
    assert told(Prepare, actions)["a"].epoch == 2


def test_settled_a_link_that_is_away_alone_is_waited_for() -> None:
    changes = standing(without_b())
    assert review(changes, absent=("b",)) == []
    assert changes.state is State.SETTLED


def test_settled_a_wish() -> None:
    """Requests run on while it is prepared; the device that leaves takes part, since it has rows."""
    changes = standing()
    actions = wish(changes)
    assert changes.state is State.PREPARING
    assert only(Hold, actions) == []
    assert asked(actions) == {"a", "b", "c"}
    message = told(Prepare, actions)["c"]
    assert not message.stands_still
    assert message.holders == {"p0": "a", "p1": "b", "p2": "c"}


def test_a_wish_waits_for_a_ring_that_stands() -> None:
    changes = standing()
    assert list(changes.place(CLIENT, place(), without_b(), 1.0)) == []
    assert review(changes, absent=("c",)) == []
    assert asked(review(changes)) == {"a", "b", "c"}


def test_a_wish_that_waits_when_a_device_is_lost_is_refused() -> None:
    changes = standing()
    assert list(changes.place(CLIENT, place(), without_b(), 1.0)) == []
    assert review(changes, absent=("c",)) == []
    (refusal,) = only(Send, lose(changes, "c"))
    assert isinstance(refusal.message, Error)
    assert (refusal.message.problem.cause, refusal.message.problem.message) == ("lost-peer", "c was lost")
    assert only(Tell, restart(changes, "c"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"plan_id": "0" * 64}, "not one of this build"),
        ({"source": "c"}, "not one of this build, with this source"),
        ({"ring": ("a", "c", "d")}, "d is not connected"),
    ],
)
def test_a_wish_that_cannot_be(changed: dict[str, object], message: str) -> None:
    changes = standing()
    wanted = seal_placement(replace(without_b(), **changed))
    (refusal,) = only(Send, changes.place(CLIENT, place(), wanted, 1.0))
    assert refusal.origin == CLIENT
    assert isinstance(refusal.message, Error)
    assert (refusal.message.ticket, message in refusal.message.problem.message) == (TICKET, True)
    assert review(changes) == []


def test_one_change_at_a_time() -> None:
    changes = standing()
    wish(changes)
    (refusal,) = only(Send, changes.place(CLIENT, place(), without_c(), 1.0))
    assert isinstance(refusal.message, Error)
    assert "another change is under way" in refusal.message.problem.message


def test_a_request_that_stands_still_though_everybody_answers() -> None:
    changes = standing()
    actions = list(changes.begin_anew(STALL, REACHED, 1.0))
    assert actions[0] == Hold(at_once=True)
    assert asked(actions) == {"a", "b", "c"}
    assert told(Prepare, actions)["a"].holders == {"p0": "a", "p1": "b", "p2": "c"}, "nobody has forgotten"
    assert list(changes.begin_anew(STALL, REACHED, 1.0)) == [], "a change is under way"


@pytest.mark.parametrize("stopping", [False, True])
def test_a_request_that_stands_still_during_a_move(stopping: bool) -> None:
    """What it waits for may be lost for good, and the move would wait for the end of its step."""
    changes = standing()
    wish(changes)
    if stopping:
        answer(changes, "a", "b", "c")
        assert changes.state is State.STOPPING
    actions = list(changes.begin_anew(STALL, REACHED, 1.0))
    assert set(told(Abort, actions)) == {"a", "b", "c"}
    (refusal,) = only(Send, actions)
    assert isinstance(refusal.message, Error)
    assert refusal.message.problem.message == STALL.message
    assert asked(actions) == {"a", "b", "c"}


# -- broken


def test_broken_its_return_with_memory() -> None:
    changes = standing()
    lose(changes, "b")
    greet(changes, "b", INCARNATION["b"], 0)
    assert review(changes, absent=("b",)) == [], "it is not ready yet"
    assert review(changes) == [Mended()]
    assert changes.state is State.SETTLED


def test_broken_its_return_without_memory() -> None:
    changes = standing()
    lose(changes, "b")
    greet(changes, "b", 9, 0)
    actions = review(changes)
    assert actions[:2] == [Replaced(("b",)), Hold(at_once=True)]
    assert changes.state is State.PREPARING


def test_broken_another_device_makes_a_placement_possible() -> None:
    changes = standing(with_d())
    assert lose(changes, "c") == [Broken(("c",))]
    greet(changes, "d", 4, 0)
    assert asked(review(changes)) == {"a", "b", "d"}
