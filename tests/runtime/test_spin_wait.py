"""Waits of which the last part is spent looking."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from partc.runtime.client.launch import launch_local
from partc.runtime.shell.spin_wait import SpinWait
from tests.runtime.bundles import language_model


@dataclass
class World:
    """A clock and a poll: something happens at `event`; a look takes 10 µs."""

    event: float = float("inf")
    now: float = 0.0
    slept: list[float] = field(default_factory=list)
    looks: int = 0

    def clock(self) -> float:
        return self.now

    def poll(self, timeout_s: float | None) -> list[str]:
        if timeout_s == 0.0:
            self.looks += 1
            self.now += 1e-5
        else:
            end = self.event if timeout_s is None else min(self.event, self.now + timeout_s)
            self.slept.append(round(end - self.now, 6))
            self.now = end
        return ["event"] if self.now >= self.event else []


def after_a_wait(seconds: float) -> tuple[World, SpinWait[str]]:
    world = World()
    waits = SpinWait(world.poll, world.clock)
    waits.begin()
    world.now += seconds
    waits.end()
    world.now += 0.004
    waits.begin()
    return world, waits


def test_it_sleeps_first_and_looks_then() -> None:
    world, waits = after_a_wait(0.0095)
    world.event = world.now + 0.0091
    assert waits.wait(None) == ["event"]
    assert world.slept == [0.006]
    assert 300 <= world.looks <= 320


def test_what_comes_early_wakes_it() -> None:
    world, waits = after_a_wait(0.008)
    world.event = world.now + 0.002
    assert waits.wait(None) == ["event"]
    assert (world.slept, world.looks) == ([0.002], 0)


def test_it_looks_no_longer_than_waits_take() -> None:
    world, waits = after_a_wait(0.008)
    began = world.now
    world.event = began + 60.0
    assert waits.wait(None) == []
    assert world.now - began == pytest.approx(0.012, abs=1e-4)
    looks = world.looks
    assert waits.wait(None) == ["event"]
    assert world.looks == looks, "the rest is slept through"


def test_it_is_back_in_time() -> None:
    world, waits = after_a_wait(0.009)
    began = world.now
    assert waits.wait(0.007) == []
    assert world.now - began == pytest.approx(0.007, abs=1e-4)


@pytest.mark.parametrize("seconds", [0.0, 0.02], ids=["no wait", "a long wait"])
def test_nothing_follows_from(seconds: float) -> None:
    world, waits = after_a_wait(seconds)
    world.event = world.now + 0.01
    assert waits.wait(None) == ["event"]
    assert (world.slept, world.looks) == ([0.01], 0)


def test_a_frugal_ring_gives_the_same_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = language_model("null").write(tmp_path / "build")
    answers = []
    spawn = subprocess.Popen
    for more in ([], ["--frugal"]):
        monkeypatch.setattr(
            subprocess, "Popen", lambda command, more=more, **rest: spawn([*command, *more], **rest)
        )
        with launch_local(build) as ring, ring.client() as client:
            answers.append(client.generate([1, 2, 3], 8, ignore_eos=True).tokens)
    assert answers[0] == answers[1]
