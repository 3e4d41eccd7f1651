"""Values that other devices send to this one: each once and in order, acknowledged, held against the placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partc.errors import RunError
from partc.format.messages import Ack, Data
from partc.format.role import Role
from partc.runtime.core.actions import Action, Delivered, Failed
from partc.runtime.core.commands import Send
from partc.runtime.core.events import Origin
from partc.runtime.core.links.callers import Callers
from partc.runtime.core.links.headers import Headers
from partc.runtime.core.links.link import Receiver
from partc.runtime.core.links.windows import ACK_EVERY, in_window
from partc.runtime.core.liveness import soonest

_ACK_AFTER_S = 0.1


@dataclass(slots=True)
class _Incoming:
    receiver: Receiver[tuple[Data, Sequence[memoryview]]]
    origin: Origin = b""
    unacknowledged: int = 0
    due: float | None = None
    """When an acknowledgement must leave."""


class Incoming:
    """The links to this device."""

    def __init__(self, role: Role, callers: Callers) -> None:
        """Nothing has come; `callers` are those who are connected."""
        self.role, self.headers = role, Headers(role)
        self.due: float | None = None
        """When `acknowledgements` must be asked for."""
        self._callers = callers
        self._links = {name: self._new(name) for name in role.receive}

    def prepare(self, role: Role) -> None:
        """A placement will follow: keep its early messages."""
        for name in role.receive:
            link = self._links[name] = self._links.get(name) or self._new(name)
            link.receiver.expect(role.epoch, in_window(role, name))

    def adopt(self, role: Role) -> list[Action]:
        """The placement is in force: all links count from 0 again; what came early is delivered."""
        self.role, self.headers = role, Headers(role)
        self._links = {name: self._links[name] for name in role.receive}
        return [
            self._delivered(peer, *each)
            for peer, link in self._links.items()
            for each in link.receiver.restart()
        ]

    def greeted(self, name: str, origin: Origin, session: int) -> tuple[int, int]:
        """A device has connected; the epoch, and the number of the message that it is to send next."""
        link = self._links.get(name)
        if link is None:
            return self.role.epoch, 0
        link.receiver.open(session)
        link.origin = origin
        return link.receiver.epoch, link.receiver.acknowledgement()

    def acknowledgements(self, now: float) -> Iterator[Action]:
        """Acknowledge what has waited long enough."""
        for link in self._links.values():
            if link.due is not None and now >= link.due:
                yield from self._acknowledge(link)
        self.due = soonest(*(link.due for link in self._links.values()))

    def take(self, peer: str, data: Data, frames: Sequence[memoryview], now: float) -> list[Action]:
        """Take a message.

        Raises:
            RunError: nothing is awaited from that device, or it breaks the rules of the link.
        """
        link = self._links.get(peer)
        if link is None and (data.epoch or self.role.epoch):
            return []  # it has not come to the placement in force yet, or is ahead
        if link is None:
            raise RunError(f"{peer} sends no data here", cause="refused")
        came = link.receiver.accept(data.epoch, data.session, data.seq, (data, frames))
        if data.epoch != link.receiver.epoch:
            return []  # no acknowledgement: a sender that is ahead keeps the frame, and repeats it after `hello`
        link.unacknowledged += 1
        if link.unacknowledged >= ACK_EVERY:
            link.due = now
        elif link.due is None:
            link.due = now + _ACK_AFTER_S
        self.due = link.due if self.due is None else min(self.due, link.due)
        return [self._delivered(peer, *each) for each in came]

    def _delivered(self, peer: str, data: Data, frames: Sequence[memoryview]) -> Delivered | Failed:
        """Hold a message against the placement."""
        try:
            step, values = self.headers.read(peer, data, frames)
        except RunError as error:
            # The fault is the device's that sent it, not the input's.
            place = error.where or f"{peer} -> {self.role.device}"
            refused = RunError(error.message, where=place, hint=error.hint, cause="refused")
            return Failed(data.rows[0].request, refused, earlier=True)
        return Delivered(peer, step, values)

    def _acknowledge(self, link: _Incoming) -> Iterator[Action]:
        link.unacknowledged, link.due = 0, None
        receiver = link.receiver
        if receiver.session is not None:
            seq = receiver.acknowledgement()
            yield Send(link.origin, Ack(session=receiver.session, epoch=receiver.epoch, seq=seq))

    def _new(self, name: str) -> _Incoming:
        """A link from a device that may have connected long ago."""
        link = _Incoming(Receiver(self.role.epoch, in_window(self.role, name)))
        if (last := self._callers.last(name)) is not None:
            link.origin, session = last
            link.receiver.open(session)
        return link
