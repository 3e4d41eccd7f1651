"""The links of one device: who is at the other end of each connection, and what may travel over it.

A connection begins with `hello` from the end that opened it. The other end holds it against the name of the
connection's key, the build and the placement, and answers `welcome`, with the number of the message that it awaits, or
`refuse`. Values flow only after that. After a break the same happens again, and the sender repeats what was not
acknowledged, or begins a new session where the receiver has forgotten the old one. Values for a device that is away
wait for it. A change of placement (`prepare`, `adopt`) gives every link a new epoch, in which it counts from 0 again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from partc.errors import PartcError, RunError
from partc.format.message_parts import Problem
from partc.format.messages import CLIENT, Ack, Addresses, Data, Hello, Ping, Refuse, Welcome
from partc.format.role import Role
from partc.runtime.core.actions import (
    Action,
    Broadcast,
    Failed,
    Greeted,
    Heard,
    Lost,
    Misfit,
)
from partc.runtime.core.commands import Connect, Send
from partc.runtime.core.events import Origin, Received, Unreadable
from partc.runtime.core.links.callers import KEYS_HINT, Callers, check_greeting
from partc.runtime.core.links.incoming import Incoming
from partc.runtime.core.links.outgoing import Outgoing, peers_of
from partc.runtime.core.links.rights import is_right
from partc.runtime.core.start import Info


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
    callers: Callers = field(init=False, default_factory=Callers)
    """Who is connected to this device."""
    incoming: Incoming = field(init=False)
    outgoing: Outgoing = field(init=False)

    def __post_init__(self) -> None:
        self.incoming = Incoming(self.role, self.callers)
        self.outgoing = Outgoing(self.role, self.incarnation)

    @property
    def missing(self) -> list[str]:
        """The devices to which no link stands, of those that this one sends to."""
        return self.outgoing.missing_for(self.role)

    def way_to(self, device: str) -> Origin | None:
        """The connection that messages to a device take now; None: there is none either way."""
        return device if self.outgoing.is_up(device) else self.devices.get(device)

    def connect(self, device: str) -> Iterator[Action]:
        """See to it that a connection to a device comes to stand; nothing where there is one, or will be."""
        if self.outgoing.add(device):
            yield Connect(device, self.addresses.get(device, ""))

    def moved(self, addresses: Mapping[str, str]) -> Iterator[Action]:
        """Devices are at these addresses now, HOST:PORT."""
        for device, address in addresses.items():
            yield from self._found(device, address)

    def prepare(self, role: Role, addresses: Mapping[str, str]) -> Iterator[Action]:
        """A placement will follow: connect to whom it sends to, and keep early messages."""
        self.incoming.prepare(role)
        yield from self.moved(addresses)
        for name in peers_of(role):
            yield from self.connect(name)

    def adopt(self, role: Role) -> list[Action]:
        """The placement is in force: all links count from 0 again; what came early is delivered."""
        self.role = role
        self.outgoing.adopt(role)
        return self.incoming.adopt(role)

    @property
    def devices(self) -> dict[str, Origin]:
        """The devices that are connected to this one → where messages to them go."""
        return self.callers.devices

    def connected(self, peer: str, address: str = "") -> Iterator[Action]:
        """A connection that this device opened stands: greet; `address` is where it can be reached itself."""
        yield self.outgoing.connected(peer, address)

    def disconnected(self, origin: Origin) -> Iterator[Action]:
        """A connection is closed."""
        if isinstance(origin, str):
            self.outgoing.disconnected(origin)
            yield Lost(origin, origin)
        elif (name := self.callers.gone(origin)) is not None:
            yield Lost(name, origin)
            yield from self._ask_former(name)

    def rejected(self, peer: str) -> Iterator[Action]:
        """The keys of the two ends do not fit."""
        message = f"{peer} and this device do not have each other's keys"
        yield Misfit(RunError(message, where=self.role.device, hint=KEYS_HINT, cause="refused"))

    def received(self, event: Received, now: float) -> Iterable[Action]:
        """Take a message; one that must not be trusted ends the requests in flight, or is refused."""
        try:
            return self._message(event, now)
        except RunError as error:
            return [self._distrust(event.origin, error)]

    def unreadable(self, event: Unreadable) -> Iterator[Action]:
        """A message cannot even be read."""
        yield self._distrust(event.origin, event.error)

    def _distrust(self, origin: Origin, error: PartcError) -> Action:
        peer = self.callers.name_of(origin)
        if peer in (None, CLIENT):
            return Send(origin, Refuse(problem=Problem.of(error)))
        error.where = error.where or f"{peer} -> {self.role.device}"
        return Failed(None, error)

    def _message(self, event: Received, now: float) -> Iterable[Action]:
        message, origin = event.message, event.origin
        if (greeting := self.callers.greeting(event)) is not None:
            return self._welcome(*greeting)
        peer = self.callers.name_of(origin)
        match message:
            case _ if peer is None:
                return ()  # left over from a connection that broke; `data` is sent again after `hello`
            case _ if not is_right(message, peer, origin, self.role, measures=self.measures):
                return ()
            case Data():
                return self.incoming.take(peer, message, event.frames, now)
            case Ack():
                self.outgoing.acknowledged(peer, message)
                return ()
            case Welcome():
                return self.outgoing.welcomed(peer, message)
            case Refuse(problem=problem):
                return [Misfit(problem.error())]
            case _:
                return [Heard(peer, origin, message, event.frames)]

    def _welcome(self, event: Received, hello: Hello) -> list[Action]:
        """Answer a greeting; raises RunError where it does not fit."""
        check_greeting(self.role, hello, event.user)
        lost = self.callers.came(event, hello)
        epoch, expected = self.incoming.greeted(hello.name, event.origin, hello.session)
        welcome = Welcome(
            name=self.role.device,
            incarnation=self.incarnation,
            epoch=epoch,
            next=expected,
            first_request=self.first_request,
            info=dict(self.info),
        )
        return [*lost, Send(event.origin, welcome), *self._greeted(event.origin, hello)]

    def _greeted(self, origin: Origin, hello: Hello) -> Iterator[Action]:
        """Note who a device is, and where; the source tells the others."""
        if hello.name == CLIENT:
            return
        is_news = hello.address not in ("", self.addresses.get(hello.name))
        yield from self._found(hello.name, hello.address)
        if self.role.is_source and self.addresses:
            message = Addresses(addresses=dict(self.addresses))
            yield Broadcast(message) if is_news else Send(origin, message)
        yield Greeted(hello)

    def _found(self, device: str, address: str) -> Iterator[Action]:
        """A device can be reached at an address; a link that stands stays, unless the device was elsewhere before."""
        before = self.addresses.get(device, "")
        if address in ("", before) or device not in self.role.addresses:
            return
        self.addresses[device] = address
        if self.outgoing.is_known(device) and (before or self.outgoing.is_down(device)):
            yield Connect(device, address)

    def _ask_former(self, name: str) -> Iterator[Action]:
        """Ask for a sign of life where a device greeted before: one whose end is not noticed yet will not answer."""
        for event, hello in self.callers.greeted_before(name):
            yield Send(event.origin, Ping(token=hello.incarnation))
