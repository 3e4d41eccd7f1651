"""Messages between clients and the source."""

from __future__ import annotations

from partc.format import fields
from partc.format.fields import Count, Ticket
from partc.format.message_parts import Likelies, Reason, Sampling, Tensors, TensorSpec
from partc.format.messages.base import Message


class Submit(Message, frozen=True, kw_only=True):
    """A request: token ids, or tensors in the frames. Clients tokenise."""

    ticket: Ticket
    prompts: tuple[tuple[Count, ...], ...]
    """Token ids of each sequence; none where there are tensors."""
    max_new_tokens: Count
    """Tokens that each sequence may get."""
    sampling: Sampling
    """The choice of tokens."""
    stop: tuple[Count, ...]
    """Token ids that end a sequence, besides the model's own."""
    ignore_eos: bool
    """Whether the model's own do not."""
    trace: bool
    """Whether every device returns the tensors that it receives."""
    values: Tensors
    known: tuple[tuple[Count, ...], ...] = ()
    """Tokens of each sequence that are known already: they are computed, but not told again."""
    reuse: bool = False
    """Whether rows of an earlier request that began alike may be used, and later requests may use those of this one.
    Then the call shapes of the prompt depend on what ran before, and near ties may fall otherwise. Its tokens may be
    computed in steps that other requests share, too."""
    drafts: bool = False
    """Whether steps may take guessed tokens. No token depends on it."""
    expected: tuple[Count, ...] = ()
    """Tokens that the answer may look like, or parts of it: guesses are taken from them, too."""


class Token(Message, frozen=True, kw_only=True):
    """The tokens of one step."""

    ticket: Ticket
    step: fields.TokenNumber
    tokens: tuple[Count | None, ...]
    """One a sequence; null where it has ended before."""
    finish: tuple[str, ...]
    """The reason why each sequence has ended, `stop` or `length`, or empty."""
    likely: Likelies = ()


class Stats(Message, frozen=True, kw_only=True):
    """`timings` of one device, passed on."""

    ticket: Ticket
    device: fields.Reporter
    columns: fields.Columns
    values: tuple[TensorSpec, ...]
    """The table."""


class Trace(Message, frozen=True, kw_only=True):
    """`crossed`, passed on."""

    ticket: Ticket
    device: fields.Reporter
    peer: str
    """Sender of the tensors, as in `crossed`."""
    step: fields.StepNumber
    values: Tensors


class Result(Message, frozen=True, kw_only=True):
    """The end of a request that succeeded; output tensors lie in the frames."""

    ticket: Ticket
    tokens: tuple[tuple[Count, ...], ...]
    """Token ids that each sequence got."""
    finish: tuple[str, ...]
    """The reason why each sequence has ended: `stop` or `length`."""
    elapsed_s: float
    """Seconds since the source took the request."""
    replayed: Count = 0
    """Steps that were computed again, since a device was lost, restarted or relieved."""
    mismatches: Count = 0
    """Tokens of those that came out otherwise than before; the client keeps the first ones."""
    reused: Count = 0
    """Tokens of the prompt whose rows were those of an earlier request."""
    drafted: Count = 0
    """Guessed tokens that steps took."""
    accepted: Count = 0
    """Those that were right."""
    values: Tensors


class Error(Message, frozen=True, kw_only=True):
    """The end of a request that failed."""

    ticket: Ticket
    problem: Reason


class Cancel(Message, frozen=True, kw_only=True):
    """Cancels a request."""

    ticket: Ticket


class Place(Message, frozen=True, kw_only=True):
    """Asks for another placement of this build. The frames hold its text; its epoch is ignored."""

    ticket: Ticket
    reason: fields.Cause = ""
    """Why, in words for those who watch."""


class Placed(Message, frozen=True, kw_only=True):
    """The placement that was asked for is in force."""

    ticket: Ticket
    epoch: fields.Epoch
    seconds: float
    """Time from `place` to the change."""
    stopped_s: float
    """Time for which requests stood still."""
    steps: Count
    """Steps that were computed again, of all requests."""


class Resume(Message, frozen=True, kw_only=True):
    """A client whose connection broke goes on with its request: it gets the tokens that it missed."""

    ticket: Ticket
    from_step: fields.TokenNumber
    """The first token that it has not got."""
