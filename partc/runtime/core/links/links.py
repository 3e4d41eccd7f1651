"""The links of one device: who is at the other end of each connection, and what may travel over it.

A connection begins with `hello` from the end that opened it. The other end holds it against the name of the
connection's key, the build and the placement, and answers `welcome`, with the number of the message that it awaits, or
`refuse`. Values flow only after that. After a break the same happens again, and the sender repeats what was not
acknowledged, or begins a new session where the receiver has forgotten the old one. Values for a device that is away
wait for it. A change of placement (`prepare`, `adopt`) gives every link a new epoch, in which it counts from 0 again.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.frames import to_frame
from partc.format.message_parts import Problem
from partc.format.messages import CLIENT, Ack, Addresses, Data, Hello, Ping, Pong, Refuse, Welcome
from partc.format.role import Role
from partc.runtime.core.actions import (
    Action,
    Broadcast,
    Delivered,
    Failed,
    Greeted,
    Heard,
    Linked,
    Lost,
    Misfit,
)
from partc.runtime.core.commands import Connect, Frame, Send
from partc.runtime.core.events import Origin, Received, Unreadable
from partc.runtime.core.links.headers import Headers
from partc.runtime.core.links.link import Receiver, Sender
from partc.runtime.core.links.rights import is_right
from partc.runtime.core.links.windows import ACK_EVERY, in_window, out_window
from partc.runtime.core.liveness import soonest
from partc.runtime.core.start import Info
from partc.runtime.core.step import Step, announced, rows_of

_ACK_AFTER_S = 0.1
_KEYS_HINT = "partc keys BUILD makes new keys; copy each device's keys folder to it again"
_BUILD_HINT = "copy the folders of one build to all devices"


class LinkState(Enum):
    """State of an outgoing link."""

    DOWN = "down"
    GREETING = "greeting"
    UP = "up"


@dataclass(slots=True)
class _Outgoing:
    sender: Sender[tuple[Data, Sequence[Frame]]]
    state: LinkState = LinkState.DOWN


@dataclass(slots=True)
class _Incoming:
    receiver: Receiver[tuple[Data, Sequence[memoryview]]]
    origin: Origin = b""
    unacknowledged: int = 0
    due: float | None = None
    """When an acknowledgement must leave."""


@dataclass(slots=True)
class Links:
    """All links of one device."""

    role: Role
    incarnation: int
    info: Info = field(default_factory=dict)
    """Facts for everyone who is welcomed."""
    measures: bool = False
    """Whether this device measures, and takes the requests to do so."""
    first_request: int = field(init=False, default=0)
    """At the source: requests below this number are over."""
    addresses: dict[str, str] = field(init=False, default_factory=dict)
    """Device → HOST:PORT where it told one; empty: as it was given at start."""
    address: str = field(init=False, default="")
    """HOST:PORT of this device; empty: as the placement says."""
    headers: Headers = field(init=False)
    """The steps and values of messages, held against the placement."""
    due: float | None = field(init=False, default=None)
    """When `acknowledgements` must be asked for."""
    _out: dict[str, _Outgoing] = field(init=False)
    _in: dict[str, _Incoming] = field(init=False)
    _names: dict[Origin, str] = field(init=False, default_factory=dict)
    """Route of a connection to this device → who is at its other end."""
    _greetings: dict[Origin, tuple[Received, Hello]] = field(init=False, default_factory=dict)
    """Route of a connection that stands → the last greeting of a device on it, superseded ones included."""
    _callers: dict[str, tuple[Origin, int]] = field(init=False, default_factory=dict)
    """Device → its last connection to this one, and its session."""
    _sessions: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        role = self.role
        # Sessions of two lives of a device differ because its incarnations do.
        self._sessions = itertools.count(self.incarnation % 2**48)
        self._out = {name: self._new_out(name) for name in peers_of(role)}
        self._in = {name: self._new_in(name) for name in role.receive}
        self.headers = Headers(role)

    @property
    def missing(self) -> list[str]:
        """The devices to which no link stands, of those that this one sends to."""
        return self.missing_for(self.role)

    def missing_for(self, role: Role) -> list[str]:
        """The devices to which no link stands, of those that this one sends to in `role`."""
        return [
            name
            for name in peers_of(role)
            if name not in self._out or self._out[name].state is not LinkState.UP
        ]

    def way_to(self, device: str) -> Origin | None:
        """The connection that messages to a device take now; None: there is none either way."""
        out = self._out.get(device)
        return device if out is not None and out.state is LinkState.UP else self.devices.get(device)

    def connect(self, device: str) -> Iterator[Action]:
        """See to it that a connection to a device comes to stand; nothing where there is one, or will be."""
        if device not in self._out:
            self._out[device] = self._new_out(device)
            yield Connect(device, self.addresses.get(device, ""))

    def moved(self, addresses: Mapping[str, str]) -> Iterator[Action]:
        """Devices are at these addresses now, HOST:PORT."""
        for device, address in addresses.items():
            yield from self._found(device, address)

    def prepare(self, role: Role, addresses: Mapping[str, str]) -> Iterator[Action]:
        """A placement will follow: connect to whom it sends to, and keep early messages."""
        for name in role.receive:
            link = self._in[name] = self._in.get(name) or self._new_in(name)
            link.receiver.expect(role.epoch, in_window(role, name))
        yield from self.moved(addresses)
        for name in peers_of(role):
            yield from self.connect(name)

    def adopt(self, role: Role) -> list[Action]:
        """The placement is in force: all links count from 0 again; what came early is delivered."""
        self.role, self.headers = role, Headers(role)
        self._in = {name: self._in[name] for name in role.receive}
        for name in peers_of(role):
            out = self._out[name]
            out.sender.restart(out.sender.session, role.epoch, out_window(role, name))
        return [
            self._delivered(peer, *each)
            for peer, link in self._in.items()
            for each in link.receiver.restart()
        ]

    @property
    def devices(self) -> dict[str, Origin]:
        """The devices that are connected to this one → where messages to them go."""
        return {name: route for route, name in self._names.items() if name != CLIENT}

    def connected(self, peer: str, address: str = "") -> Iterator[Action]:
        """A connection that this device opened stands: greet; `address` is where it can be reached itself."""
        out = self._out[peer]
        out.state, self.address = LinkState.GREETING, address
        yield Send(peer, self._hello(out))

    def disconnected(self, origin: Origin) -> Iterator[Action]:
        """A connection is closed."""
        if isinstance(origin, str):
            self._out[origin].state = LinkState.DOWN
            yield Lost(origin, origin)
            return
        self._greetings.pop(origin, None)
        if (name := self._names.pop(origin, None)) is not None:
            yield Lost(name, origin)
            yield from self._ask_former(name)

    def rejected(self, peer: str) -> Iterator[Action]:
        """The keys of the two ends do not fit."""
        message = f"{peer} and this device do not have each other's keys"
        yield Misfit(RunError(message, where=self.role.device, hint=_KEYS_HINT, cause="refused"))

    def received(self, event: Received, now: float) -> Iterable[Action]:
        """Take a message; one that must not be trusted ends the requests in flight, or is refused."""
        try:
            return self._message(event, now)
        except RunError as error:
            return [self._distrust(event.origin, error)]

    def unreadable(self, event: Unreadable) -> Iterator[Action]:
        """A message cannot even be read."""
        yield self._distrust(event.origin, event.error)

    def send(self, peer: str, step: Step, names: tuple[str, ...], arrays: Sequence[Array]) -> Send | None:
        """The message that takes values to a device; None where no link stands: it leaves once one does.

        Raises:
            RunError: the receiver has stopped acknowledging.
        """
        out = self._out[peer]
        sender = out.sender
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
        )
        frames = [to_frame(array) for array in arrays]
        sender.push((data, frames))
        return Send(peer, data, frames) if out.state is LinkState.UP else None

    def acknowledgements(self, now: float) -> Iterator[Action]:
        """Acknowledge what has waited long enough."""
        for link in self._in.values():
            if link.due is not None and now >= link.due:
                yield from self._acknowledge(link)
        self.due = soonest(*(link.due for link in self._in.values()))

    def _hello(self, out: _Outgoing) -> Hello:
        role = self.role
        return Hello(
            name=role.device,
            session=out.sender.session,
            plan=role.plan_digest,
            placement=role.placement_digest,
            epoch=role.epoch,
            incarnation=self.incarnation,
            address=self.address,
            shares=role.model.step_requests > 1,
        )

    def _new_in(self, name: str) -> _Incoming:
        """A link from a device that may have connected long ago."""
        link = _Incoming(Receiver(self.role.epoch, in_window(self.role, name)))
        if name in self._callers:
            link.origin, session = self._callers[name]
            link.receiver.open(session)
        return link

    def _new_out(self, name: str) -> _Outgoing:
        role = self.role
        return _Outgoing(Sender(out_window(role, name), next(self._sessions), role.epoch))

    def _distrust(self, origin: Origin, error: PartcError) -> Action:
        peer = self._name_of(origin)
        if peer in (None, CLIENT):
            return Send(origin, Refuse(problem=Problem.of(error)))
        error.where = error.where or f"{peer} -> {self.role.device}"
        return Failed(None, error)

    def _name_of(self, origin: Origin) -> str | None:
        return origin if isinstance(origin, str) else self._names.get(origin)

    def _message(self, event: Received, now: float) -> Iterable[Action]:
        message, origin = event.message, event.origin
        if (greeting := self.greeting(event)) is not None:
            return self._welcome(*greeting)
        peer = self._name_of(origin)
        match message:
            case _ if peer is None:
                return ()  # left over from a connection that broke; `data` is sent again after `hello`
            case _ if not is_right(message, peer, origin, self.role, measures=self.measures):
                return ()
            case Data():
                return self._data(peer, message, event.frames, now)
            case Ack():
                self._sender(peer).acknowledge(message.session, message.epoch, message.seq)
                return ()
            case Welcome():
                return self._welcomed(peer, message)
            case Refuse(problem=problem):
                return [Misfit(problem.error())]
            case _:
                return [Heard(peer, origin, message, event.frames)]

    def _welcome(self, event: Received, hello: Hello) -> list[Action]:
        """Answer a greeting; raises RunError where it does not fit."""
        self._check_greeting(hello, event.user)
        name = hello.name
        lost = [] if name == CLIENT else self._superseded(event, hello)
        self._names[event.origin] = name
        self._callers[name] = event.origin, hello.session
        epoch, expected = self.role.epoch, 0
        if name in self._in:
            link = self._in[name]
            link.receiver.open(hello.session)
            link.origin = event.origin
            epoch, expected = link.receiver.epoch, link.receiver.acknowledgement()
        info, first = dict(self.info), self.first_request
        welcome = Welcome(
            name=self.role.device,
            incarnation=self.incarnation,
            epoch=epoch,
            next=expected,
            first_request=first,
            info=info,
        )
        return [*lost, Send(event.origin, welcome), *self._greeted(hello)]

    def _greeted(self, hello: Hello) -> Iterator[Action]:
        """Note who a device is, and where; the source tells the others."""
        if hello.name == CLIENT:
            return
        is_news = hello.address not in ("", self.addresses.get(hello.name))
        yield from self._found(hello.name, hello.address)
        if self.role.is_source and self.addresses:
            message = Addresses(addresses=dict(self.addresses))
            yield Broadcast(message) if is_news else Send(self._callers[hello.name][0], message)
        yield Greeted(hello)

    def _found(self, device: str, address: str) -> Iterator[Action]:
        """A device can be reached at an address; a link that stands stays, unless the device was elsewhere before."""
        before = self.addresses.get(device, "")
        if address in ("", before) or device not in self.role.addresses:
            return
        self.addresses[device] = address
        out = self._out.get(device)
        if out is not None and (before or out.state is LinkState.DOWN):
            yield Connect(device, address)

    def _check_greeting(self, hello: Hello, user: str | None) -> None:
        """Hold a greeting against key, build and placement.

        Raises:
            RunError: it does not fit.
        """
        role, name = self.role, hello.name
        known = role.placement.addresses.keys() - {role.device}
        if name not in known and not (name == CLIENT and role.is_source):
            raise RunError(f"{name!r:.60} does not connect to {role.device} in this build", cause="refused")
        if user is not None and user != name:
            message = f"the key of {user!r} does not belong to {name!r}"
            raise RunError(message, hint=_KEYS_HINT, cause="refused")
        if hello.plan.hex() != role.plan_id:
            builds = role.plan_id[:12], hello.plan.hex()[:12]
            message = f"{role.device} runs build {builds[0]}, {name} has build {builds[1]}"
            raise RunError(message, hint=_BUILD_HINT, cause="refused")
        if hello.epoch == role.epoch == 0 and hello.placement.hex() != role.placement_id:
            message = f"{name} has another placement of this build than {role.device}"
            raise RunError(message, hint=_BUILD_HINT, cause="refused")

    def _superseded(self, event: Received, hello: Hello) -> list[Action]:
        """Forget the former connection of a device that greets on another one: its end may be noticed much later.

        The former greeting is kept until its connection ends: after a standstill of this process, the greetings of two
        lives are read in any order, and somebody else with the device's key may greet in its name.
        """
        self._greetings[event.origin] = event, hello
        former = [
            route for route, name in self._names.items() if name == hello.name and route != event.origin
        ]
        for route in former:
            del self._names[route]
        return [Lost(hello.name, route) for route in former]

    def _ask_former(self, name: str) -> Iterator[Action]:
        """Ask for a sign of life where a device greeted before: one whose end is not noticed yet will not answer."""
        for route, (_, hello) in self._greetings.items():
            if hello.name == name:
                yield Send(route, Ping(token=hello.incarnation))

    def greeting(self, event: Received) -> tuple[Received, Hello] | None:
        """The greeting that a message is, or an earlier one that it brings back: the answer of `_ask_former`."""
        match event.message:
            case Hello() as hello if isinstance(event.origin, bytes):
                return event, hello
            case Pong(token=token) if event.origin not in self._names:
                former = self._greetings.get(event.origin)
                if former is None or former[1].name in self._names.values():
                    return None
                return former if former[1].incarnation == token else None
        return None

    def _welcomed(self, peer: str, message: Welcome) -> list[Action]:
        out = self._out[peer]
        sender = out.sender
        if message.epoch == sender.epoch:
            if not sender.can_resume(message.next):
                sender.restart(next(self._sessions), sender.epoch)
                return [Send(peer, self._hello(out))]
            sender.acknowledge(sender.session, sender.epoch, message.next)
        out.state = LinkState.UP
        return [
            *(Send(peer, data, frames) for _, (data, frames) in sender.unacknowledged()),
            Linked(peer, message.first_request),
        ]

    def _data(self, peer: str, data: Data, frames: Sequence[memoryview], now: float) -> list[Action]:
        link = self._in.get(peer)
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

    def _sender(self, peer: str) -> Sender[tuple[Data, Sequence[Frame]]]:
        if peer not in self._out:
            raise RunError(f"{peer} acknowledges messages of a link that does not exist", cause="refused")
        return self._out[peer].sender


def peers_of(role: Role) -> list[str]:
    """The devices that a device connects to."""
    return sorted({*role.send, role.source} - {role.device})
