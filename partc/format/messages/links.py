"""Messages of every connection: the handshake, and values on their way."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from partc.format import fields
from partc.format.fields import Count, Digest
from partc.format.message_parts import Likelies, Opening, Reason, Row, Tensors
from partc.format.messages.base import VERSION, Message


class Hello(Message, frozen=True, kw_only=True):
    """First message of a connection. Whoever opened it tells who it is and what it runs."""

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
    shares: bool = False
    """Whether its runner takes steps of several requests; the source makes none unless all devices of the ring do."""


class Welcome(Message, frozen=True, kw_only=True):
    """The connection is accepted."""

    name: str
    """Device that answers."""
    incarnation: fields.Incarnation
    epoch: fields.Epoch
    next: Count
    """`seq` that it awaits on this link, in `epoch`."""
    first_request: Count = 0
    """From the source: requests below this number are over."""
    info: Annotated[dict[str, bool | int | float | str], Meta(max_length=64)]
    """Facts for whoever connected: `patience_s`, or the machine's description from a device that measures."""


class Refuse(Message, frozen=True, kw_only=True):
    """The connection is not accepted: another build, another placement, another name than the key's."""

    problem: Reason


class Data(Message, frozen=True, kw_only=True):
    """Values for a step; one frame a tensor."""

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
    """Sequences of the step: those of one request, whose rows follow each other; one each of several requests that
    generate; or consecutive tokens of one request, in one row of the states."""
    values: Tensors
    open: tuple[Opening, ...] = ()
    """One entry for each request whose step 0 this is."""
    likely: Likelies = ()
    busy_s: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    """Seconds that the busiest device so far has computed for this step; null: the source does not want to know, since
    it guesses no tokens."""


class Ack(Message, frozen=True, kw_only=True):
    """Everything below `seq` has arrived."""

    session: fields.Session
    epoch: fields.Epoch
    seq: Count
    """The number that is awaited next."""
