"""A participant that has a key, but does not keep to the protocol."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from partc.format.messages import AnyMessage, Data, Hello, Message
from partc.format.role import load_role
from partc.runtime.core.events import Connected, Received
from partc.runtime.shell.keys import load_client_keys, load_device_keys
from partc.runtime.shell.limits import client_frame_limit
from partc.runtime.shell.transport import Transport
from tests.runtime.bundles import PLAN

_SESSIONS = count(1)
"""A receiver goes on with a session that it knows, so each impostor begins one of its own."""


class Impostor:
    """A client with the key of a device, which sends what it likes to another device."""

    def __init__(self, build: Path, name: str, target: str, address: str) -> None:
        role = load_role(build / "devices" / target)
        keys = load_client_keys(build) if name == "client" else load_device_keys(build / "devices" / name)
        self.transport = Transport(keys, client_frame_limit(role), 5.0)
        self.transport.connect(target, address)
        self.target, self.name, self.session = target, name, next(_SESSIONS)
        self.placement = bytes.fromhex(role.placement_id)
        self.until(Connected)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.transport.close()

    def until(self, kind: type) -> list[object]:
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            events = self.transport.poll(0.1)
            if any(isinstance(event, kind) for event in events):
                return list(events)
        raise AssertionError(f"no {kind.__name__}")

    def send(self, message: Message, *frames: bytes) -> None:
        """Send a message; data belongs to this impostor's session."""
        if isinstance(message, Data):
            message = replace(message, session=self.session)
        self.transport.send(self.target, message, frames)

    def greet(self, name: str, plan: str = PLAN) -> AnyMessage:
        """Say hello; the answer."""
        digest = bytes.fromhex(plan)
        build = {"plan": digest, "placement": self.placement, "epoch": 0}
        self.send(Hello(name=name, session=self.session, incarnation=1, **build))  # type: ignore[arg-type]
        return self.answer()

    def answer(self) -> AnyMessage:
        return next(event.message for event in self.until(Received) if isinstance(event, Received))
