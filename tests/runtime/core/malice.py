"""Messages that their sender may not send, for every kind, sender and connection; and a device that gets them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from partc.format.messages import CLIENT, Message, Ready, Welcome
from partc.format.messages.rights import RIGHTS, Party, When
from partc.format.role import Role
from partc.runtime.core.device.device import Device
from partc.runtime.core.events import Connected, Event, Loaded, Origin, Received
from partc.runtime.core.start import Start
from tests.runtime.core.roles import hello, roles, submit

START = Start(incarnation=5, first_request=100)
NewDevice = Callable[..., Any]
"""Made as `Device` is; one of another implementation, too."""


@dataclass(frozen=True)
class Case:
    """A message of a kind that comes to a device."""

    kind: type[Message]
    receiver: str
    sender: str
    origin: Origin

    def __str__(self) -> str:
        over = "its own connection" if isinstance(self.origin, bytes) else f"that of {self.receiver}"
        return f"{self.kind.__name__.lower()} from {self.sender} to {self.receiver} over {over}"

    @property
    def is_right(self) -> bool:
        """Whether the table has a right for it."""
        senders = {Party.ANY, Party.CLIENT if self.sender == CLIENT else Party.DEVICE}
        receivers = {Party.ANY, Party.DEVICE}
        senders |= {Party.SOURCE} if self.sender == "a" else set()
        receivers |= {Party.SOURCE} if self.receiver == "a" else set()
        lacks = When.BACK if isinstance(self.origin, bytes) else When.FIRST
        return any(
            r.sender in senders and r.receiver in receivers and r.when != lacks for r in RIGHTS[self.kind]
        )

    @property
    def is_answer(self) -> bool:
        """Whether such a message is an answer, which nobody has asked for here."""
        return all(right.when is When.BACK for right in RIGHTS[self.kind])


def wrong_cases() -> Iterator[Case]:
    """Every kind from everybody who may not send it so."""
    ways: list[tuple[str, str, Origin]] = [
        ("a", CLIENT, b"client"),
        ("a", "b", b"b"),
        ("a", "b", "b"),
        ("a", "c", b"c"),
        ("b", "a", b"a"),
        ("b", "a", "a"),
        ("b", "c", b"c"),
        ("b", "c", "c"),
    ]
    for kind in RIGHTS:
        yield from (case for way in ways if not (case := Case(kind, *way)).is_right)


def events_before(receiver: str) -> Iterator[Event]:
    """All that leads to a ring that stands, and to a request at its source."""

    def came(origin: Origin, message: Any) -> Received:
        return Received(origin, None, message, [])

    yield Loaded()
    peers = {"a": ["b", "c"], "b": ["a", "c"]}[receiver]
    for peer in peers:
        yield Connected(peer)
        yield came(peer, Welcome(name=peer, incarnation=1, epoch=0, next=0, info={}))
    for peer in peers:
        yield came(peer.encode(), hello(peer))
    if receiver == "a":
        placement = bytes.fromhex(roles()["a"].placement_id)
        for peer in ("b", "c"):
            yield came(peer.encode(), Ready(next_request=0, placement=placement, epoch=0, incarnation=1))
        yield came(b"client", hello(CLIENT))
        yield came(b"client", submit([1, 2]))


def standing(receiver: str, new: NewDevice = Device) -> Any:
    """A device of a ring that stands."""
    device = new(roles()[receiver], START, 0.0)
    for event in events_before(receiver):
        device.on(event, 1.0)
    return device


class _Keeper(pickle.Pickler):
    """All but roles, which remember what they have worked out of a placement."""

    def reducer_override(self, value: Any) -> Any:
        return (str, ("role",)) if isinstance(value, Role) else NotImplemented


def kept(device: Device) -> bytes:
    """All that a device keeps."""
    text = io.BytesIO()
    _Keeper(text).dump(device)
    return text.getvalue()
