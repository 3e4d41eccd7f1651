"""The placement that a device prepares: each test is a row of the table in `core/device/preparation.py`."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace

from partc.errors import RunError
from partc.format.message_parts import Held, Opening, Problem, Reached, Sampling
from partc.format.messages import Abort, Commit, Prepared, Want
from partc.format.placement import Placement, seal_placement
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import Connect, Load, Log, Release, Send
from partc.runtime.core.device.preparation import Preparation, State
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.script import Script
from partc.runtime.core.device.transfer import Transfer
from partc.runtime.core.links.links import Links
from partc.runtime.core.links.outages import Wait
from partc.runtime.core.step import Step
from tests.runtime.core.changing import (
    PATIENCE_S,
    compiled,
    id_of,
    only,
    prepare,
    role_of,
    text_of,
    told,
    with_d,
    without_c,
)
from tests.runtime.core.link_end import welcome

INCARNATION = 2
REJOIN_S = 60.0


class End:
    """Device b of the ring a, b, c, which has loaded; its links stand."""

    def __init__(self) -> None:
        role = role_of("b")
        self.links = Links(role, INCARNATION)
        self.requests = Requests(Script.of(role))
        self.transfer = Transfer(role, self.requests, self.links, PATIENCE_S)
        self.end = Preparation(role, INCARNATION, self.links, self.requests, self.transfer, Wait(REJOIN_S))
        assert list(self.end.loaded()) == []
        for peer in ("a", "c"):
            self.link(peer)

    def link(self, peer: str) -> list[Action]:
        """A connection that this device opened is welcomed."""
        list(self.links.connected(peer))
        self.links.outgoing.welcomed(peer, welcome(peer))
        return list(self.end.look(1.0))

    def prepare(
        self, placement: Placement, *requests: Reached, now: float = 1.0, stands_still: bool = False
    ) -> list[Action]:
        message = prepare(placement, *requests, stands_still=stands_still)
        return list(self.end.prepare(message, text_of(placement), now))

    def loaded(self) -> list[Action]:
        return [*self.end.loaded(), *self.end.look(1.0)]

    def open(self, steps: int) -> None:
        """Request 40 has gone through so many steps here."""
        opening = Opening(40, Sampling())
        step = Step(40, 0, 0, "prefill", {"batch": 1, "sequence": 3}, (0,), (3,), opening)
        self.requests._admit(step, 0.0).steps = steps


def the(actions: list[Action]) -> Prepared:
    """The only answer to PREPARE."""
    return told(Prepared, actions)["a"]


def abort(epoch: int) -> Abort:
    return Abort(epoch=epoch, problem=Problem("lost-peer", "x"))


def commit(placement: Placement, incarnation: int = INCARNATION) -> Commit:
    return Commit(epoch=placement.epoch, placement=id_of(placement), incarnation=incarnation, requests=())


# -- none


def test_none_all_is_here_already() -> None:
    """The watermark of every sub-module that stays is the number of steps that are over."""
    end = End()
    end.open(steps=3)
    answer = the(end.prepare(compiled(1), Reached(40, 0, 3)))
    assert answer == Prepared(epoch=1, incarnation=INCARNATION, have=(Held(40, "p1", 3),))
    assert end.end.state is State.PREPARED


def test_none_something_is_to_be_loaded() -> None:
    end = End()
    assert end.prepare(without_c(1)) == [Load(1, ("p2",))]
    assert end.end.state is State.LOADING
    assert not end.end.is_fetching


def test_none_a_device_that_values_will_go_to() -> None:
    """Nothing is loaded for that."""
    end = End()
    assert end.prepare(with_d(1)) == [Connect("d", "")]
    assert end.end.state is State.FETCHING


def test_none_an_epoch_that_is_over() -> None:
    end = End()
    assert end.prepare(compiled(0)) == []
    assert end.end.state is State.NONE


OTHER_BUILD = seal_placement(replace(compiled(1), plan_id="0" * 64))


@pytest.mark.parametrize(
    ("asked", "sent", "message"),
    [
        (OTHER_BUILD, OTHER_BUILD, "of different builds"),
        (compiled(1), replace(compiled(1), plan_id="0" * 64), "damaged"),
        (compiled(1), compiled(2), "the placement is not that of epoch 1"),
        (compiled(1), without_c(1), "the placement is not that of epoch 1"),
    ],
    ids=["another build", "damaged", "another epoch", "another placement"],
)
def test_none_a_placement_that_does_not_fit(asked: Placement, sent: Placement, message: str) -> None:
    end = End()
    answer = the(list(end.end.prepare(prepare(asked), text_of(sent), 1.0)))
    assert answer.problem is not None
    assert message in answer.problem.message
    assert end.end.state is State.NONE


def test_none_a_sub_module_that_is_not_on_the_disk() -> None:
    end = End()
    end.end.role = with_fields(end.end.role, build=replace(end.end.role.build, submodules=()))
    answer = the(end.prepare(without_c(1)))
    assert answer.problem is not None
    assert "is not a sub-module of this device" in answer.problem.message


# -- loading


def test_loading_the_last_of_them() -> None:
    end = End()
    end.prepare(without_c(1))
    assert the(end.loaded()) == Prepared(epoch=1, incarnation=INCARNATION, have=())


def test_loading_a_failure() -> None:
    """It is told, and the placement in force stays; the same can be asked for again."""
    end = End()
    end.prepare(without_c(1))
    (answer,) = told(Prepared, end.end.failed(RunError("out of memory", cause="bug"))).values()
    assert answer.problem == Problem("bug", "out of memory", "b")
    assert end.end.state is State.NONE
    assert end.prepare(without_c(2)) == [Load(2, ("p2",))]


def test_loading_for_an_earlier_change() -> None:
    """What is on its way is not asked for twice, and counts when it is there."""
    end = End()
    end.prepare(without_c(1))
    assert end.prepare(without_c(2)) == []
    assert the(end.loaded()).epoch == 2


def test_loading_for_an_earlier_change_fails() -> None:
    end = End()
    end.prepare(without_c(1))
    end.prepare(without_c(2))
    (answer,) = told(Prepared, end.end.failed(RunError("out of memory"))).values()
    assert (answer.epoch, answer.problem is not None) == (2, True)


def test_a_failure_that_does_not_matter_any_more() -> None:
    end = End()
    end.prepare(without_c(1))
    end.prepare(compiled(2))
    assert list(end.end.failed(RunError("out of memory"))) == []
    assert end.end.state is State.PREPARED


# -- fetching


def test_fetching_rows() -> None:
    end = End()
    list(
        end.end.prepare(
            prepare(without_c(1), Reached(40, 0, 3), holders={"p2": "c"}), text_of(without_c(1)), 1.0
        )
    )
    (want,) = only(Send, end.loaded())
    assert isinstance(want.message, Want)
    assert (want.origin, want.message.submodule, want.message.request) == ("c", "p2", 40)
    assert end.end.is_fetching
    end.transfer.fetches.look(1.0 + PATIENCE_S)
    assert the(list(end.end.look(6.0))).have == ()


def test_fetching_links() -> None:
    end = End()
    assert told(Prepared, end.prepare(with_d(1))) == {}
    assert end.end.due == 1.0 + REJOIN_S
    assert the(end.link("d")).epoch == 1
    assert end.end.due is None


def test_fetching_a_link_that_does_not_come() -> None:
    """The wait begins with the first question, however often it is repeated, and anew with another one."""
    end = End()
    end.prepare(with_d(1))
    assert told(Prepared, end.prepare(with_d(1), now=60.9)) == {}
    problem = the(list(end.end.look(61.0))).problem
    assert problem is not None
    assert (problem.cause, problem.where) == ("lost-peer", "b -> d")
    assert end.end.state is State.NONE
    assert told(Prepared, end.prepare(with_d(2), now=62.0)) == {}
    assert end.end.due == 62.0 + REJOIN_S


# -- prepared


def test_prepared_later_steps() -> None:
    end = End()
    end.open(steps=1)
    assert the(end.prepare(compiled(1), Reached(40, 0, 1))).have == (Held(40, "p1", 1),)
    end.requests.request(40).steps = 2  # type: ignore[union-attr]
    assert end.prepare(compiled(1), Reached(40, 0, 2)) == [], (
        "they are asked for once more when requests stand still"
    )
    assert the(end.prepare(compiled(1), Reached(40, 0, 2), stands_still=True)).have == (Held(40, "p1", 2),)


def test_prepared_is_told_again_over_a_new_connection_to_the_source() -> None:
    end = End()
    end.prepare(compiled(1))
    assert list(end.end.linked("c")) == []
    assert the(list(end.end.linked("a"))).epoch == 1
    list(end.end.adopt(role_of("b")))
    assert list(end.end.linked("a")) == [], "nothing is prepared any more"


def test_prepared_commit() -> None:
    end = End()
    end.prepare(without_c(1))
    end.loaded()
    role = end.end.commit(commit(without_c(1)))
    assert role is not None
    assert role.placement == without_c(1)
    assert list(end.end.adopt(role)) == []
    assert end.end.state is State.NONE
    assert end.prepare(without_c(1)) == [], "it is in force"


def test_prepared_what_is_not_run_any_more_is_released() -> None:
    end = End()
    end.prepare(without_c(1))
    end.loaded()
    role = end.end.commit(commit(without_c(1)))
    assert role is not None
    list(end.end.adopt(role))
    end.prepare(compiled(2))
    again = end.end.commit(commit(compiled(2)))
    assert again is not None
    assert list(end.end.adopt(again)) == [Release(("p2",))]


@pytest.mark.parametrize(
    "order",
    [commit(compiled(1), incarnation=7), commit(compiled(2)), commit(without_c(1))],
    ids=["another life", "another epoch", "another placement"],
)
def test_prepared_a_commit_that_is_not_meant(order: Commit) -> None:
    end = End()
    end.prepare(compiled(1))
    assert end.end.commit(order) is None
    assert end.end.state is State.PREPARED
    assert end.end.commit(commit(compiled(1))) is not None


@pytest.mark.parametrize("state", [State.NONE, State.LOADING, State.FETCHING])
def test_a_commit_before_its_time(state: State) -> None:
    end = End()
    if state is not State.NONE:
        end.prepare(without_c(1) if state is State.LOADING else with_d(1))
    assert end.end.state is state
    assert end.end.commit(commit(without_c(1))) is None


# -- abort, and higher epochs


@pytest.mark.parametrize("is_loaded", [False, True])
def test_abort(is_loaded: bool) -> None:
    """What was loaded for nothing is released, when it is there."""
    end = End()
    end.prepare(without_c(1))
    before = end.loaded() if is_loaded else []
    assert len(told(Prepared, before)) == is_loaded
    assert list(end.end.abort(abort(2))) == [], "of another change"
    actions = list(end.end.abort(abort(1)))
    actions += [] if is_loaded else list(end.end.loaded())
    assert actions.pop(0) == Log("dropped", {"epoch": 1, "cause": "lost-peer", "reason": "x"})
    assert actions == [Release(("p2",))]
    assert end.end.state is State.NONE
    assert end.end.commit(commit(without_c(1))) is None


def test_the_change_asked_for_last_takes_the_place() -> None:
    """A source that has started anew does not know how far the epochs of its former life went."""
    end = End()
    end.prepare(compiled(1))
    assert the(end.prepare(compiled(3))).epoch == 3
    assert end.end.commit(commit(compiled(1))) is None
    assert the(end.prepare(compiled(2))).epoch == 2
    assert end.end.commit(commit(compiled(3))) is None
    assert end.end.commit(commit(compiled(2))) is not None


def test_a_change_before_everything_is_loaded() -> None:
    """PREPARE may come before the device has loaded what it runs at first."""
    role = role_of("b")
    links, requests = Links(role, INCARNATION), Requests(Script.of(role))
    transfer = Transfer(role, requests, links, PATIENCE_S)
    preparation = Preparation(role, INCARNATION, links, requests, transfer, Wait(REJOIN_S))
    assert list(preparation.prepare(prepare(compiled(1)), text_of(compiled(1)), 1.0)) == []
    list(preparation.loaded())
    assert not preparation.is_fetching
    list(preparation.look(1.0))
    assert preparation.is_fetching, "its links do not stand"
