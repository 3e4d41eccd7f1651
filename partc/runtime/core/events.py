"""Events: all that can happen to a device."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.messages import AnyMessage
from partc.format.readings import Readings

Origin = str | bytes
"""The other end of a connection: the device that this one connected to, or the route of a connection to this one."""


class Loaded(Struct, frozen=True):
    """The engine has loaded all sub-modules that the placement in force needs, or the one of a `Load`."""

    epoch: int = 0
    """Epoch that `Load` named."""


class LoadFailed(Struct, frozen=True):
    """The failure of a `Load`."""

    epoch: int
    error: PartcError


class RowsRead(Struct, frozen=True):
    """The result of a `ReadRows`; they come in the order of the commands."""

    rows: Array
    """[rows, heads, d]"""


class Connected(Struct, frozen=True):
    """A connection that this device opened stands."""

    peer: str
    address: str = ""
    """HOST:PORT at which this device can be reached from there; empty: as the placement says."""


class Disconnected(Struct, frozen=True):
    """A connection is closed; one that this device opened will be tried again."""

    origin: Origin


class Rejected(Struct, frozen=True):
    """This device and a peer do not have each other's keys."""

    peer: str


class Received(Struct, frozen=True):
    """A message arrived."""

    origin: Origin
    user: str | None
    """The name that the key of the connection belongs to; None without keys."""
    message: AnyMessage
    frames: Sequence[memoryview] = ()


class Unreadable(Struct, frozen=True):
    """A message arrived whose header cannot be read."""

    origin: Origin
    error: RunError


class Computed(Struct, frozen=True):
    """The result of a `Compute` command."""

    values: Sequence[Array]
    seconds: float
    """Time that it took."""


class ComputeFailed(Struct, frozen=True):
    """The failure of a `Compute` command."""

    error: PartcError


class SensorsRead(Struct, frozen=True):
    """The result of a `ReadSensors` command."""

    readings: Readings


class Tick(Struct, frozen=True):
    """The time that `Device.deadline` named has come."""


Event = (
    Loaded | LoadFailed | RowsRead | Connected | Disconnected | Rejected | Received | Unreadable | Computed
    | ComputeFailed | SensorsRead | Tick
)  # fmt: skip
