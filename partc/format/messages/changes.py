"""Messages of a change of placement, and of the rows that move for it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from partc.format import fields
from partc.format.fields import Count
from partc.format.message_parts import Held, Problem, Reached, Reason, Resumption, TensorSpec
from partc.format.messages.base import Message


class Prepare(Message, frozen=True, kw_only=True):
    """A placement is to follow the one in force; the frames are its text. Nothing changes until `commit`.

    The device loads what it will run, connects to whom it will send, and fetches rows, while the ring runs on. The
    same epoch again raises the steps that are asked for.
    """

    placement: fields.NextPlacement
    epoch: fields.NextEpoch
    addresses: Annotated[dict[str, str], Meta(max_length=256)]
    """Device → HOST:PORT where it is not where the placement says."""
    holders: Annotated[dict[str, str], Meta(max_length=4096)]
    """Sub-module → the device that has its rows."""
    requests: tuple[Reached, ...]
    """Requests in flight."""
    stands_still: bool
    """Whether they stand still: after a loss where they are, at the end of a move between steps. Else steps follow."""


class Prepared(Message, frozen=True, kw_only=True):
    """The device is ready for `commit`: everything is loaded, all links are up, and all available rows have arrived."""

    epoch: fields.NextEpoch
    incarnation: fields.Incarnation
    have: tuple[Held, ...]
    """The watermarks of the sub-modules that it will run, where they are above 0."""
    problem: Problem | None = None
    """The reason why it cannot be; null: it is ready."""


class Commit(Message, frozen=True, kw_only=True):
    """The prepared placement is in force. A device that is not `incarnation` any more ignores it."""

    placement: fields.NextPlacement
    epoch: fields.NextEpoch
    incarnation: fields.Incarnation
    """Incarnation of the receiver as it told in `prepared`."""
    requests: tuple[Resumption, ...]
    """Requests in flight; all others are over."""


class Abort(Message, frozen=True, kw_only=True):
    """The change will not be: a device was lost meanwhile, or cannot prepare it."""

    epoch: fields.NextEpoch
    problem: Reason


class Want(Message, frozen=True, kw_only=True):
    """Rows of a state are asked for, one part of them at a time."""

    epoch: fields.Epoch
    """Epoch of the placement that is prepared."""
    request: fields.RequestNumber
    submodule: fields.SubmoduleName
    begin: fields.StepNumber
    """The first step whose rows are wanted."""
    end: fields.StepNumber
    """The one behind the last; 0 with part 0: as many as there are, at least one."""
    part: Count
    """Number of the part, from 0."""
    waits: bool
    """Whether steps follow: the answer may wait until the first one is over. Else requests stand still, and the answer
    ends with the states that steps rewrite, as of its last step, of which all else may be there already."""


class Rows(Message, frozen=True, kw_only=True):
    """The rows that some steps of a request wrote, one part of them, in frames of at most 64 KiB.

    The parts of all states follow each other, and within a state those of all sequences; a part has at most 256 KiB.
    States that a step rewrites as a whole come last, each of them as one row, of any size.
    Where there are no such steps, there are no parts either: `parts` is 0, and there are no rows.
    """

    epoch: fields.Epoch
    """Epoch that `want` named; of rows that nobody asked for, that of the placement in force."""
    request: fields.RequestNumber
    submodule: fields.SubmoduleName
    begin: fields.StepNumber
    """The first step whose rows these are."""
    end: fields.StepNumber
    """The one behind the last."""
    part: Count
    """Number of the part, from 0."""
    parts: Count
    """Number of all parts."""
    sequences: Count
    """Sequences of the request."""
    state: str
    """Name of the state."""
    row: Count
    """Number of the sequence in the request, from 0."""
    position: Count
    """The first row."""
    values: tuple[TensorSpec, ...]
    """The rows: [rows, heads, d]; [1, 1, elements] of a state that a step rewrites."""
