"""Changes of placement that are under way: the other rows of the table in `changes.py`, epochs, and time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.message_parts import Held, Problem
from partc.format.messages import Abort, Error, Ping, Placed, Prepare
from partc.runtime.core.actions import Adopt, Broadcast, Broken, Hold, Mended, Replaced, Tell
from partc.runtime.core.commands import Send
from partc.runtime.core.source.change import placed
from partc.runtime.core.source.changes import Changes, State
from tests.runtime.core.changing import (
    CLIENT,
    INCARNATION,
    PATIENCE_S,
    REACHED,
    TICKET,
    answer,
    asked,
    compiled,
    frames_of,
    greet,
    lose,
    only,
    prepared,
    restart,
    review,
    standing,
    told,
    wish,
    without_b,
    without_c,
)

# -- preparing


def test_preparing_all_are_prepared_for_what_makes_good_a_loss() -> None:
    """They have stood still already, so COMMIT follows."""
    changes = standing()
    restart(changes, "b")
    assert answer(changes, "a", "c") == []
    (adopt,) = changes.prepared("b", prepared(1, 9, Held(40, "p1", 2)), False, 4.0)
    assert isinstance(adopt, Adopt)
    assert adopt.role.placement == compiled(epoch=1)
    assert (adopt.participants, adopt.have) == (
        {"a": 1, "b": 9, "c": 3},
        {("b", 40, "p1"): Held(40, "p1", 2)},
    )
    assert (adopt.wish, adopt.stopped_s) == (None, 3.0)
    assert changes.state is State.SETTLED
    assert changes.members.remembers("b", 9)


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
    list(changes.begin_anew(RunError("no progress"), REACHED, 1.0))
    actions = lose(changes, "c")
    assert set(told(Abort, actions)) == {"a", "b", "c"}
    assert actions[-1] == Broken(("c",))
    greet(changes, "c", INCARNATION["c"], 0)
    assert asked(review(changes)) == {"a", "b", "c"}


def test_preparing_a_device_that_is_no_participant_does_not_matter() -> None:
    changes = standing(without_b())
    lose(changes, "b")
    greet(changes, "d", 4, 0)
    changes.members.gone("d")
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


def test_a_placement_that_a_device_could_not_prepare_is_tried_again_once_links_stand() -> None:
    changes = standing(without_b())
    lose(changes, "b")
    problem = Problem("lost-peer", "c has not reached a", "c -> a")
    list(changes.prepared("c", prepared(1, 3, problem=problem), False, 2.0))
    assert review(changes, absent=("b",)) == [Broken(("b",))]
    changes.ready()
    assert told(Prepare, review(changes, absent=("b",)))


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
    changes.members.suspect(["c"])
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
    changes.members.suspect(["b"])
    assert review(changes) == [Broken(("b",))]
    assert changes.due is not None, "it is asked for a sign of life"
    assert changes.answered("b", 2.0)
    assert not changes.answered("b", 2.0)
    assert review(changes) == [Mended()]
