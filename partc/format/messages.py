"""The messages of wire 2: one struct a kind.

A message is a header and raw frames behind it. The header is one msgpack map: `kind` names the struct, the other keys
are its fields, exactly. Nothing is pickled and nothing is compressed. The structs check types and ranges while they
are decoded; what depends on a build (names, sizes, positions) is checked by whoever takes the message.

Their bytes: `partc.format.codec`, `partc.format.frames`. docs/wire.md has tables that are written from the structs.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Union

from msgspec import Meta, Struct

from partc.format import fields
from partc.format.fields import Count, Digest, Text, Ticket
from partc.format.message_parts import (
    Held,
    Opening,
    Problem,
    Reached,
    Reason,
    Resumption,
    Row,
    Sampling,
    Tensors,
    TensorSpec,
)

VERSION: Literal[2] = 2
"""Number of the wire; the two ends of a connection must have the same."""

CLIENT = "client"
"""Name of every client in its `hello`."""


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag=str.lower):
    """Base of all messages."""

    route: ClassVar[str]
    """Sender and receiver."""


# -- the handshake of every connection


class Hello(Message, frozen=True, kw_only=True):
    """First message of a connection. Whoever opened it tells who it is and what it runs."""

    route: ClassVar[str] = "any → any"
    v: Literal[2] = VERSION
    """Version of the wire."""
    name: str
    """Device name, or `client`."""
    session: fields.Session
    plan: Digest
    """`plan_id` of the build."""
    placement: fields.PlacementId
    epoch: fields.Epoch
    incarnation: fields.Incarnation
    address: fields.Address = ""
    """HOST:PORT at which the sender can be reached; empty: as the placement says. A phone that returns has another
    one."""


class Welcome(Message, frozen=True, kw_only=True):
    """The connection is accepted."""

    route: ClassVar[str] = "back"
    name: str
    """Device that answers."""
    epoch: fields.Epoch
    next: Count
    """`seq` that it awaits on this link, in `epoch`."""
    first_request: Count = 0
    """From the source: requests below this number are over."""
    info: Annotated[dict[str, bool | int | float | str], Meta(max_length=64)]
    """Facts for whoever connected: `patience_s`, or the machine's description from a device that measures."""


class Refuse(Message, frozen=True, kw_only=True):
    """The connection is not accepted: another build, another placement, another name than the key's."""

    route: ClassVar[str] = "back"
    problem: Reason


# -- links


class Data(Message, frozen=True, kw_only=True):
    """Values for a step; one frame a tensor."""

    route: ClassVar[str] = "device → device"
    session: fields.Session
    epoch: fields.Epoch
    """Epoch of the placement under which the step runs."""
    seq: Count
    """0, 1, 2, … within the session."""
    phase: str
    """Program that runs: `chunk` (a part of a prompt behind which more comes), `prefill` or `decode`."""
    dims: dict[str, Count]
    """Size of every symbol in this step."""
    rows: Annotated[tuple[Row, ...], Meta(min_length=1)]
    """Sequences of the step; today all belong to one request, and their rows follow each other."""
    values: Tensors
    open: tuple[Opening, ...] = ()
    """One entry for each request whose step 0 this is."""


class Ack(Message, frozen=True, kw_only=True):
    """Everything below `seq` has arrived."""

    route: ClassVar[str] = "back"
    session: fields.Session
    epoch: fields.Epoch
    seq: Count
    """The number that is awaited next."""


# -- the source and the other devices


class Ready(Message, frozen=True, kw_only=True):
    """This device has loaded its sub-modules, and all of its links stand."""

    route: ClassVar[str] = "device → source"
    next_request: Annotated[int, Meta(ge=0, le=2**62)]
    """It has been told of requests below this number only."""
    placement: fields.PlacementId
    epoch: fields.Epoch
    incarnation: fields.Incarnation


class Unready(Message, frozen=True, kw_only=True):
    """A link of this device broke."""

    route: ClassVar[str] = "device → source"
    lost: str
    """Device at its other end."""


class Prepare(Message, frozen=True, kw_only=True):
    """A placement is to follow the one in force; the frames are its text. Nothing changes until `commit`.

    The device loads what it will run, connects to whom it will send, and fetches rows, while the ring runs on. The
    same epoch again raises the steps that are asked for.
    """

    route: ClassVar[str] = "source → device"
    epoch: fields.NextEpoch
    addresses: Annotated[dict[str, str], Meta(max_length=256)]
    """Device → HOST:PORT where it is not where the placement says."""
    holders: Annotated[dict[str, str], Meta(max_length=4096)]
    """Sub-module → the device that has its rows."""
    requests: tuple[Reached, ...]
    """Requests in flight."""
    stands_still: bool
    """Whether they stop where they are, as after a loss; else steps follow while it is prepared."""


