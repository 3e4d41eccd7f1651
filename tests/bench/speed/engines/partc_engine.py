"""partc uncut, in this process: what its graph and the runner's engine take, without ring and client."""

from __future__ import annotations

from pathlib import Path

from tests.bench.speed.engines.contract import Engine, Stepping
from tests.bench.speed.outputs import Array
from tests.bench.speed.places import DEVICES
from tests.bench.uncut import Uncut


class _Stepper:
    grows = False

    def __init__(self, build: Path, threads: int) -> None:
        self._model = Uncut(build, DEVICES[0], threads)
        self._filled = 0
        self._logits: Array

    def clear(self) -> None:
        self._model.clear()
        self._filled = 0

    def take(self, tokens: int) -> None:
        self._logits = self._model.prefill(tokens, self._filled)
        self._filled += tokens

    def step(self) -> None:
        self._logits = self._model.step(1, self._filled)

    def logits(self) -> Array:
        return self._logits

    def back(self, context: int) -> None:
        """The next step overwrites what the last one wrote; states that it goes on from change no time."""


def load(path: Path, threads: int, processes: int) -> Engine:
    """See the table of contestants."""
    return Stepping(_Stepper(path, threads))
