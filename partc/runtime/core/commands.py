"""Commands: all that a device asks of the shell around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from partc.errors import PartcError
from partc.format.dtypes import Array
from partc.format.logs import Value
from partc.format.message_parts import Sampling
from partc.format.messages import Message
from partc.runtime.core.events import Origin

Frame = bytes | memoryview


class Send(Struct, frozen=True):
    """Queue a message without waiting. Where no connection stands it is lost: links repeat what matters."""

    origin: Origin
    message: Message
    frames: Sequence[Frame] = ()


class Compute(Struct, frozen=True):
    """Run a sub-module, and answer with `Computed` or `ComputeFailed`. At most one is under way."""

    submodule: str
    slot: int
    inputs: Sequence[Array]
    dims: Mapping[str, int]
    resets: bool
    """Whether the states of the slot begin anew before, for sizes `dims`."""
    others: tuple[int, ...] = ()
    """The slots of the rows behind that of `slot`, where these are steps of their own: those of the other requests of a
    shared step, or the same slot again for tokens that follow one another. No row depends on one behind it."""


class Draw(Struct, frozen=True):
    """Sample tokens from logits, and answer as for `Compute`; counts as computing.

    The values are the tokens, int64[batch]; where `sampling.likely` is not 0, then ids int64[batch, likely] and
    logarithms of probabilities float64[batch, likely].
    """

    logits: npt.NDArray[np.float32]
    """(batch, vocabulary)"""
    sampling: Sampling
    positions: Sequence[int]
    """(batch,) index in its sequence that each new token will have."""
    others: tuple[Sampling, ...] = ()
    """How to choose in the rows behind the first, where these are steps of their own: each is drawn as that alone."""


class Load(Struct, frozen=True):
    """Load sub-modules while the device goes on working, and answer with `Loaded` or `LoadFailed`."""

    epoch: int
    """The placement that needs them."""
    submodules: tuple[str, ...]


class Release(Struct, frozen=True):
    """Give back the memory of sub-modules, once the `Compute` under way is over."""

    submodules: tuple[str, ...]


class Reset(Struct, frozen=True):
    """The states of a slot begin anew, for sizes `dims`: rows are about to be written."""

    slot: int
    dims: Mapping[str, int]


class ReadRows(Struct, frozen=True):
    """Copy rows of a state, in the order of all commands, and answer with `RowsRead`."""

    submodule: str
    slot: int
    state: str
    row: int
    """Number of the sequence in the request, from 0."""
    begin: int
    end: int


class WriteRows(Struct, frozen=True):
    """Write rows of a state, in the order of all commands."""

    submodule: str
    slot: int
    state: str
    row: int
    begin: int
    rows: Array
    """[rows, heads, d]"""


class Connect(Struct, frozen=True):
    """Connect to a device, or to where it is now, and again after every break."""

    peer: str
    address: str
    """HOST:PORT; empty: as it was given at start."""


class ReadSensors(Struct, frozen=True):
    """Read the sensors as soon as that delays nothing, and answer with `SensorsRead`."""


class Announce(Struct, frozen=True):
    """Tell whoever started this process that the ring stands (the source), or this device's part of it."""


class Log(Struct, frozen=True):
    """Write a line of the log."""

    event: str
    """Name in the table of events (`partc/format/logs.py`), which has its fields as well."""
    fields: Mapping[str, Value]


class Leave(Struct, frozen=True):
    """End the process: it was asked to (no error), or it cannot be part of this ring."""

    error: PartcError | None = None


Command = (
    Send | Compute | Draw | Load | Release | Reset | ReadRows | WriteRows | Connect | ReadSensors | Announce | Log
    | Leave
)  # fmt: skip
COMMANDS = (
    Send, Compute, Draw, Load, Release, Reset, ReadRows, WriteRows, Connect, ReadSensors, Announce, Log, Leave,
)  # fmt: skip
"""The same for `isinstance`: a union that is made anew costs a step of a ring 1 µs."""
