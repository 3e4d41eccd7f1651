"""Lives of rings (`tests.runtime.living`), and mutants that must not survive them (`tests.runtime.mutants`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.runtime.living import Life, guessing_life, hybrid_life, life, play, shared_life
from tests.runtime.mutants import CATCHES, caught_at, mutants
from tests.runtime.scenarios import described

_EACH = 50
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


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("first", range(0, 2000, _EACH))
def test_tokens_stay_right_whatever_happens(first: int) -> None:
    counts = _play(range(first, first + _EACH))
    assert counts["results"] and counts["changes"] and counts["moves"] and counts["replayed"], counts


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("first", range(0, 100, _EACH))
def test_tokens_of_shared_steps_stay_right_whatever_happens(first: int) -> None:
    counts = _play(range(first, first + _EACH), shared_life)
    assert counts["results"] and counts["changes"] and counts["moves"] and counts["replayed"], counts


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("first", range(0, 300, _EACH))
def test_tokens_of_states_that_steps_rewrite_stay_right_whatever_happens(first: int) -> None:
    counts = _play(range(first, first + _EACH), hybrid_life)
    assert counts["results"] and counts["changes"] and counts["moves"] and counts["replayed"], counts


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("first", range(0, 400, _EACH))
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
@pytest.mark.parametrize("name", [each.name for each in mutants()])
def test_a_mutant_is_caught(name: str) -> None:
    (mutant,) = (each for each in mutants() if each.name == name)
    hints = [CATCHES[name]] if name in CATCHES else []
    assert caught_at(mutant, *hints) is not None


def test_a_life_goes_the_same_way_again() -> None:
    def happened(seed: int) -> list[str]:
        lines: list[str] = []
        play(life(seed), lambda *event: lines.extend(described(*event)))
        return lines

    assert happened(7) == happened(7)
