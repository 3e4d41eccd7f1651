"""Values that this device sends to others: kept until they are acknowledged, sent again after a break.

| state of an outgoing link | event | next state | sent |
| --- | --- | --- | --- |
| down | connected | greeting | hello |
| greeting | welcome | up | frames without an acknowledgement |
| greeting | welcome that does not fit what is kept | greeting | hello of a new session |
| any | disconnected | down | |
| any | refuse | as it was | (the device leaves, or ends what is in flight) |
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.frames import to_frame
from partc.format.messages import Ack, Data, Hello, Welcome
from partc.format.role import Role
from partc.runtime.core.actions import Action, Linked
from partc.runtime.core.commands import Frame, Send
from partc.runtime.core.links.link import Sender
from partc.runtime.core.links.windows import out_window
from partc.runtime.core.step import Step, announced, rows_of


class LinkState(Enum):
    """State of an outgoing link."""

    DOWN = "down"
    GREETING = "greeting"
    UP = "up"


@dataclass(slots=True)
class _Link:
    sender: Sender[tuple[Data, Sequence[Frame]]]
    state: LinkState = LinkState.DOWN


class Outgoing:
    """The links from this device."""

    def __init__(self, role: Role, incarnation: int) -> None:
        """No link stands."""
        self.role, self._incarnation = role, incarnation
        self._address = ""
        """HOST:PORT of this device; empty: as the placement says."""
        # Sessions of two lives of a device differ because its incarnations do.
        self._sessions = itertools.count(incarnation % 2**48)
        self._links = {name: self._new(name) for name in peers_of(role)}

    def missing_for(self, role: Role) -> list[str]:
        """The devices to which no link stands, of those that this one sends to in `role`."""
        return [name for name in peers_of(role) if not self.is_up(name)]

    def is_known(self, device: str) -> bool:
        """Whether there is a link to a device, or will be."""
        return device in self._links

    def is_up(self, device: str) -> bool:
        """Whether a link to a device stands."""
        return device in self._links and self._links[device].state is LinkState.UP

    def is_down(self, device: str) -> bool:
        """Whether a link to a device has no connection."""
        return self._links[device].state is LinkState.DOWN

    @property
    def unacknowledged(self) -> list[str]:
        """The devices that have not acknowledged all that they were sent."""
        return [peer for peer, link in self._links.items() if list(link.sender.unacknowledged())]

    def add(self, device: str) -> bool:
        """There is to be a link to a device; whether it is new."""
        if device in self._links:
            return False
        self._links[device] = self._new(device)
        return True

    def adopt(self, role: Role) -> None:
        """Another placement is in force: all links count from 0 again."""
        self.role = role
        for name in peers_of(role):
            sender = self._links[name].sender
            sender.restart(sender.session, role.epoch, out_window(role, name))

    def connected(self, peer: str, address: str) -> Send:
        """A connection stands: the greeting; `address` is where this device can be reached."""
        link = self._links[peer]
        link.state, self._address = LinkState.GREETING, address
        return Send(peer, self._hello(link))

    def disconnected(self, peer: str) -> None:
        """A connection is closed."""
        self._links[peer].state = LinkState.DOWN

    def welcomed(self, peer: str, message: Welcome) -> list[Action]:
        """A device has answered the greeting: what it lacks goes again."""
        link = self._links[peer]
        sender = link.sender
        if message.epoch == sender.epoch:
            if not sender.can_resume(message.next):
                sender.restart(next(self._sessions), sender.epoch)
                return [Send(peer, self._hello(link))]
            sender.acknowledge(sender.session, sender.epoch, message.next)
        link.state = LinkState.UP
        return [
            *(Send(peer, data, frames) for _, (data, frames) in sender.unacknowledged()),
            Linked(peer, message.first_request),
        ]

    def acknowledged(self, peer: str, ack: Ack) -> None:
        """A device has what it was sent.

        Raises:
            RunError: it was sent nothing, or not as much.
        """
        if peer not in self._links:
            raise RunError(f"{peer} acknowledges messages of a link that does not exist", cause="refused")
        self._links[peer].sender.acknowledge(ack.session, ack.epoch, ack.seq)

    def send(self, peer: str, step: Step, names: tuple[str, ...], arrays: Sequence[Array]) -> Send | None:
        """The message that takes values to a device; None where no link stands: it leaves once one does.

        Raises:
            RunError: the receiver has stopped acknowledging.
        """
        link = self._links[peer]
        sender = link.sender
        data = Data(
            session=sender.session,
            epoch=sender.epoch,
            seq=sender.next_seq,
            phase=step.phase,
            dims=dict(step.dims),
            rows=rows_of(step, self.role.model.max_batch),
            values=announced(zip(names, arrays, strict=True), self.role.types),
            open=() if step.opening is None else (step.opening,),
            likely=step.likely,
            busy_s=step.busy_s,
        )
        frames = [to_frame(array) for array in arrays]
        sender.push((data, frames))
        return Send(peer, data, frames) if link.state is LinkState.UP else None

    # -- inner workings

    def _new(self, name: str) -> _Link:
        return _Link(Sender(out_window(self.role, name), next(self._sessions), self.role.epoch))

    def _hello(self, link: _Link) -> Hello:
        role = self.role
        return Hello(
            name=role.device,
            session=link.sender.session,
            plan=role.plan_digest,
            placement=role.placement_digest,
            epoch=role.epoch,
            incarnation=self._incarnation,
            address=self._address,
            shares=role.model.step_requests > 1,
        )


def peers_of(role: Role) -> list[str]:
    """The devices that a device connects to."""
    return sorted({*role.send, role.source} - {role.device})