class Prepared(Message, frozen=True, kw_only=True):
    """The device is ready for `commit`: all is loaded, all links stand, and the rows are here that could be had."""

    route: ClassVar[str] = "device → source"
    epoch: fields.NextEpoch
    incarnation: fields.Incarnation
    have: tuple[Held, ...]
    """The watermarks of the sub-modules that it will run, where they are above 0."""
    problem: Problem | None = None
    """The reason why it cannot be; null: it is ready."""


class Commit(Message, frozen=True, kw_only=True):
    """The prepared placement is in force. A device that is not `incarnation` any more ignores it."""

    route: ClassVar[str] = "source → device"
    epoch: fields.NextEpoch
    incarnation: fields.Incarnation
    """Incarnation of the receiver as it told in `prepared`."""
    requests: tuple[Resumption, ...]
    """Requests in flight; all others are over."""


class Abort(Message, frozen=True, kw_only=True):
    """The change will not be: a device was lost meanwhile, or cannot prepare it."""

    route: ClassVar[str] = "source → device"
    epoch: fields.NextEpoch
    problem: Reason


class Want(Message, frozen=True, kw_only=True):
    """Rows of a state are asked for, one part of them at a time."""

    route: ClassVar[str] = "device → device"
    epoch: fields.Epoch
    """Epoch of the placement in force."""
    request: fields.RequestNumber
    submodule: fields.SubmoduleName
    begin: fields.StepNumber
    """The first step whose rows are wanted."""
    end: fields.StepNumber
    """The one behind the last; 0 with part 0: as many as there are, at least one."""
    part: Count
    """Number of the part, from 0."""
    waits: bool
    """Whether the answer may wait until the first step is over."""


class Rows(Message, frozen=True, kw_only=True):
    """The rows that some steps of a request wrote, one part of them, in frames of at most 64 KiB.

    The parts of all states follow each other, and within a state those of all sequences; a part has at most 256 KiB.
    Where there are no such steps, there are no parts either: `parts` is 0, and there are no rows.
    """

    route: ClassVar[str] = "device → device"
    epoch: fields.Epoch
    request: fields.RequestNumber
    submodule: fields.SubmoduleName
    begin: fields.StepNumber
    end: fields.StepNumber
    part: Count
    parts: Count
    """How many parts there are."""
    sequences: Count
    """Sequences of the request."""
    state: str
    """Name of the state."""
    row: Count
    """Number of the sequence in the request, from 0."""
    position: Count
    """The first row."""
    values: tuple[TensorSpec, ...]
    """The rows: [rows, heads, d]."""


class Close(Message, frozen=True, kw_only=True):
    """The request is over."""

    route: ClassVar[str] = "source → device"
    request: fields.RequestNumber
    report: bool
    """Whether its timings are wanted."""


class Fail(Message, frozen=True, kw_only=True):
    """A request cannot go on because of what happened here."""

    route: ClassVar[str] = "device → source"
    request: Count | None
    """Null: no request in flight can."""
    earlier: bool
    """Whether no request before it can, either: the link that brought it is not to be trusted."""
    problem: Reason


class Timings(Message, frozen=True, kw_only=True):
    """The times of a request: one float64 table (steps, columns), in frames of at most 64 KiB."""

    route: ClassVar[str] = "device → source"
    request: fields.RequestNumber
    device: fields.Reporter
    columns: fields.Columns
    values: tuple[TensorSpec, ...]
    """The table."""


class Crossed(Message, frozen=True, kw_only=True):
    """Tensors of a traced request, in frames of at most 64 KiB."""

    route: ClassVar[str] = "device → source"
    request: fields.RequestNumber
    device: fields.Reporter
    peer: str
    """Sender of the tensors; the device itself for the logits that it samples."""
    step: fields.StepNumber
    values: Tensors


class Ping(Message, frozen=True, kw_only=True):
    """A question whether the loop of the other end is alive."""

    route: ClassVar[str] = "source → device, client → source"
    token: fields.Echo = 0


class Pong(Message, frozen=True, kw_only=True):
    """The answer to `ping`."""

    route: ClassVar[str] = "back"
    token: fields.Echo
    computing: bool
    """Whether the engine works for a request."""
    doing: Text
    """The message or computation that the device waits for, for people."""


class Shutdown(Message, frozen=True, kw_only=True):
    """The runners shall end."""

    route: ClassVar[str] = "client → source → device"


# -- clients and the source


class Submit(Message, frozen=True, kw_only=True):
    """A request: token ids, or tensors in the frames. Clients tokenise."""

    route: ClassVar[str] = "client → source"
    ticket: Ticket
    prompts: tuple[tuple[Count, ...], ...]
    """Token ids of each sequence; none where there are tensors."""
    max_new_tokens: Count
    """Tokens that each sequence may get."""
    sampling: Sampling
    """How tokens are chosen."""
    stop: tuple[Count, ...]
    """Token ids that end a sequence, besides the model's own."""
    ignore_eos: bool
    """Whether the model's own do not."""
    trace: bool
    """Whether every device returns the tensors that it receives."""
    values: Tensors
    known: tuple[tuple[Count, ...], ...] = ()
    """Tokens of each sequence that are known already: they are computed, but not told again."""


