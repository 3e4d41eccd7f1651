"""The links of one device, and the events of its connections, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from partc.format.dtypes import Array
from partc.format.frames import to_frame
from partc.format.message_parts import Opening, Row, TensorSpec
from partc.format.messages import CLIENT, Ack, AnyMessage, Data, Message, Welcome
from partc.runtime.core.actions import Action, Failed, Greeted
from partc.runtime.core.commands import Send
from partc.runtime.core.events import Origin, Received
from partc.runtime.core.links.links import Links
from partc.runtime.core.step import Step
from tests.runtime.bundles import HIDDEN, Build, language_model
from tests.runtime.core.roles import GREEDY, hello, roles

ROUTE = b"route"
ZEROS = np.zeros((1, 1, HIDDEN), np.float32)


class End:
    """The links of a device, and the events of its connections."""

    def __init__(
        self,
        device: str = "b",
        model: Callable[..., Build] = language_model,
        greeted_by: str | None = "a",
        incarnation: int = 1,
    ) -> None:
        self.links = Links(roles(model)[device], incarnation, {"patience_s": 5.0})
        self.sent: list[Send] = []
        """All that it sent."""
        if greeted_by is not None:
            placement = bytes.fromhex(self.links.role.placement_id)
            greeting = hello(greeted_by, placement=placement)
            assert self.receive(greeting) == ([] if greeted_by == CLIENT else [Greeted(greeting)])

    def take(self, actions: Iterable[Action]) -> list[Action]:
        """What others in the device are told."""
        told = list(actions)
        self.sent += [action for action in told if isinstance(action, Send)]
        return [action for action in told if not isinstance(action, Send)]

    def receive(
        self,
        message: AnyMessage,
        frames: Sequence[bytes | memoryview] = (),
        origin: Origin = ROUTE,
        now: float = 0.0,
        user: str | None = None,
    ) -> list[Action]:
        came = [memoryview(frame) for frame in frames]
        return self.take(self.links.received(Received(origin, user, message, came), now))

    def data(self, seq: int, name: str = "hidden_1", now: float = 0.0, **changes: Any) -> list[Action]:
        return self.receive(data(seq, name, **changes), [to_frame(ZEROS)], now=now)

    def acknowledged(self) -> list[int]:
        return [item.message.seq for item in self.sent if isinstance(item.message, Ack)]

    def out(self, peer: str, step: Step, names: tuple[str, ...], arrays: Sequence[Array]) -> Send:
        """Values that leave at once."""
        send = self.links.outgoing.send(peer, step, names, arrays)
        assert send is not None
        return send

    def last(self) -> Message:
        return self.sent[-1].message

    def link(self, peer: str, expected: int = 0) -> list[Action]:
        """A connection to a device comes up, and it answers."""
        self.take(self.links.connected(peer))
        return self.receive(welcome(peer, expected), origin=peer)


def welcome(peer: str, expected: int = 0) -> Welcome:
    return Welcome(name=peer, incarnation=1, epoch=0, next=expected, info={})


def data(seq: int, name: str = "hidden_1", request: int | None = None, **changes: Any) -> Data:
    """Step 0 of a request of one token; every message is of another request."""
    number = seq if request is None else request
    facts: dict[str, Any] = {
        "session": 9,
        "epoch": 0,
        "seq": seq,
        "phase": "prefill",
        "dims": {"batch": 1, "sequence": 1},
        "rows": (Row(number, 0, 0, 0, 1),),
        "values": (TensorSpec(name, "float32", (1, 1, HIDDEN)),),
        "open": (Opening(number, GREEDY),),
    }
    return Data(**{**facts, **changes})


def later(seq: int, step: int, **changes: Any) -> Data:
    """A decode step of request 0."""
    return data(seq, phase="decode", rows=(Row(0, 0, step, step, 1),), open=(), **changes)


def failure(actions: list[Action]) -> Failed:
    (failed,) = actions
    assert isinstance(failed, Failed)
    return failed
