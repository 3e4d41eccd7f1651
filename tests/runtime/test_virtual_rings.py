"""Whole rings of cores, driven through all that a network and its devices may do.

Tokens equal those of an undisturbed ring, or an error has a type and a reason; never both, and never neither. Whatever
happened, the ring serves the next request, and nothing is left open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from partc.runtime.core.device.requests import Requests
from partc.runtime.core.events import Origin
from partc.runtime.core.links.callers import Callers
from partc.runtime.core.links.link import Receiver
from partc.runtime.core.links.membership import Membership
from tests.runtime.scenarios import SCENARIOS, Ask, Restart, Scenario, Violation, calm, described, play

_NO_CHECKS = list(HealthCheck)
_SHARDS = 10
_SOAK = 20_000


@pytest.mark.in_turns(3)
@settings(max_examples=200, suppress_health_check=_NO_CHECKS)
@given(scenario=SCENARIOS)
def test_tokens_or_an_error(scenario: Scenario) -> None:
    play(scenario)


@settings(max_examples=50, suppress_health_check=_NO_CHECKS)
@given(scenario=SCENARIOS.map(calm))
def test_disorder_and_repetition_alone_change_nothing(scenario: Scenario) -> None:
    outcome = play(scenario)
    assert outcome.results == len(scenario.asks)


@pytest.mark.soak
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_soak(shard: int, capsys: pytest.CaptureFixture[str]) -> None:
    """As `test_tokens_or_an_error`, for 20,000 schedules; prints what they came to."""
    figures: Counter[str] = Counter()

    @seed(shard)
    @settings(max_examples=_SOAK // _SHARDS, suppress_health_check=_NO_CHECKS)
    @given(scenario=SCENARIOS)
    def check(scenario: Scenario) -> None:
        outcome = play(scenario)
        figures.update(schedules=1, results=outcome.results, events=outcome.events)
        figures.update(outcome.causes)

    check()
    with capsys.disabled():
        print(f"\nsoak {shard}: {dict(sorted(figures.items()))}")


def test_a_scenario_goes_the_same_way_twice() -> None:
    asks = (Ask(0, ((5, 6, 7, 8),), 5), Ask(20, ((9,), (8, 7)), 4, temperature=1.0))
    scenario = Scenario("four", asks, (Restart(90, 2, 100),), 10, 10, 0.5, 0.5, 100, 20, seed=4)
    assert _log(scenario) == _log(scenario)
    assert len(_log(scenario)) > 100
    assert _log(scenario) != _log(replace(scenario, seed=5))


def _log(scenario: Scenario) -> list[str]:
    lines: list[str] = []
    play(scenario, lambda *happened: lines.extend(described(*happened)))
    return lines


# -- negative controls: each of these faults in the core is found


def _former_lives_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of a former life are taken: they come over a connection that is forgotten, in a session that is over.

    Either of the two keeps them out; so it takes both to let them in.
    """
    accept, name_of = Receiver.accept, Callers.name_of
    known: dict[tuple[int, Origin], str] = {}

    def any_session(self: Receiver[Any], epoch: int, session: int, seq: int, frame: Any) -> list[Any]:
        return accept(self, epoch, self.session or 0, seq, frame)

    def any_route(self: Callers, origin: Origin) -> str | None:
        name = name_of(self, origin)
        if name is not None:
            known[id(self), origin] = name
        return name or known.get((id(self), origin))

    monkeypatch.setattr(Receiver, "accept", any_session)
    monkeypatch.setattr(Callers, "name_of", any_route)


def _no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(self: Receiver[Any], epoch: int, session: int, seq: int, frame: Any) -> list[Any]:
        if (epoch, session) != (self.epoch, self.session) or seq in self._held:
            return []
        self._held[seq] = None
        while self._next in self._held:
            self._next += 1
        return [frame]

    monkeypatch.setattr(Receiver, "accept", accept)


def _no_repetition_check(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Receiver.accept

    def accept(self: Receiver[Any], epoch: int, session: int, seq: int, frame: Any) -> list[Any]:
        again = (epoch, session) == (self.epoch, self.session) and seq < self._next
        return [frame] if again else inner(self, epoch, session, seq, frame)

    monkeypatch.setattr(Receiver, "accept", accept)


def _closed_requests_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Requests, "_is_over", lambda self, step: False)


def _nothing_is_over_for_a_newcomer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Requests, "close_below", lambda self, number: None)


def _any_end_takes_a_device_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def left(self: Membership, device: str, origin: Origin) -> None:
        self.joined.pop(device, None)

    monkeypatch.setattr(Membership, "left", left)


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    "mutate",
    [
        _former_lives_go_on,
        _no_order,
        _no_repetition_check,
        _closed_requests_forgotten,
        _nothing_is_over_for_a_newcomer,
        _any_end_takes_a_device_out,
    ],
    ids=lambda mutate: mutate.__name__.strip("_"),
)
def test_faults_of_the_core_are_found(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    @settings(max_examples=3000, suppress_health_check=_NO_CHECKS, phases=(Phase.generate,), database=None)
    @given(scenario=SCENARIOS)
    def check(scenario: Scenario) -> None:
        play(scenario)

    with pytest.raises(Violation):
        check()
