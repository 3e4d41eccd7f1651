"""Commands: all that a device asks of the shell around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from partc.errors import PartcError
from partc.format.dtypes import Array
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


class Draw(Struct, frozen=True):
    """Sample tokens from logits, and answer as for `Compute`; counts as computing."""

    logits: npt.NDArray[np.float32]
    """(batch, vocabulary)"""
    sampling: Sampling
    positions: Sequence[int]
    """(batch,) index in its sequence that each new token will have."""


class Announce(Struct, frozen=True):
    """Tell whoever started this process that the ring stands (the source), or this device's part of it."""


class Leave(Struct, frozen=True):
    """End the process: it was asked to (no error), or it cannot be part of this ring."""

    error: PartcError | None = None


Command = Send | Compute | Draw | Announce | Leave
