"""Structs that messages hold: tensors, rows of a step, sampling, openings, problems."""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta, Struct

from partc.errors import Cause, PartcError, RunError
from partc.format import fields
from partc.format.dtypes import DTYPES
from partc.format.fields import Count, Text


class TensorSpec(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`[name, dtype, shape]` of a tensor whose bytes lie in the frames."""

    name: str
    """Name of the value."""
    dtype: str
    """Element type: `float32`, for instance."""
    shape: Annotated[tuple[Count, ...], Meta(max_length=16)]
    """Elements along each axis."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"{self.dtype!r:.40} is no element type")


Tensors = Annotated[tuple[TensorSpec, ...], Meta(description="Tensors, in the order of the frames.")]


class Row(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`[request, row, step, position, length, branch]`: one sequence in a step."""

    request: fields.RequestNumber
    """Grows at the source from request to request, also over its restarts."""
    row: Count
    """Row of the states, below max_requests × max_batch."""
    step: Count
    """0, 1, 2, … of the request."""
    position: Count
    """Valid tokens in the cache; 0 for the task `graph`."""
    length: Count
    """Valid new tokens; 0 for the task `graph`."""
    branch: Count = 0
    """The step from which on the request was last taken back; 0: it never was, in this placement. A device that learns
    of a branch takes its steps back to there; a row of an earlier one is void."""


MOST_LIKELY = 64
"""Probabilities of one token at most; they travel in headers, whose size is limited."""


class Likely(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`[token, logprob]`: a token, and how likely the model has it."""

    token: Count
    """Its id."""
    logprob: float
    """Natural logarithm of its probability, of the logits as they are: before temperature, top-k and top-p."""


Likelies = Annotated[
    tuple[tuple[Likely, ...], ...],
    Meta(
        description="For each sequence the drawn token, then the most likely ones; empty unless `sampling` asks."
    ),
]


class Sampling(Struct, frozen=True, forbid_unknown_fields=True):
    """The choice of the next token; the defaults are greedy.

    Raises:
        RunError: a parameter is out of range.
    """

    temperature: float = 0.0
    """0 takes the most likely token; else logits are divided by this."""
    top_k: int = 0
    """Draw among this many most likely tokens only; 0 is all."""
    top_p: float = 1.0
    """Draw among the most likely tokens whose probabilities first reach this sum."""
    seed: int = 0
    """Equal seeds draw equal tokens."""
    likely: Annotated[int, Meta(ge=0, le=MOST_LIKELY)] = 0
    """Probabilities that are told with each token: its own, then those of the most likely ones; 0: none."""

    def __post_init__(self) -> None:
        checks = (
            (0.0 <= self.temperature < math.inf, "temperature", "0 (greedy) or more"),
            (
                _is_count(self.top_k) and self.top_k < 2**64,
                "top_k",
                "an integer from 0 (all tokens) to 2^64 - 1",
            ),
            (0.0 < self.top_p <= 1.0, "top_p", "above 0, at most 1"),
            (
                _is_count(self.likely) and self.likely <= MOST_LIKELY,
                "likely",
                f"an integer from 0 to {MOST_LIKELY}",
            ),
            (_is_count(self.seed) and self.seed < 2**64, "seed", "an integer from 0 to 2^64 - 1"),
        )
        for fine, name, hint in checks:
            if not fine:
                raise RunError(f"{getattr(self, name)} is out of range", where=name, hint=hint)


class Reuse(Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of an earlier request of the slot with which a request begins."""

    request: fields.RequestNumber
    """The last request of the slot."""
    rows: Annotated[int, Meta(ge=1, lt=2**53)]
    """Its first rows that are kept."""


class Opening(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts about a request that every device gets with its step 0."""

    request: fields.RequestNumber
    sampling: Sampling
    """The choice of its tokens."""
    trace: bool = False
    """Whether every device returns the tensors that it receives."""
    reuse: Reuse | None = None
    """Rows that lie in the states already; null: the states begin anew."""


class Reached(Struct, frozen=True, forbid_unknown_fields=True):
    """The step that a request in flight has reached."""

    request: fields.RequestNumber
    slot: Count
    """Below max_requests."""
    step: fields.StepNumber
    """Steps below this one are over."""


class Held(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`[request, submodule, steps, exact]`: the rows of so many steps, without a gap, lie in a sub-module's states."""

    request: Count
    submodule: str
    """Its name."""
    steps: Count
    """The watermark."""
    exact: bool = False
    """Whether it can go on from there or from the first step alone, since a step rewrites states as a whole."""


class Resumption(Struct, frozen=True, forbid_unknown_fields=True):
    """The step from which a request goes on, with all that a device must know that has not seen its beginning."""

    request: fields.RequestNumber
    slot: Count
    """Below max_requests."""
    sampling: Sampling
    """The choice of its tokens."""
    trace: bool
    """Whether every device returns the tensors that it receives."""
    step: fields.StepNumber
    """The next step; 0: the request begins anew."""
    phase: str
    """Phase of the step before; empty for step 0."""
    ends: tuple[tuple[Count, ...], ...]
    """Valid tokens in the cache of each sequence after each step of the prompt that is over."""


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """An error on its way to another process."""

    cause: Cause
    """`lost-peer`, `stalled`, `refused`, `input` or `bug`; decisions depend on this, never on the text."""
    message: Text
    """The error in one sentence."""
    where: Text | None = None
    """The device, link or field that is concerned."""
    hint: Text | None = None
    """The change to make, or the command to type next."""

    @classmethod
    def of(cls, error: PartcError) -> Problem:
        """Describe an error; every error that is no RunError comes of the input or is a bug."""
        cause: Cause = (
            error.cause if isinstance(error, RunError) else "input" if error.exit_code == 1 else "bug"
        )
        return cls(cause, error.message, error.where, error.hint)

    def error(self) -> RunError:
        """The error again, to be raised."""
        return RunError(self.message, where=self.where, hint=self.hint, cause=self.cause)


Reason = Annotated[Problem, Meta(description="The reason.")]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
