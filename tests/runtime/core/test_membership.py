"""Whether the ring stands: each test is a cell of the table in `core/links/membership.py`."""

from __future__ import annotations

from partc.format.messages import Ready
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import Announce, Send
from partc.runtime.core.links.membership import Membership, State
from tests.runtime.core.roles import changed, roles

PLACEMENT = bytes.fromhex(roles()["a"].placement_id)
READY = Ready(next_request=5, placement=PLACEMENT, epoch=0, incarnation=7)


def member(device: str) -> Membership:
    return Membership(roles()[device], 7)


def look(ring: Membership, *missing: str) -> list[Action]:
    return list(ring.look(list(missing), 5))


def complete_source() -> Membership:
    ring = member("a")
    ring.loaded()
    for name in ("b", "c"):
        ring.ready(name, name.encode())
    look(ring)
    return ring


def state_of(ring: Membership) -> State:
    return ring.state


# -- a device


def test_a_device_that_has_not_loaded_tells_nobody() -> None:
    """loading, all links stand: noted."""
    ring = member("b")
    assert look(ring) == []
    assert state_of(ring) is State.LOADING
    ring.loaded()
    assert state_of(ring) is State.JOINING
    assert look(ring) == [Send("a", READY), Announce()]
    assert state_of(ring) is State.COMPLETE


def test_a_device_is_ready_when_all_its_links_stand() -> None:
    """joining, all links stand → complete."""
    ring = member("b")
    ring.loaded()
    assert look(ring, "c") == []
    assert not ring.was_complete
    assert look(ring) == [Send("a", READY), Announce()]
    assert ring.was_complete


def test_a_device_whose_link_broke_announces_nothing_again() -> None:
    """complete, a link breaks → degraded; all links stand → complete."""
    ring = member("b")
    ring.loaded()
    look(ring)
    ring.left("c", "c")
    assert state_of(ring) is State.DEGRADED
    assert look(ring, "c") == []
    assert state_of(ring) is State.DEGRADED
    assert look(ring) == [Send("a", READY)], "but it tells the source"
    assert state_of(ring) is State.COMPLETE


def test_a_link_that_breaks_while_it_loads_or_joins() -> None:
    """loading and joining, a link breaks: noted."""
    ring = member("b")
    ring.left("c", "c")
    assert state_of(ring) is State.LOADING
    ring.loaded()
    ring.left("c", "c")
    assert state_of(ring) is State.JOINING


# -- the source


def test_the_source_waits_for_all_devices() -> None:
    """joining, a device is ready: complete, if it was the last."""
    ring = member("a")
    ring.loaded()
    assert ring.absent([]) == ["b", "c"]
    ring.ready("b", b"1")
    assert look(ring) == []
    assert ring.absent(["b"]) == ["c", "b"], "its own link to b does not stand"
    ring.ready("c", b"2")
    assert look(ring, "c") == []
    assert look(ring) == [Announce()]
    assert (state_of(ring), ring.joined) == (State.COMPLETE, {"b": b"1", "c": b"2"})


def test_devices_may_be_ready_before_the_source_has_loaded() -> None:
    """loading, a device is ready: noted."""
    ring = member("a")
    for name in ("b", "c"):
        ring.ready(name, name.encode())
    assert look(ring) == []
    assert ring.absent([]) == ["a"], "nothing is opened before"
    ring.loaded()
    assert look(ring) == [Announce()]


def test_a_device_that_left_is_absent_until_it_is_ready_again() -> None:
    """complete, a device is unready → degraded; a device is ready → complete, without an announcement."""
    ring = complete_source()
    ring.left("b", b"b")
    assert (state_of(ring), ring.absent([])) == (State.DEGRADED, ["b"])
    assert look(ring) == []
    ring.ready("b", b"again")
    assert look(ring) == []
    assert (state_of(ring), ring.joined["b"]) == (State.COMPLETE, b"again")


def test_a_link_to_a_device_that_breaks_alone() -> None:
    """complete, a link breaks → degraded; all links stand → complete: the device has not left."""
    ring = complete_source()
    ring.left("b", "b")
    assert (state_of(ring), ring.absent(["b"])) == (State.DEGRADED, ["b"])
    assert look(ring, "b") == []
    assert look(ring) == []
    assert (state_of(ring), ring.absent([])) == (State.COMPLETE, [])


def test_a_connection_whose_end_is_noticed_late() -> None:
    """complete, a connection breaks that is not the device's any more: it stays a part of the ring."""
    ring = complete_source()
    ring.ready("b", b"another route")
    ring.left("b", b"b")
    assert ring.joined["b"] == b"another route"


def test_a_device_that_is_ready_twice() -> None:
    """complete, a device is ready: noted."""
    ring = complete_source()
    ring.ready("b", b"another route")
    assert look(ring) == []
    assert (state_of(ring), ring.joined["b"]) == (State.COMPLETE, b"another route")


def test_a_ring_of_one() -> None:
    """It stands when it has loaded."""
    ring = Membership(changed(roles()["a"], ring=("a",), programs={"prefill": ()}), 7)
    ring.loaded()
    assert look(ring) == [Announce()]
