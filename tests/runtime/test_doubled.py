"""Lives of rings with a device at the end of two connections (`tests.runtime.doubled`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from partc.runtime.core.links.links import Links
from tests.runtime.doubled import doubled, play
from tests.runtime.living import Violation

SEEDS = 24


def test_one_loss_is_one_loss_whatever_else_stands() -> None:
    for seed in range(SEEDS):
        play(doubled(seed))


def _greeted_again(self: Links, name: str) -> Iterator[Any]:
    """A life before counts again, and nobody asks whether it still runs."""
    former = self.callers.greeted_before(name)
    if former:
        yield from self._welcome(*former[-1])


def _nobody(self: Links, name: str) -> Iterator[Any]:
    """Former greetings are forgotten."""
    return iter(())


@pytest.mark.parametrize("mutant", [_greeted_again, _nobody])
def test_a_mutant_is_caught(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Links, "_ask_former", mutant)
    with pytest.raises(Violation):
        for seed in range(SEEDS):
            play(doubled(seed))
