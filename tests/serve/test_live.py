"""What the endpoint does by the states of its rings: no guesses where a device is to be spared work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from partc.format.readings import LimitName
from partc.format.status import DeviceStatus, RingStatus, Vitals
from partc.serve.app import may_guess
from partc.serve.live import Live
from partc.serve.rings import Rings
from tests.serve.test_ring_metrics import STATUS, VITALS


def live_of(*reached: LimitName) -> Live:
    """A ring one of whose devices has reached these limits."""
    rings = cast("Rings", SimpleNamespace(states={"home": "ready"}))
    live = Live(rings, lambda name, ring: {})
    live._on_status("home", _status(structs.replace(VITALS, reached=reached)))
    return live


def _status(vitals: Vitals) -> RingStatus:
    silent = DeviceStatus(device="board")
    known = DeviceStatus(device="laptop", submodules=((0, 4),), is_present=True, vitals=vitals)
    return structs.replace(STATUS, devices=(silent, known))


def body(**fields: Any) -> Any:
    return SimpleNamespace(**{"drafts": None, "deterministic": False, **fields})


@pytest.mark.parametrize(
    ("reached", "spares"),
    [((), False), (("memory",), False), (("battery",), True), (("temperature",), True)],
)
def test_no_tokens_are_guessed_behind_a_limit(reached: tuple[LimitName, ...], spares: bool) -> None:
    live = live_of(*reached)
    assert live.spares_work == spares
    assert may_guess(body(), live) != spares
    live.forget("home")
    assert not live.spares_work, "a ring that stands no more spares nothing"


def test_a_request_says_whether_tokens_may_be_guessed() -> None:
    live = live_of()
    assert may_guess(body(drafts=True), live)
    assert not may_guess(body(drafts=False), live)
    assert not may_guess(body(deterministic=True), live)
