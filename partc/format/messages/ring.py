"""Messages between the source and the other devices."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from partc.format import fields
from partc.format.fields import Count, Text
from partc.format.message_parts import Reason, Tensors, TensorSpec
from partc.format.messages.base import Message


class Ready(Message, frozen=True, kw_only=True):
    """This device has loaded its sub-modules, and all of its links stand."""

    next_request: Annotated[int, Meta(ge=0, le=2**62)]
    """It has been told of requests below this number only."""
    placement: fields.PlacementId
    epoch: fields.Epoch
    incarnation: fields.Incarnation


class Unready(Message, frozen=True, kw_only=True):
    """A link of this device broke."""

    lost: str
    """Device at its other end."""


class Addresses(Message, frozen=True, kw_only=True):
    """Addresses of devices. A phone that returns has another one; whoever sends to it connects there."""

    addresses: Annotated[dict[str, str], Meta(max_length=256)]
    """Device → HOST:PORT, of those that told one in `hello`."""


class Close(Message, frozen=True, kw_only=True):
    """The request is over."""

    request: fields.RequestNumber
    report: bool
    """Whether its timings are wanted."""


class Fail(Message, frozen=True, kw_only=True):
    """A request cannot go on because of what happened here."""

    request: Count | None
    """Null: no request in flight can."""
    earlier: bool
    """Whether no request before it can, either: the link that brought it is not to be trusted."""
    problem: Reason


class Timings(Message, frozen=True, kw_only=True):
    """The times of a request: one float64 table (steps, columns), in frames of at most 64 KiB."""

    request: fields.RequestNumber
    device: fields.Reporter
    columns: fields.Columns
    values: tuple[TensorSpec, ...]
    """The table."""


class Crossed(Message, frozen=True, kw_only=True):
    """Tensors of a traced request, in frames of at most 64 KiB."""

    request: fields.RequestNumber
    device: fields.Reporter
    peer: str
    """Sender of the tensors; the device itself for the logits that it samples."""
    step: fields.StepNumber
    values: Tensors


class Ping(Message, frozen=True, kw_only=True):
    """A question whether the loop of the other end is alive."""

    token: fields.Echo = 0


class Pong(Message, frozen=True, kw_only=True):
    """The answer to `ping`."""

    token: fields.Echo
    computing: bool
    """Whether the engine works for a request."""
    doing: Text
    """The message or computation that the device waits for, for people."""


class Shutdown(Message, frozen=True, kw_only=True):
    """The runners shall end."""
