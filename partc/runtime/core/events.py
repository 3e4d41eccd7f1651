"""Events: all that can happen to a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.messages import AnyMessage

Origin = str | bytes
"""The other end of a connection: the device that this one connected to, or the route of a connection to this one."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The engine has loaded all sub-modules."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection that this device opened stands."""

    peer: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection is closed; one that this device opened will be tried again."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Rejected:
    """This device and a peer do not have each other's keys."""

    peer: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived."""

    origin: Origin
    user: str | None
    """The name that the key of the connection belongs to; None without keys."""
    message: AnyMessage
    frames: Sequence[memoryview] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message arrived whose header cannot be read."""

    origin: Origin
    error: RunError


@dataclass(frozen=True, slots=True)
class Computed:
    """What was to be computed or sampled is there."""

    values: Sequence[Array]
    seconds: float
    """Time that it took."""


@dataclass(frozen=True, slots=True)
class ComputeFailed:
    """What was to be computed or sampled failed."""

    error: PartcError


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `Device.deadline` named has come."""


Event = Loaded | Connected | Disconnected | Rejected | Received | Unreadable | Computed | ComputeFailed | Tick
