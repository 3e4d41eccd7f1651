"""A device and its events, one by one, for tests of the device as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from partc.format.dtypes import Array
from partc.format.frames import to_frame
from partc.format.message_parts import Opening, Row, TensorSpec
from partc.format.messages import CLIENT, AnyMessage, Data, Ready, Welcome
from partc.runtime.core.commands import Command, Log, Send
from partc.runtime.core.device.device import Device
from partc.runtime.core.events import (
    Computed,
    Connected,
    Event,
    Loaded,
    Origin,
    Received,
)
from partc.runtime.core.start import Start
from tests.runtime.bundles import HIDDEN
from tests.runtime.core.roles import GREEDY, hello, roles, submit

PLACEMENT = bytes.fromhex(roles()["a"].placement_id)
START = Start(incarnation=5, first_request=100)
CLIENT_ROUTE = b"route of client"
M = TypeVar("M")


def without_logs(commands: Iterable[Command]) -> tuple[list[Command], list[Log]]:
    """The commands without lines of the log, and these."""
    found = list(commands)
    logs = [command for command in found if isinstance(command, Log)]
    return [command for command in found if not isinstance(command, Log)], logs


class Life:
    """A device, and its events one by one; all that it sends is kept."""

    def __init__(self, device: str) -> None:
        self.device = Device(roles()[device], START, 0.0)
        self.name = device
        self.now = 0.0
        self.commands: list[Command] = []
        """All commands so far, but lines of the log."""
        self.logs: list[Log] = []
        """The lines of the log so far."""

    def on(self, event: Event, after_s: float = 0.0) -> list[Command]:
        self.now += after_s
        commands, logs = without_logs(self.device.on(event, self.now))
        self.commands += commands
        self.logs += logs
        return commands

    def receive(
        self, message: AnyMessage, origin: Origin, frames: Sequence[bytes | memoryview] = ()
    ) -> list[Command]:
        return self.on(Received(origin, None, message, [memoryview(frame) for frame in frames]))

    def greeted(self, name: str) -> bytes:
        """Somebody connects and greets; the route of the connection."""
        route = CLIENT_ROUTE if name == CLIENT else name.encode()
        self.receive(hello(name), route)
        return route

    def link(self, peer: str, expected: int = 0) -> list[Command]:
        """A connection of this device comes up, and is welcomed."""
        self.on(Connected(peer))
        return self.receive(Welcome(name=peer, incarnation=1, epoch=0, next=expected, info={}), peer)


def sent(kind: type[M], commands: Iterable[Command]) -> list[M]:
    return [
        command.message
        for command in commands
        if isinstance(command, Send) and isinstance(command.message, kind)
    ]


def ready(number: int = 0) -> Ready:
    return Ready(next_request=number, placement=PLACEMENT, epoch=0, incarnation=9)


def values(*names: str, sequence: int = 3) -> list[Array]:
    return [np.ones((1, sequence, HIDDEN), np.float32) for _ in names]


def data(
    name: str, seq: int = 0, request: int = 100, step: int = 0, trace: bool = False, **changes: Any
) -> tuple[Data, list[memoryview]]:
    """A message of a step of [1, 2, 5] in slot 0, and its frames."""
    sequence, position = (1, 2 + step) if step else (3, 0)
    array: Array = np.array([4]) if name == "token" else np.ones((1, sequence, HIDDEN), np.float32)
    facts: dict[str, Any] = {
        "session": 9,
        "epoch": 0,
        "seq": seq,
        "phase": "decode" if step else "prefill",
        "dims": {"batch": 1, "sequence": sequence},
        "rows": (Row(request, 0, step, position, sequence),),
        "values": (TensorSpec(name, array.dtype.name, array.shape),),
        "open": () if step else (Opening(request, GREEDY, trace),),
    }
    return Data(**{**facts, **changes}), [to_frame(array)]


def middle() -> Life:
    """Device b of a → b → c, with its links up and part of the ring."""
    life = Life("b")
    life.on(Loaded())
    life.greeted("a")
    life.link("a")
    life.link("c")
    life.commands.clear()
    return life


def source() -> Life:
    """Device a of a complete ring, with a client."""
    life = Life("a")
    life.on(Loaded())
    for name in ("b", "c"):
        life.greeted(name)
        life.link(name)
        life.receive(ready(), name.encode())
    life.greeted(CLIENT)
    life.commands.clear()
    return life


def opened(life: Life, **changes: Any) -> list[Command]:
    """A request begins at the source: it computes its first sub-module."""
    return life.receive(submit([1, 2, 5], **changes), CLIENT_ROUTE)


def on_its_way(**changes: Any) -> Life:
    """The source, whose request 100 is on its way around the ring."""
    life = source()
    opened(life, **changes)
    life.on(Computed(values("embed", "hidden_1"), 0.1))
    return life


def arrived(message: tuple[Data, list[memoryview]], origin: Origin) -> tuple[Data, Origin, list[memoryview]]:
    """Arguments of `Life.receive` for a message with frames."""
    return message[0], origin, message[1]
