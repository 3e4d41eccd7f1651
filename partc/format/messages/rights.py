"""The right to send: for each kind of message who may send it to whom, and when.

This is the one table of it. Both runners hold every message of a connection against it before anything else looks at
the message (`core/links/rights` of both), and docs/wire.md shows it. A message outside its right is ignored: no process
ends for it, nothing is kept of it. An answer that nobody asked for is refused as well.

`When` says what must hold besides. The direction of a connection (`FIRST`, `BACK`) is checked with the parties; the
rest by the part that the message is for, since it alone knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from partc.format.messages.base import Message
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


class Party(Enum):
    """A participant, as its key and its greeting show it."""

    ANY = "any"
    CLIENT = "client"
    DEVICE = "device"
    """Any device of the build, the source too."""
    SOURCE = "source"
    METER = "measuring device"


class When(Enum):
    """The time at which a message may come."""

    EVER = "at any time"
    FIRST = "first on a connection that the sender opened"
    BACK = "back, over a connection that the receiver opened"
    AWAITED = "as the programs in force await it, in their epoch"
    OWN = "about the sender itself"
    ASKED = "as an answer"
    CHANGE = "for the change that the source prepares, in the life that it asked"
    PREPARED = "once the receiver has prepared that change, in that life"
    GIVEN = "while a change is prepared that gives the sender that sub-module, for requests of that change"
    WANTED = "as the answer to `want`, or to the device that keeps a copy of the sender's sub-module"
    KNOWN = "for a request of which the sender knows the ticket"


class Right(NamedTuple):
    """A sender, a receiver, and the time at which a message may pass between them."""

    sender: Party
    receiver: Party
    when: When = When.EVER


_ANY, _CLIENT, _DEVICE, _SOURCE, _METER = Party
_TO_CLIENT = (Right(_SOURCE, _CLIENT, When.ASKED),)
RIGHTS: Mapping[type[Message], tuple[Right, ...]] = {
    Hello: (Right(_ANY, _ANY, When.FIRST),),
    Welcome: (Right(_ANY, _ANY, When.BACK),),
    Refuse: (Right(_ANY, _ANY, When.BACK),),
    Data: (Right(_DEVICE, _DEVICE, When.AWAITED),),
    Ack: (Right(_DEVICE, _DEVICE, When.BACK),),
    Ready: (Right(_DEVICE, _SOURCE, When.OWN),),
    Unready: (Right(_DEVICE, _SOURCE, When.OWN),),
    Addresses: (Right(_SOURCE, _DEVICE),),
    Close: (Right(_SOURCE, _DEVICE),),
    Fail: (Right(_DEVICE, _SOURCE),),
    Timings: (Right(_DEVICE, _SOURCE, When.OWN),),
    Crossed: (Right(_DEVICE, _SOURCE, When.OWN),),
    Ping: (Right(_SOURCE, _DEVICE), Right(_CLIENT, _SOURCE), Right(_DEVICE, _DEVICE, When.BACK)),
    Pong: (Right(_DEVICE, _DEVICE, When.ASKED), *_TO_CLIENT),
    Shutdown: (Right(_CLIENT, _SOURCE), Right(_SOURCE, _DEVICE)),
    Prepare: (Right(_SOURCE, _DEVICE),),
    Prepared: (Right(_DEVICE, _SOURCE, When.CHANGE),),
    Commit: (Right(_SOURCE, _DEVICE, When.PREPARED),),
    Abort: (Right(_SOURCE, _DEVICE),),
    Want: (Right(_DEVICE, _DEVICE, When.GIVEN),),
    Rows: (Right(_DEVICE, _DEVICE, When.WANTED),),
    Submit: (Right(_CLIENT, _SOURCE),),
    Token: _TO_CLIENT,
    Stats: _TO_CLIENT,
    Trace: _TO_CLIENT,
    Result: _TO_CLIENT,
    Error: _TO_CLIENT,
    Cancel: (Right(_CLIENT, _SOURCE, When.KNOWN),),
    Place: (Right(_CLIENT, _SOURCE),),
    Placed: _TO_CLIENT,
    Resume: (Right(_CLIENT, _SOURCE, When.KNOWN),),
    Measure: (Right(_CLIENT, _METER),),
    Measured: (Right(_METER, _CLIENT, When.ASKED),),
    Join: (Right(_CLIENT, _METER),),
    Joined: (Right(_METER, _CLIENT, When.ASKED),),
    Watch: (Right(_CLIENT, _SOURCE),),
    Sense: (Right(_SOURCE, _DEVICE),),
    Sensed: (Right(_DEVICE, _SOURCE, When.OWN),),
    Status: _TO_CLIENT,
}
"""Kind of message → the rights to send it; one of them is enough."""


def route_text(kind: type[Message]) -> str:
    """`device → source`, of every right."""
    return ", ".join(f"{right.sender.value} → {right.receiver.value}" for right in RIGHTS[kind])


def when_text(kind: type[Message]) -> str:
    """The times of every right, each once."""
    return "; ".join(dict.fromkeys(right.when.value for right in RIGHTS[kind]))
