"""partc uncut, in this process: what its graph and the runner's engine take, without ring and client."""

from __future__ import annotations

from pathlib import Path

from tests.bench.speed.engines.contract import CONTEXT, Engine, Stepping
from tests.bench.speed.places import DEVICES, bundle
from tests.bench.uncut import Uncut


class _Stepper:
    def __init__(self, place: Path, kind: str, threads: int) -> None:
        self._model = Uncut(bundle(place, kind, 1), DEVICES[0], threads)

    def fill(self, tokens: int) -> None:
        self._model.prefill(tokens)

    def step(self) -> None:
        self._model.step(1, CONTEXT)

    def back(self) -> None:
        """The next step overwrites what the last one wrote."""


def load(place: Path, kind: str, threads: int, processes: int) -> Engine:
    """See the table of contestants."""
    return Stepping(_Stepper(place, kind, threads))
