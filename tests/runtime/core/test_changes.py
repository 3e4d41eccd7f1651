"""Changes of placement at the source: each test is a row of the table in `core/changes.py`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.message_parts import Held, Problem
from partc.format.messages import Abort, Error, Ping, Placed, Prepare
from partc.format.placement import seal_placement
from partc.runtime.core.actions import Action, Adopt, Broadcast, Broken, Hold, Mended, Replaced, Tell
from partc.runtime.core.changes import Changes, State, placed
from partc.runtime.core.commands import Send
from tests.runtime.core.changing import (
    CLIENT,
    PATIENCE_S,
    REACHED,
    TICKET,
    changes_of,
    compiled,
    frames_of,
    greet,
    only,
    place,
    prepared,
    standing,
    told,
    with_d,
    without_b,
    without_c,
)

INCARNATION = {"a": 1, "b": 2, "c": 3}


def review(changes: Changes, now: float = 1.0, absent: tuple[str, ...] = ()) -> list[Action]:
    """What follows while a request is in flight."""
    return list(changes.review(absent, REACHED, now))


def lose(changes: Changes, device: str) -> list[Action]:
    changes.gone(device)
    return review(changes, absent=(device,))


def restart(changes: Changes, device: str, incarnation: int = 9, epoch: int = 0) -> list[Action]:
    """A device is back without its memory."""
    changes.gone(device)
    greet(changes, device, incarnation, epoch)
    return review(changes)


def wish(changes: Changes, now: float = 1.0) -> list[Action]:
    """A client asks for the placement of a and c."""
    assert list(changes.place(CLIENT, place(), without_b(), now)) == []
    return review(changes, now)


def answer(
    changes: Changes, *devices: str, epoch: int = 1, at_rest: bool = False, now: float = 2.0
) -> list[Action]:
    """Participants are prepared, with the incarnations that they have."""
    return [
        action
        for device in devices
        for action in changes.prepared(
            device, prepared(epoch, changes.members[device].incarnation), at_rest, now
        )
    ]


def asked(actions: list[Action]) -> set[str]:
    """The devices that PREPARE goes to."""
    return set(told(Prepare, actions))


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
    changes.gone("b")
    greet(changes, "b", INCARNATION["b"], 0)
    assert review(changes) == []
    assert changes.state is State.SETTLED


def test_settled_nothing_is_to_be_remembered() -> None:
    """No request is in flight, so a new life that has the placement in force can take its place at once."""
    changes = standing()
    changes.gone("b")
    greet(changes, "b", 9, 0)
    assert list(changes.review((), (), 1.0)) == []
    assert changes.remembers("b", 9)


def test_settled_a_device_that_had_no_commit() -> None:
    """Its incarnation is the same, but it does not know the placement in force, even if nothing is in flight."""
    changes = standing()
    restart(changes, "b")
    answer(changes, "a", "b", "c")
    changes.gone("c")
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
    actions = list(changes.begin_anew(REACHED, 1.0))
    assert actions[0] == Hold(at_once=True)
    assert asked(actions) == {"a", "b", "c"}
    assert told(Prepare, actions)["a"].holders == {"p0": "a", "p1": "b", "p2": "c"}, "nobody has forgotten"
    assert list(changes.begin_anew(REACHED, 1.0)) == [], "a change is under way"


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


# -- preparing


def test_preparing_all_are_prepared_for_what_makes_good_a_loss() -> None:
    """They have stood still already, so COMMIT follows."""
    changes = standing()
    restart(changes, "b")
    assert answer(changes, "a", "c") == []
    (adopt,) = changes.prepared("b", prepared(1, 9, Held(40, "p1", 2)), False, 4.0)
    assert isinstance(adopt, Adopt)
    assert adopt.role.placement == compiled(epoch=1)
    assert (adopt.participants, adopt.have) == ({"a": 1, "b": 9, "c": 3}, {("b", 40, "p1"): 2})
    assert (adopt.wish, adopt.stopped_s) == (None, 3.0)
    assert changes.state is State.SETTLED
    assert changes.remembers("b", 9)


def test_preparing_all_are_prepared_for_a_wish() -> None:
    changes = standing()
    wish(changes)
    assert answer(changes, "a", "b", "c") == [Hold(at_once=False)]
    assert changes.state is State.STOPPING


def test_preparing_all_are_prepared_and_nothing_runs() -> None:
    changes = standing()
    wish(changes)
    (adopt,) = answer(changes, "a", "b", "c", at_rest=True)
    assert isinstance(adopt, Adopt)
    assert adopt.stopped_s == 0.0
    assert changes.state is State.SETTLED


@pytest.mark.parametrize(("epoch", "incarnation"), [(2, 9), (0, 9), (1, 2)])
def test_preparing_answers_to_something_else_are_ignored(epoch: int, incarnation: int) -> None:
    """Of another change, or of another life of the device."""
    changes = standing()
    restart(changes, "b")
    answer(changes, "a", "c")
    assert list(changes.prepared("b", prepared(epoch or 5, incarnation), False, 2.0)) == []
    assert changes.state is State.PREPARING


def test_preparing_a_participant_is_lost() -> None:
    """The change is given up, and another one begins, with a higher epoch."""
    changes = standing(without_c())
    restart(changes, "b")
    actions = lose(changes, "c")
    assert set(told(Abort, actions)) == {"a", "b", "c"}
    assert {abort.epoch for abort in told(Abort, actions).values()} == {1}
    assert only(Replaced, actions) == [Replaced(("c",))], "b is lost once only"
    assert {message.epoch for message in told(Prepare, actions).values()} == {2}
    assert only(Tell, actions)[-1].frames == frames_of(without_c(epoch=2))


def test_preparing_a_participant_has_another_life() -> None:
    changes = standing()
    restart(changes, "b")
    actions = restart(changes, "b", incarnation=10)
    assert told(Prepare, actions)["b"].epoch == 2
    assert only(Replaced, actions) == [Replaced(("b",))], "it is lost again"


def test_preparing_another_loss_leaves_no_placement() -> None:
    """Whatever was cut short goes on only with another change, even if everything is back as it was."""
    changes = standing()
    list(changes.begin_anew(REACHED, 1.0))
    actions = lose(changes, "c")
    assert set(told(Abort, actions)) == {"a", "b", "c"}
    assert actions[-1] == Broken(("c",))
    greet(changes, "c", INCARNATION["c"], 0)
    assert asked(review(changes)) == {"a", "b", "c"}


def test_preparing_a_device_that_is_no_participant_does_not_matter() -> None:
    changes = standing(without_b())
    lose(changes, "b")
    greet(changes, "d", 4, 0)
    changes.gone("d")
    assert review(changes) == []


def test_preparing_a_participant_cannot() -> None:
    """The client of a wish is told why; the ring goes on."""
    changes = standing()
    wish(changes)
    problem = Problem("bug", "out of memory", "c")
    *aborts, refusal = changes.prepared("c", prepared(1, 3, problem=problem), False, 2.0)
    assert set(told(Abort, aborts)) == {"a", "b", "c"}
    assert isinstance(refusal, Send)
    assert isinstance(refusal.message, Error)
    assert refusal.message.problem.message == "out of memory"
    assert changes.state is State.SETTLED
    assert review(changes) == []
    assert changes.prepared("a", prepared(1, 1), False, 2.0) is not None


def test_a_placement_that_a_device_could_not_prepare_is_not_tried_again() -> None:
    changes = standing(without_b())
    lose(changes, "b")
    problem = Problem("bug", "out of memory", "c")
    list(changes.prepared("c", prepared(1, 3, problem=problem), False, 2.0))
    assert review(changes, absent=("b",)) == [Broken(("b",))]
    greet(changes, "c", 4)
    assert told(Prepare, review(changes, absent=("b",))), "a device that has started again may be able to"


# -- stopping and closing


def stopping() -> Changes:
    changes = standing()
    wish(changes, now=1.0)
    answer(changes, "a", "b", "c", now=2.0)
    return changes


def test_stopping_all_are_at_rest() -> None:
    """PREPARE again, with the steps at which they stand."""
    changes = stopping()
    assert changes.is_stopping
    later = (replace(REACHED[0], step=5),)
    actions = list(changes.at_rest(later))
    assert changes.state is State.CLOSING
    assert asked(actions) == {"a", "b", "c"}
    message = told(Prepare, actions)["c"]
    assert (message.epoch, message.requests) == (1, later)


def test_at_rest_without_a_stop() -> None:
    changes = standing()
    wish(changes)
    assert list(changes.at_rest(REACHED)) == []
    assert changes.state is State.PREPARING


def test_stopping_a_participant_is_lost() -> None:
    """Nothing was cut short: the placement in force goes on where it can."""
    changes = stopping()
    greet(changes, "c", INCARNATION["c"], 0)
    changes.stalled(["c"])
    actions = review(changes)
    assert set(told(Abort, actions)) == {"a", "b", "c"}
    assert len(only(Send, actions)) == 1, "the client is told"
    assert actions[-1] == Broken(("c",))
    assert changes.answered("c", 3.0)
    assert review(changes) == [Mended()]


def test_stopping_the_change_is_given_up() -> None:
    """A participant that cannot leaves the ring as it is, and requests go on."""
    changes = stopping()
    problem = Problem("bug", "out of memory", "c")
    list(changes.prepared("c", prepared(1, 3, problem=problem), False, 2.0))
    assert changes.state is State.SETTLED
    assert review(changes) == [Mended()]


def test_closing_all_are_prepared() -> None:
    changes = stopping()
    list(changes.at_rest(REACHED))
    (adopt,) = answer(changes, "a", "b", "c", at_rest=True, now=2.5)
    assert isinstance(adopt, Adopt)
    assert adopt.role.placement == without_b(epoch=1)
    assert adopt.stopped_s == 0.5
    assert adopt.wish is not None
    assert changes.state is State.SETTLED
    (send,) = only(Send, placed(adopt, steps=2, now=2.5))
    expected = Placed(ticket=TICKET, epoch=1, seconds=1.5, stopped_s=0.5, steps=2)
    assert (send.origin, send.message) == (CLIENT, expected)


def test_closing_a_participant_is_lost() -> None:
    changes = stopping()
    list(changes.at_rest(REACHED))
    actions = lose(changes, "c")
    assert set(told(Abort, actions)) == {"a", "b", "c"}
    assert actions[-1] == Broken(("c",))


def test_a_device_that_left_the_ring_is_not_missed() -> None:
    changes = stopping()
    list(changes.at_rest(REACHED))
    answer(changes, "a", "b", "c", at_rest=True)
    assert lose(changes, "b") == []
    assert changes.state is State.SETTLED


# -- epochs


def test_an_epoch_is_higher_than_any_that_was_heard_of() -> None:
    """Also than those of the source's former life."""
    changes = standing()
    greet(changes, "d", 4, epoch=7)
    assert told(Prepare, restart(changes, "b"))["b"].epoch == 8


