"""Requests that share steps, in rings of cores: every one has the tokens that it has alone, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import HealthCheck, given, settings

from partc.format.message_parts import Sampling
from partc.format.role import Role
from partc.runtime.core.commands import Command, Compute
from partc.runtime.core.events import Event
from partc.runtime.virtual.ring import Ring
from tests.runtime.living import Ask, Fault, Life
from tests.runtime.living import play as live
from tests.runtime.roles import LOCAL, ONE, THREE, Programs, null_engine, roles_of
from tests.runtime.scenarios import CALM, SHARED, Scenario, calm, play


@pytest.mark.in_turns(3)
@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(scenario=SHARED)
def test_tokens_or_an_error(scenario: Scenario) -> None:
    play(scenario)


@pytest.mark.in_turns(2)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(scenario=SHARED.map(calm))
def test_all_are_answered_where_nothing_breaks(scenario: Scenario) -> None:
    assert play(scenario).results == len(scenario.asks)


class Watched:
    """A ring, and the steps that its devices computed."""

    def __init__(self, programs: Programs, max_requests: int, step_requests: int = 1) -> None:
        self.roles: Mapping[str, Role] = roles_of(
            programs,
            max_sequence=64,
            prompt_chunk=3,
            max_requests=max_requests,
            step_requests=step_requests,
        )
        self.computed: list[tuple[str, tuple[int, ...]]] = []
        """Device, and the slots of a step."""
        self.ring = Ring(
            self.roles,
            lambda device: null_engine(self.roles[device]),
            seconds=lambda device, work: 0.01,
            observe=self._observe,
        )

    def _observe(self, now: float, device: str, event: Event, commands: Sequence[Command]) -> None:
        self.computed += [
            (device, (each.slot, *each.others)) for each in commands if isinstance(each, Compute)
        ]

    def widest(self, device: str) -> int:
        """The most requests of a step."""
        return max(len(slots) for name, slots in self.computed if name == device)


def answers_of(watched: Watched, count: int, *, reuse: bool = True) -> list[list[int]]:
    """The tokens of requests that begin at different times, with prompts and answers of different lengths."""
    chance = random.Random(3)
    asked = []
    for number in range(count):
        prompt = [chance.randrange(4, 17) for _ in range(1 + 2 * number)]
        sampling = Sampling(temperature=number % 2, seed=number)
        asked.append(
            watched.ring.client.submit([prompt], 20 - number, sampling=sampling, ignore_eos=True, reuse=reuse)
        )
        watched.ring.run(watched.ring.clock.now + 0.03)
    watched.ring.run(100.0, until=lambda: all(answer.done for answer in asked))
    assert all(answer.result is not None for answer in asked)
    return [list(answer.result.tokens[0]) for answer in asked if answer.result is not None]


@pytest.mark.parametrize("programs", [ONE, THREE, LOCAL], ids=["one", "three", "local"])
def test_shared_steps_have_the_tokens_of_those_alone(programs: Programs) -> None:
    shared = Watched(programs, max_requests=6, step_requests=6)
    alone = Watched(programs, max_requests=6)
    assert answers_of(shared, 6) == answers_of(alone, 6)
    stages = len(programs)
    assert shared.widest("a") == {1: 6, 3: 2}[stages]
    assert alone.widest("a") == 1
    assert len(shared.computed) < len(alone.computed)


def test_whoever_wants_the_bits_of_a_request_alone_shares_no_step() -> None:
    watched = Watched(THREE, max_requests=4, step_requests=4)
    answers_of(watched, 4, reuse=False)
    assert watched.widest("a") == 1


def test_no_step_has_more_requests_than_the_build_allows() -> None:
    watched = Watched(ONE, max_requests=6, step_requests=2)
    answers_of(watched, 6)
    assert watched.widest("a") == 2


def test_a_ring_with_a_runner_that_takes_no_shared_steps_makes_none() -> None:
    watched = Watched(THREE, max_requests=4, step_requests=4)
    source = watched.ring.nodes["a"].device.source
    assert source is not None
    source.schedule.sharing.greeted("b", takes=False)
    watched.ring.run(1.0)
    source.schedule.sharing.greeted("b", takes=False)
    answers_of(watched, 4)
    assert watched.widest("a") == 1


def test_a_long_prompt_does_not_hold_up_the_others() -> None:
    """Its parts take turns with their tokens."""
    watched = Watched(ONE, max_requests=3, step_requests=3)
    first = watched.ring.client.submit([(5, 6)], 30, ignore_eos=True, reuse=True)
    watched.ring.run(0.1)
    before = len(first.tokens)
    late = watched.ring.client.submit([tuple(range(4, 17)) * 3], 4, ignore_eos=True, reuse=True)
    watched.ring.run(100.0, until=lambda: bool(late.tokens))
    parts = 13
    assert len(first.tokens) - before >= parts - 2


def test_requests_go_on_sharing_steps_behind_a_move() -> None:
    """All have the rows of their steps, so that nothing is computed again, and the next step is a shared one."""
    asks = tuple(Ask(0.1 * at, ((5, 6, 7 + at),), 50, 0.0) for at in range(8))
    move = Fault(1.0, "move", "b", assignment=("a", "c", "c", "b", "b", "d"))
    wide: list[tuple[float, int]] = []

    def observe(now: float, device: str, event: Event, commands: Sequence[Command]) -> None:
        wide.extend((now, len(each.others)) for each in commands if isinstance(each, Compute) and each.others)

    counts = live(Life(asks, (move,), CALM, 0.02, 0.0, False, False, 0, is_shared=True), observe)
    assert (counts["moves"], counts["results"], counts["replayed"]) == (1, 8, 0)
    assert min(wide)[0] < 1.0 < 1.2 < max(wide)[0]
