"""The messages of wire 2: one struct a kind.

A message is a header and raw frames behind it. The header is one msgpack map: `kind` names the struct, the other keys
are its fields, exactly. Nothing is pickled and nothing is compressed. The structs check types and ranges while they
are decoded; what depends on a build (names, sizes, positions) is checked by whoever takes the message.

Their bytes: `partc.format.codec`, `partc.format.frames`. docs/wire.md has tables that are written from the structs.

```
base        the base of all messages
links       the handshake of every connection, and values on their way
ring        the source and the other devices
changes     changes of placement, and the rows that move for them
clients     clients and the source
measuring   clients and a device that measures
watching    those who watch a ring
rights      who may send which message to whom, and when
```
"""

from __future__ import annotations

from typing import Union

from partc.format.messages.base import CLIENT, VERSION, Message
from partc.format.messages.changes import Abort, Commit, Prepare, Prepared, Rows, Want
from partc.format.messages.clients import (
    Cancel,
    Error,
    Place,
    Placed,
    Result,
    Resume,
    Stats,
    Submit,
    Token,
    Trace,
)
from partc.format.messages.links import Ack, Data, Hello, Refuse, Welcome
from partc.format.messages.measuring import Join, Joined, Measure, Measured
from partc.format.messages.ring import (
    Addresses,
    Close,
    Crossed,
    Fail,
    Ping,
    Pong,
    Ready,
    Shutdown,
    Timings,
    Unready,
)
from partc.format.messages.watching import Sense, Sensed, Status, Watch

AnyMessage = Union[  # noqa: UP007  (get_args needs it so)
    Hello, Welcome, Refuse, Data, Ack, Ready, Unready, Addresses, Close, Fail, Timings, Crossed, Ping, Pong, Shutdown,
    Prepare, Prepared, Commit, Abort, Want, Rows,
    Submit, Token, Stats, Trace, Result, Error, Cancel, Place, Placed, Resume, Measure, Measured, Join, Joined,
    Watch, Sense, Sensed, Status,
]  # fmt: skip
"""Every kind of message."""

SourceReply = Token | Stats | Trace | Result | Error | Placed | Pong | Status
"""Messages of the source to a client that was welcomed."""
MeasuringReply = Measured | Joined | Error | Pong
"""Messages of a measuring device to a client that was welcomed."""
MeasuringRequest = Measure | Join | Ping | Shutdown
"""Messages of clients to a measuring device."""

__all__ = [
    "CLIENT",
    "VERSION",
    "Abort",
    "Ack",
    "Addresses",
    "AnyMessage",
    "Cancel",
    "Close",
    "Commit",
    "Crossed",
    "Data",
    "Error",
    "Fail",
    "Hello",
    "Join",
    "Joined",
    "Measure",
    "Measured",
    "MeasuringReply",
    "MeasuringRequest",
    "Message",
    "Ping",
    "Place",
    "Placed",
    "Pong",
    "Prepare",
    "Prepared",
    "Ready",
    "Refuse",
    "Result",
    "Resume",
    "Rows",
    "Sense",
    "Sensed",
    "Shutdown",
    "SourceReply",
    "Stats",
    "Status",
    "Submit",
    "Timings",
    "Token",
    "Trace",
    "Unready",
    "Want",
    "Watch",
    "Welcome",
]
