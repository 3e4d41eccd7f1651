"""The contract of a contestant, and the contestant that computes step by step in this process."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Protocol

from tests.bench.speed.clocks import Sample, now
from tests.bench.speed.outputs import Array, answers

CONTEXT, PROMPT = 128, 512
"""Tokens before the one that warms up, pairs and hops are timed for; of the prompt that prefill is timed for."""


class Engine(Protocol):
    """A model, loaded."""

    def prefill(self) -> Sample:
        """Take in a prompt of `PROMPT` tokens up to its last logits, or its first token."""

    def decode(self, steps: int, context: int) -> Sample:
        """One token behind `context` others: the median of so many."""


class Stepper(Protocol):
    """A model in this process."""

    grows: bool
    """Whether every token stays, because its cache cannot be cut back for nothing."""

    def clear(self) -> None:
        """Forget everything."""

    def take(self, tokens: int) -> None:
        """Take in so many more, up to the last logits."""

    def step(self) -> None:
        """One token more, up to its logits."""

    def logits(self) -> Array:
        """The last ones; of any shape."""

    def back(self, context: int) -> None:
        """Forget all behind the first `context` tokens; never asked of a stepper that grows."""


class Stepping:
    """A stepper as an engine: every token is timed at the very same context, or around it where the cache grows."""

    def __init__(self, stepper: Stepper, pids: Sequence[int] = ()) -> None:
        """`pids` are other processes that compute for it."""
        self._stepper = stepper
        self._pids = pids
        self._filled = 0

    def prefill(self) -> Sample:
        """See `Engine`."""
        began = now(self._pids)
        self._stepper.clear()
        self._stepper.take(PROMPT)
        self._filled = PROMPT
        return began.until(now(self._pids))

    def answers(self) -> list[Array]:
        """What it is judged by, see `outputs.answers`."""
        found = answers(self._stepper)
        self._stepper.clear()
        self._filled = 0
        return found

    def decode(self, steps: int, context: int) -> Sample:
        """See `Engine`."""
        self._fill(context - steps // 2 if self._stepper.grows else context)
        return median([self._step() for _ in range(steps)])

    def _fill(self, tokens: int) -> None:
        if self._filled > tokens:
            self._stepper.clear()
            self._filled = 0
        if self._filled < tokens:
            self._stepper.take(tokens - self._filled)
            self._filled = tokens

    def _step(self) -> Sample:
        began = now(self._pids)
        self._stepper.step()
        taken = began.until(now(self._pids))
        if self._stepper.grows:
            self._filled += 1
        else:
            self._stepper.back(self._filled)
        return taken


def median(samples: list[Sample]) -> Sample:
    """The median by each clock."""
    walls, cpus = [one.wall_s for one in samples], [one.cpu_s for one in samples]
    return Sample(statistics.median(walls), statistics.median(cpus))
