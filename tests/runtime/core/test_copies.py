"""Copies of other devices' rows: what is taken, and what is forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from partc.format.messages import Rows
from partc.format.placement import seal_placement
from partc.format.role import Role
from partc.runtime.core.device.copies import Copies
from tests.runtime.core.changing import role_of

_ROWS = Rows(
    epoch=0, request=40, submodule="p1", begin=0, end=1, part=0, parts=1, sequences=1, state="p1.state", row=0,
    position=0, values=(),
)  # fmt: skip


def role_of_c(epoch: int = 0) -> Role:
    """Device c, which keeps a copy of the rows of b."""
    role = role_of("c")
    return Role(
        role.build, seal_placement(replace(role.placement, epoch=epoch, mirrors={"p1": "c", "p0": "b"}))
    )


def taken(copies: Copies, owner: str = "b", value: float = 1.0, **changes: Any) -> int:
    """The watermark of request 40 after a part of 3 rows has come."""
    copies.take(owner, replace(_ROWS, **changes), np.full((3, 1, 4), value, np.float32))
    copy = copies.of(40, "p1")
    return 0 if copy is None else copy.have


def test_steps_without_a_gap() -> None:
    copies = Copies(role_of_c())
    assert taken(copies) == 1
    assert taken(copies, begin=2, end=3, position=6) == 1, "step 1 is missing"
    assert taken(copies, begin=1, end=2, position=3, parts=2) == 1, "a part is missing"
    assert taken(copies, begin=1, end=2, position=3, parts=2, part=1, value=2.0) == 2
    copy = copies.of(40, "p1")
    assert copy is not None
    ((state, row, rows),) = copy.all_rows()
    assert (state, row, rows[:, 0, 0].tolist()) == ("p1.state", 0, [1.0] * 3 + [2.0] * 3)


@pytest.mark.parametrize(
    ("owner", "changes"),
    [("b", {"epoch": 1}), ("a", {}), ("nobody", {}), ("a", {"submodule": "p0", "state": "p0.state"})],
    ids=["another placement", "it does not run that", "it is not in the ring", "another device keeps it"],
)
def test_rows_that_are_not_for_this_device(owner: str, changes: dict[str, Any]) -> None:
    copies = Copies(role_of_c())
    assert taken(copies, owner, **changes) == 0
    assert copies.of(40, "p0") is None


def test_no_more_requests_than_slots() -> None:
    """The end of one may have got lost."""
    copies = Copies(role_of_c())
    slots = role_of_c().model.max_requests
    for number in range(40, 41 + slots):
        taken(copies, request=number)
    assert copies.of(40, "p1") is None
    assert copies.of(41, "p1") is not None


def test_what_is_over_is_forgotten() -> None:
    copies = Copies(role_of_c())
    taken(copies)
    copies.close(40)
    assert copies.of(40, "p1") is None
    taken(copies)
    copies.adopt(role_of_c(epoch=1))
    assert copies.of(40, "p1") is None
