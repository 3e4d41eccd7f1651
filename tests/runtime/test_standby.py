"""The second thread of a runner: the loop is looked after while its owner computes, and never by two at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from partc.runtime.shell.standby import Standby

ENOUGH_S = 10.0


@dataclass
class Loop:
    """A loop whose turns are counted."""

    turns: int = 0
    threads: set[str] = field(default_factory=set)
    at_once: int = 0
    crowded: bool = False
    """Whether two ever worked it at once."""

    def turn(self) -> None:
        self.at_once += 1
        self.crowded |= self.at_once > 1
        time.sleep(0.0005)
        self.turns += 1
        self.threads.add(threading.current_thread().name)
        self.at_once -= 1


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def standby(loop: Loop) -> Iterator[Standby]:
    made = Standby(loop.turn)
    yield made
    made.end()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + ENOUGH_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def test_the_loop_is_looked_after_while_its_owner_is_away(standby: Standby, loop: Loop) -> None:
    with standby.away():
        wait_until(lambda: loop.turns >= 3)
    assert loop.threads == {"standby"}


def test_nobody_but_the_owner_works_the_loop_when_it_is_back(standby: Standby, loop: Loop) -> None:
    with standby.away():
        wait_until(lambda: loop.turns >= 1)
    turns = loop.turns
    time.sleep(0.05)
    assert loop.turns == turns


def test_an_owner_that_is_away_for_a_moment_is_not_missed(standby: Standby, loop: Loop) -> None:
    for _ in range(200):
        with standby.away():
            pass
    assert loop.turns == 0


def test_the_two_never_work_the_loop_at_once(standby: Standby, loop: Loop) -> None:
    """The owner comes back whenever it likes; it gets the loop when the turn under way is over."""
    for milliseconds in (9, 10, 11, 12, 17, 18, 25) * 3:
        with standby.away():
            time.sleep(milliseconds / 1000)
        for _ in range(5):
            loop.turn()
    assert not loop.crowded
    assert loop.threads == {"standby", threading.current_thread().name}


def test_a_failure_reaches_the_owner() -> None:
    """When it comes back; the loop is left alone until then."""
    turns = []

    def turn() -> None:
        turns.append(1)
        raise KeyError("x")

    standby = Standby(turn)
    try:
        with pytest.raises(KeyError), standby.away():
            wait_until(lambda: turns != [])
            time.sleep(0.05)
        assert turns == [1]
    finally:
        standby.end()


def test_the_owner_s_own_error_passes(standby: Standby) -> None:
    with pytest.raises(ZeroDivisionError), standby.away():
        raise ZeroDivisionError
    with standby.away():
        pass


def test_it_sleeps_while_nothing_is_computed(standby: Standby, loop: Loop) -> None:
    """`rest` until the owner is away the next time."""
    assert not standby._busy.is_set()
    with standby.away():
        pass
    assert standby._busy.is_set()
    standby.rest()
    time.sleep(0.03)
    assert not standby._busy.is_set()
    with standby.away():
        wait_until(lambda: loop.turns >= 1)


@pytest.mark.parametrize("rests", [False, True])
def test_the_end(rests: bool) -> None:
    standby = Standby(lambda: None)
    with standby.away():
        pass
    if rests:
        standby.rest()
    standby.end()
    assert not standby._thread.is_alive()