class Token(Message, frozen=True, kw_only=True):
    """The tokens of one step."""

    route: ClassVar[str] = "source → client"
    ticket: Ticket
    step: fields.TokenNumber
    tokens: tuple[Count | None, ...]
    """One a sequence; null where it has ended before."""
    finish: tuple[str, ...]
    """The reason why each sequence has ended, `stop` or `length`, or empty."""


class Stats(Message, frozen=True, kw_only=True):
    """`timings` of one device, passed on."""

    route: ClassVar[str] = "source → client"
    ticket: Ticket
    device: fields.Reporter
    columns: fields.Columns
    values: tuple[TensorSpec, ...]
    """The table."""


class Trace(Message, frozen=True, kw_only=True):
    """`crossed`, passed on."""

    route: ClassVar[str] = "source → client"
    ticket: Ticket
    device: fields.Reporter
    peer: str
    """As in `crossed`."""
    step: fields.StepNumber
    values: Tensors


class Result(Message, frozen=True, kw_only=True):
    """The end of a request that succeeded; output tensors lie in the frames."""

    route: ClassVar[str] = "source → client"
    ticket: Ticket
    tokens: tuple[tuple[Count, ...], ...]
    """Token ids that each sequence got."""
    finish: tuple[str, ...]
    """Why each sequence ended: `stop` or `length`."""
    elapsed_s: float
    """Seconds since the source took the request."""
    replayed: Count = 0
    """Steps that were computed again, since a device was lost, restarted or relieved."""
    mismatches: Count = 0
    """Tokens of those that came out otherwise than before; the client keeps the first ones."""
    values: Tensors


class Error(Message, frozen=True, kw_only=True):
    """The end of a request that failed."""

    route: ClassVar[str] = "source → client"
    ticket: Ticket
    problem: Reason


class Cancel(Message, frozen=True, kw_only=True):
    """The request shall end."""

    route: ClassVar[str] = "client → source"
    ticket: Ticket


class Place(Message, frozen=True, kw_only=True):
    """Another placement of the build shall be in force; the frames are its text, and its epoch does not count."""

    route: ClassVar[str] = "client → source"
    ticket: Ticket


class Placed(Message, frozen=True, kw_only=True):
    """The placement that was asked for is in force."""

    route: ClassVar[str] = "source → client"
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

    route: ClassVar[str] = "client → source"
    ticket: Ticket
    from_step: fields.TokenNumber
    """The first token that it has not got."""


# -- clients and a device that measures


class Measure(Message, frozen=True, kw_only=True):
    """A sub-module shall be timed, alone."""

    route: ClassVar[str] = "client → measuring device"
    ticket: Ticket
    submodule: str
    """Its name."""
    dims: dict[str, Count]
    """Size of every symbol."""
    position: tuple[Count, ...]
    """Valid tokens in the cache of each sequence."""
    length: tuple[Count, ...]
    """Valid new tokens of each sequence."""
    sample: str
    """Name of the logits if sampling is part of the time; else empty."""
    repeats: Count
    """Times to compute it."""
    touch_bytes: Count
    """Other memory to read before each repeat."""


class Measured(Message, frozen=True, kw_only=True):
    """Seconds of `measure`."""

    route: ClassVar[str] = "measuring device → client"
    ticket: Ticket
    load_s: float
    """Seconds to load the sub-module."""
    reset_s: float
    """Seconds to reset its states."""
    seconds: tuple[float, ...]
    """Seconds of each repeat."""
    delays: tuple[float, ...]
    """Seconds of each repeat in which threads of the process waited for a core."""


class Join(Message, frozen=True, kw_only=True):
    """The device shall be one of a ring of one or two."""

    route: ClassVar[str] = "client → measuring device"
    ticket: Ticket
    ring: tuple[str, ...]
    """Its devices, the source first."""
    peers: dict[str, str]
    """Addresses of the ring's devices."""


class Joined(Message, frozen=True, kw_only=True):
    """The device joins."""

    route: ClassVar[str] = "measuring device → client"
    ticket: Ticket


AnyMessage = Union[  # noqa: UP007  (get_args needs it so)
    Hello, Welcome, Refuse, Data, Ack, Ready, Unready, Close, Fail, Timings, Crossed, Ping, Pong, Shutdown,
    Prepare, Prepared, Commit, Abort, Want, Rows,
    Submit, Token, Stats, Trace, Result, Error, Cancel, Place, Placed, Resume, Measure, Measured, Join, Joined,
]  # fmt: skip
"""Every kind of message."""

SourceReply = Token | Stats | Trace | Result | Error | Pong
"""Messages of the source to a client that was welcomed."""
MeasuringReply = Measured | Joined | Error | Pong
"""Messages of a measuring device to a client that was welcomed."""
MeasuringRequest = Measure | Join | Ping | Shutdown
"""Messages of clients to a measuring device."""