def test_a_change_that_was_given_up_has_had_its_epoch() -> None:
    changes = standing()
    wish(changes)
    list(changes.give_up(RunError("x")))
    assert told(Prepare, wish(changes))["a"].epoch == 2


# -- time


def test_nothing_is_due_while_nothing_changes() -> None:
    changes = standing()
    assert changes.due is None
    wish(changes, now=1.0)
    assert changes.due == 1.0 + PATIENCE_S / 4


def test_those_that_are_not_prepared_are_asked_again() -> None:
    """And everybody for a sign of life: loading takes time."""
    changes = standing()
    wish(changes, now=1.0)
    answer(changes, "b")
    assert list(changes.ask_again(REACHED, 2.0)) == []
    ping, *rest = changes.ask_again(REACHED, 2.25)
    assert ping == Broadcast(Ping())
    assert asked(rest) == {"a", "c"}
    assert changes.due == 3.5


def test_a_silent_participant_counts_as_lost() -> None:
    changes = standing()
    wish(changes, now=1.0)
    changes.answered("b", 3.0)
    assert not changes.lose_silent(5.9)
    assert changes.lose_silent(6.0)
    actions = review(changes)
    assert set(told(Abort, actions)) == {"a", "b", "c"}
    assert actions[-1] == Broken(("c",)), "c has said nothing; the source need not"


def test_a_device_that_was_missed_is_back_when_it_answers() -> None:
    changes = standing()
    changes.stalled(["b"])
    assert review(changes) == [Broken(("b",))]
    assert changes.due is not None, "it is asked for a sign of life"
    assert changes.answered("b", 2.0)
    assert not changes.answered("b", 2.0)
    assert review(changes) == [Mended()]
