"""The way back to the plan of devices that share stages."""

from __future__ import annotations

import pytest

from partc.balance.homing import TEXT, Homing
from partc.balance.order import Order
from partc.format.placement import Placement, Stage, seal_placement
from partc.format.status import DeviceStatus, RingStatus

WAIT_S = 10.0
SHARED = (Stage((0, 0), ("a",)), Stage((1, 4), ("a", "b", "c"), "heads"))
COMPILED = seal_placement(
    Placement(
        placement_id="",
        plan_id="p",
        source="a",
        ring=("a", "b", "c"),
        stages={"prefill": SHARED, "decode": SHARED},
        programs={},
        addresses={},
        predicted={},
    )
)
HOME = {"a": ((0, 0), (1, 4)), "b": ((1, 4),), "c": ((1, 4),)}
WITHOUT_C = {"a": ((0, 0), (1, 4)), "b": ((1, 4),), "c": ()}


def told(held: dict[str, tuple[tuple[int, int], ...]], away: str = "") -> RingStatus:
    devices = tuple(
        DeviceStatus(device=name, submodules=spans, is_present=name != away) for name, spans in held.items()
    )
    return RingStatus(epoch=0, placement="", devices=devices)


@pytest.fixture
def homing() -> Homing:
    return Homing(COMPILED, WAIT_S)


def asked_at(homing: Homing, ring: RingStatus, begin: int, end: int) -> list[tuple[int, Order]]:
    states = ((at, homing.on_status(ring, float(at))) for at in range(begin, end))
    return [(at, order) for at, order in states if order is not None]


def test_at_home_nothing_is_asked_for(homing: Homing) -> None:
    assert asked_at(homing, told(HOME), 0, 100) == []
    assert asked_at(homing, told(HOME, away="c"), 100, 200) == []


def test_a_device_that_is_back_brings_the_plan_back(homing: Homing) -> None:
    assert asked_at(homing, told(WITHOUT_C, away="c"), 0, 100) == []
    ((at, order),) = asked_at(homing, told(WITHOUT_C), 100, 200)
    assert (at, order) == (110, Order(COMPILED, TEXT))


def test_a_wait_begins_anew_with_every_loss(homing: Homing) -> None:
    for begin in (0, 20, 40):
        assert asked_at(homing, told(WITHOUT_C), begin, begin + 9) == []
        assert asked_at(homing, told(WITHOUT_C, away="c"), begin + 9, begin + 20) == []


def test_each_return_waits_longer(homing: Homing) -> None:
    waits = []
    for begin in (0, 1000, 2000):
        homing.on_status(told(HOME), float(begin))
        ((at, _),) = asked_at(homing, told(WITHOUT_C), begin, begin + 500)
        waits.append(at - begin)
        homing.placed(0.1, float(at))
    assert waits == [WAIT_S, 2 * WAIT_S, 4 * WAIT_S]


def test_a_refusal_is_tried_again_later(homing: Homing) -> None:
    ((at, _),) = asked_at(homing, told(WITHOUT_C), 0, 100)
    homing.refused("busy", 100.0)
    ((again, _),) = asked_at(homing, told(WITHOUT_C), 100, 200)
    assert again - 100 == 2 * at
