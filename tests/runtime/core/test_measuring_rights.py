"""Requests to measure are for devices that measure, and for no other."""

from __future__ import annotations

import pytest

from partc.format.messages import CLIENT, Join, Measure, Message
from partc.format.messages.rights import RIGHTS, Party
from partc.runtime.core.links.rights import is_right
from tests.runtime.core.roles import roles

REQUESTS: list[Message] = [
    Measure(
        ticket=b"t" * 16, submodule="part_0", dims={}, position=(0,), length=(1,),
        sample="", repeats=1, touch_bytes=0,
    ),
    Join(ticket=b"t" * 16, ring=("a",), peers={}),
]  # fmt: skip


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda message: type(message).__name__)
def test_a_client_asks_devices_that_measure_alone(request_: Message) -> None:
    for name, role in roles().items():
        assert is_right(request_, CLIENT, b"route", role, measures=True)
        assert not is_right(request_, CLIENT, b"route", role)
        (other, *_) = (peer for peer in ("a", "b") if peer != name)
        assert not is_right(request_, other, b"route", role, measures=True)


def test_every_request_for_devices_that_measure_has_a_case() -> None:
    kinds = {kind for kind, rights in RIGHTS.items() if any(r.receiver is Party.METER for r in rights)}
    assert kinds == {type(message) for message in REQUESTS}
