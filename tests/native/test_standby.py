"""The second thread of the native runner, which works the loop while the first one computes for 100 ms."""

from __future__ import annotations

import pytest

from tests.native.conftest import Program

pytestmark = pytest.mark.native


def worked(program: Program, unsent: int) -> tuple[int, int]:
    """Turns of the loop, and the milliseconds after which the last one came in which a message was on its way."""
    turns, sent_ms = program("standby", str(unsent)).split()
    return int(turns), int(sent_ms)


def test_the_loop_is_worked_now_and_then(program: Program) -> None:
    turns, _ = worked(program, 0)
    assert 1 <= turns <= 5


def test_a_message_that_leaves_does_not_wait_for_that(program: Program) -> None:
    turns, sent_ms = worked(program, 12)
    assert turns >= 12
    assert sent_ms < 90, "in 12 turns of 18 ms it would not have left at all"
