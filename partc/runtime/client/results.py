"""The results of a request, as its client gets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from partc.format.dtypes import Array
from partc.format.message_parts import Likely


@dataclass(frozen=True, slots=True)
class Tokens:
    """The result of one step."""

    step: int
    tokens: Sequence[int | None]
    """One token for each sequence; None where it has ended."""
    texts: Sequence[str]
    """The text of each sequence that is certain now; empty for prompts of token ids."""
    likely: Sequence[Sequence[Likely]] = ()
    """For each sequence the token and the most likely ones, with their probabilities, where `sampling.likely` asks."""


@dataclass(frozen=True, slots=True)
class Timings:
    """The times of every step on one device."""

    columns: tuple[str, ...]
    """step, started_s, compute_s, queue_s, sent_bytes, received_bytes, epoch, and wait_s:PEER for every link."""
    table: Array
    """(steps, columns), float64."""

    def column(self, name: str) -> Array:
        """(steps,) the values of a column; zeros where the device has no such link."""
        if name not in self.columns:
            return np.zeros(len(self.table))
        return np.asarray(self.table[:, self.columns.index(name)])


@dataclass(frozen=True, slots=True)
class Crossing:
    """The tensors of one message that a device received."""

    device: str
    peer: str
    step: int
    values: Mapping[str, Array]


@dataclass(frozen=True)
class GuessCounts:
    """Guessed tokens among those of some answers."""

    tokens: int
    """New tokens of the answers."""
    guessed: int
    """Rows of steps that took a guess."""
    right: int
    """Those that came true."""

    @property
    def share(self) -> float:
        """Share of the tokens that came true from a guess (g); 0 of none."""
        return self.right / self.tokens if self.tokens else 0.0

    @property
    def rows_per_token(self) -> float:
        """Rows that each device computed for a token: 1, and those of guesses that were wrong."""
        return 1.0 + (self.guessed - self.right) / self.tokens if self.tokens else 1.0

    def __add__(self, other: GuessCounts) -> GuessCounts:
        """Those of both."""
        return GuessCounts(self.tokens + other.tokens, self.guessed + other.guessed, self.right + other.right)

    def __str__(self) -> str:
        """`40 tokens guessed, 31 of them right (32% of all), 1.09 rows a token`."""
        return (
            f"{self.guessed} tokens guessed, {self.right} of them right ({self.share:.0%} of all), "
            f"{self.rows_per_token:.2f} rows a token"
        )


NO_GUESSES = GuessCounts(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a request."""

    prompts: Sequence[Sequence[int]]
    """Token ids as they were used."""
    tokens: Sequence[Sequence[int]]
    """New token ids per sequence, an end token included."""
    texts: Sequence[str]
    """The new text per sequence, for prompts of text."""
    finish: Sequence[str]
    """The reason for each sequence's end: `stop` (an end token) or `length` (max_new_tokens)."""
    outputs: Mapping[str, Array]
    """Output tensors, of a model that does not generate."""
    elapsed_s: float
    """From the request's arrival at the source to its end."""
    timings: Mapping[str, Timings]
    """The times on each device."""
    trace: Sequence[Crossing]
    """The tensors that crossed each link, if that was asked for."""
    reused: int = 0
    """Tokens of the prompt whose rows were those of an earlier request."""
    drafted: int = 0
    """Guessed tokens that steps took."""
    accepted: int = 0
    """Those that were right."""

    @property
    def guesses(self) -> GuessCounts:
        """The guesses among its tokens."""
        return GuessCounts(sum(map(len, self.tokens)), self.drafted, self.accepted)
