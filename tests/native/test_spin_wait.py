"""Spinning of the native runner, in a world with a clock of its own."""

from __future__ import annotations

import pytest

from tests.native.conftest import Program

pytestmark = pytest.mark.native


def rounds(program: Program, look_us: int) -> list[tuple[int, int]]:
    """(microseconds that the message lay, looks) of each wait."""
    lines = program("spin_wait", str(look_us)).splitlines()
    return [(int(late), int(looks)) for late, looks in (line.split() for line in lines)]


def test_a_wait_like_the_one_before_ends_awake(program: Program) -> None:
    first, *others = rounds(program, 5)
    assert first == (100, 0), "nothing is known of waits yet"
    for late, looks in others:
        assert late <= 5
        assert 100 < looks < 300, "the first part was slept through"


def test_where_somebody_else_wants_the_core_waits_are_slept_through(program: Program) -> None:
    """A look that gives the core away for 3 ms brings the message 2 ms late; the next 100 waits do not look."""
    found = rounds(program, 3000)
    looking = [number for number, (_, looks) in enumerate(found) if looks]
    assert len(looking) == 2
    assert looking[1] - looking[0] > 90
    assert all(late == 100 for late, looks in found if not looks)
