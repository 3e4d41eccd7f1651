"""Whether a contestant computes the model: its logits beside those of transformers in float32.

    python -m tests.bench.speed.outputs CHECKPOINT OUT.npy

A library that computes nothing, or something else, may be the fastest of all; such a row would be void.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

FIRST, CHECKED = 3, 40
"""The token that every prompt begins with, each of the others being one more; and the length of the one looked at."""
NEXT = FIRST + CHECKED
"""The token of every step."""
MOST = {"float32": 0.02, "int8": 0.2, "int4": 0.85}
"""Format of the weights → the error that is taken for that of its rounding: random weights of 22 layers in int4 make
0.7 of it with everybody. Zeros are off by 1, other logits by 1.4."""


class Answering(Protocol):
    """The part of a stepper that is looked at here; see `engines.contract.Stepper`."""

    def clear(self) -> None:
        """Forget everything."""

    def take(self, tokens: int) -> None:
        """Take in so many more."""

    def step(self) -> None:
        """One token more."""

    def logits(self) -> Array:
        """The last ones."""


def prompt(tokens: int) -> range:
    """So many tokens."""
    return range(FIRST, FIRST + tokens)


def answers(stepper: Answering) -> list[Array]:
    """The logits behind a prompt and behind a step after it, [vocabulary] each, where the contestant computes them."""
    stepper.clear()
    stepper.take(CHECKED)
    behind_prompt = np.array(stepper.logits(), np.float32).ravel()
    stepper.step()
    return [behind_prompt, np.array(stepper.logits(), np.float32).ravel()]


def error(found: Iterable[Array], expected: Iterable[Array]) -> float:
    """The length of the difference over that of what is expected, the worse of the rows; infinite at other sizes."""
    return max(_error(*pair) for pair in zip(found, expected, strict=True))


def _error(found: Array, expected: Array) -> float:
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def expected_file(checkpoint: Path) -> Path:
    """The answers of transformers to that model."""
    return checkpoint / "expected.npy"


if __name__ == "__main__":
    from tests.bench.speed.engines.hf import load_stepper

    np.save(sys.argv[2], answers(load_stepper(Path(sys.argv[1]), threads=1)))
