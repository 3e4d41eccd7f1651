"""Lives of rings (`tests.runtime.living`), and mutants that must not survive them (`tests.runtime.mutants`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.runtime.living import Life, guessing_life, hybrid_life, life, play, shared_life
from tests.runtime.mutants import caught_at, mutants
from tests.runtime.scenarios import described

_EACH = 50
_EVERY_RUN = 400
"""Lives of every run; those up to 2,000 are slow."""
_SLOW = ("highest row", "watermark in rows", "forced steps without a bound")
"""Mutants that take more than a thousand seeds."""
_WORDS = {"shared": shared_life, "hybrid": hybrid_life, "guessing": guessing_life}
"""Word by which a kind of life is asked for on the command line."""


def _play(seeds: range, kind: Callable[[int], Life] = life) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts += play(kind(seed))
        except Exception as error:
            words = [word for word, own in _WORDS.items() if kind is own]
            again = " ".join(["python -m tests.runtime.living", str(seed), *words])
            pytest.fail(f"seed {seed}: {error} ({again})")
    return counts


def _starts(stop: int, every_run: int) -> list[Any]:
    """The first seeds of tests of `_EACH` lives."""
    return [
        pytest.param(first, marks=() if first < every_run else pytest.mark.slow)
        for first in range(0, stop, _EACH)
    ]


@pytest.mark.parametrize("first", _starts(2000, _EVERY_RUN))
def test_tokens_stay_right_whatever_happens(first: int) -> None:
    counts = _play(range(first, first + _EACH))
    assert counts["results"] and counts["changes"] and counts["moves"] and counts["replayed"], counts


@pytest.mark.parametrize("first", _starts(100, 50))
def test_tokens_of_shared_steps_stay_right_whatever_happens(first: int) -> None:
    counts = _play(range(first, first + _EACH), shared_life)
    assert counts["results"] and counts["changes"] and counts["moves"] and counts["replayed"], counts


@pytest.mark.parametrize("first", _starts(300, 100))
def test_tokens_of_states_that_steps_rewrite_stay_right_whatever_happens(first: int) -> None:
    counts = _play(range(first, first + _EACH), hybrid_life)
    assert counts["results"] and counts["changes"] and counts["moves"] and counts["replayed"], counts


@pytest.mark.parametrize("first", _starts(400, 100))
def test_tokens_stay_right_whatever_is_guessed(first: int) -> None:
    counts = _play(range(first, first + _EACH), guessing_life)
    assert counts["accepted"] and counts["drafted"] > counts["accepted"], counts
    assert counts["results"] and counts["changes"] and counts["moves"] and counts["replayed"], counts


@pytest.mark.soak
@pytest.mark.parametrize("first", range(400, 100_000, 200))
def test_tokens_stay_right_whatever_is_guessed_over_many_lives(first: int) -> None:
    _play(range(first, first + 200), guessing_life)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(300, 20_000, 100))
def test_tokens_of_states_that_steps_rewrite_stay_right_over_many_lives(first: int) -> None:
    _play(range(first, first + 100), hybrid_life)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 10_000, 100))
def test_tokens_of_shared_steps_stay_right_over_many_lives(first: int) -> None:
    _play(range(first, first + 100), shared_life)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(2000, 100_000, 1000))
def test_tokens_stay_right_over_many_lives(first: int) -> None:
    _play(range(first, first + 1000))


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(each.name, marks=[pytest.mark.soak] if each.name in _SLOW else []) for each in mutants()],
)
def test_a_mutant_is_caught(name: str) -> None:
    (mutant,) = (each for each in mutants() if each.name == name)
    assert caught_at(mutant) is not None


def test_a_life_goes_the_same_way_again() -> None:
    def happened(seed: int) -> list[str]:
        lines: list[str] = []
        play(life(seed), lambda *event: lines.extend(described(*event)))
        return lines

    assert happened(7) == happened(7)
