"""Two cores as one device: each event goes to both, and their commands and deadlines must be the same."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from partc.format.message_parts import Problem
from partc.format.messages import Pong
from partc.format.role import Role
from partc.runtime.core.commands import Command, Log
from partc.runtime.core.device.device import Device
from partc.runtime.core.events import Event
from partc.runtime.core.start import Start
from partc.runtime.virtual import node
from tests.native.device import NativeDevice

_IN_WORDS = ("dropped", "misfit", "refused", "request-failed", "stalled")
"""Lines of the log whose reason is that of a problem."""


class Twin:
    """A device of Python, and beside it one of C++."""

    def __init__(self, process: subprocess.Popen[bytes], role: Role, start: Start, now: float) -> None:
        self._python, self._native = Device(role, start, now), NativeDevice(process, role, start, now)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a test looks at is Python's."""
        return getattr(self._python, name)

    def on(self, event: Event, now: float) -> list[Command]:
        """Take an event."""
        commands, others = self._python.on(event, now), self._native.on(event, now)
        expected, found = plain(commands), plain(others)
        assert found == expected, f"{event} at {now}:\n{expected}\n{found}"
        assert self._native.deadline == self._python.deadline, f"{event} at {now}"
        return commands


def plain(thing: Any) -> Any:
    """Commands as data that can be compared; words for people are left out."""
    match thing:
        case np.ndarray():
            return [thing.dtype.name, thing.shape, thing.tobytes()]
        case memoryview() | bytes():
            return bytes(thing)
        case Problem(cause=cause, where=where):
            return [cause, where]
        case Pong(token=token, computing=computing):
            return [token, computing]
        case Log(name, fields) if name in _IN_WORDS:
            return [name, {key: value for key, value in fields.items() if key != "reason"}]
        case msgspec.Struct():
            fields = {name: plain(getattr(thing, name)) for name in thing.__struct_fields__}
            return [type(thing).__name__, fields]
        case BaseException():
            return [type(thing).__name__, getattr(thing, "cause", ""), getattr(thing, "where", None)]
        case dict():
            return {key: plain(value) for key, value in thing.items()}
        case list() | tuple():
            return [plain(item) for item in thing]
        case _:
            return thing


@contextmanager
def twins(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Devices in virtual time are twins."""

    def made(role: Role, start: Start, now: float) -> Twin:
        return Twin(process, role, start, now)

    with patch.object(node, "Device", made):
        yield
