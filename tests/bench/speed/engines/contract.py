"""The contract of a contestant, and the contestant that computes step by step in this process."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Protocol

from tests.bench.speed.clocks import Sample, now

CONTEXT, PROMPT = 128, 512
"""Tokens before the one that decode is timed for; tokens of the prompt that prefill is timed for."""


class Engine(Protocol):
    """A model, loaded."""

    def prefill(self) -> Sample:
        """Take in a prompt of `PROMPT` tokens up to its last logits, or its first token."""

    def decode(self, steps: int) -> Sample:
        """One token at a context of `CONTEXT`: the median of so many."""


class Stepper(Protocol):
    """A model in this process."""

    def fill(self, tokens: int) -> None:
        """Forget everything, then take in a prompt."""

    def step(self) -> None:
        """One token more, up to its logits."""

    def back(self) -> None:
        """Forget all behind the first `CONTEXT` tokens."""


class Stepping:
    """A stepper as an engine: every token is timed at the very same context."""

    def __init__(self, stepper: Stepper, pids: Sequence[int] = ()) -> None:
        """`pids` are other processes that compute for it."""
        self._stepper = stepper
        self._pids = pids
        self._filled = False

    def prefill(self) -> Sample:
        """See `Engine`."""
        self._filled = False
        began = now(self._pids)
        self._stepper.fill(PROMPT)
        return began.until(now(self._pids))

    def decode(self, steps: int) -> Sample:
        """See `Engine`."""
        if not self._filled:
            self._stepper.fill(CONTEXT)
            self._filled = True
        return median([self._step() for _ in range(steps)])

    def _step(self) -> Sample:
        began = now(self._pids)
        self._stepper.step()
        taken = began.until(now(self._pids))
        self._stepper.back()
        return taken


def median(samples: list[Sample]) -> Sample:
    """The median by each clock."""
    walls, cpus = [one.wall_s for one in samples], [one.cpu_s for one in samples]
    return Sample(statistics.median(walls), statistics.median(cpus))
