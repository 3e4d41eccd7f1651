"""The protocol over the sockets: who is at the other end, in order, once, of this plan.

A connection begins with `hello` (name, session) from the end that connected. The other end holds it against
the name that the authenticator gave, and against the plan; it answers `welcome`, with the number of the
message that it waits for, or `refuse`. Only then do data flow. After a break the same happens again, and the
sender repeats what was not acknowledged, or begins a new session where the receiver has forgotten the old
one.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.program import Recv, Send
from partc.format.role import Role
from partc.runtime.core.link import Receiver, Sender
from partc.runtime.foresight import Foreseen, Foresight
from partc.runtime.shell.keys import CLIENT
from partc.runtime.shell.transport import Down, Event, Input, Message, Origin, Rejected, Transport, Up
from partc.runtime.wire import (
    Data,
    Fields,
    Step,
    awaited,
    check_sizes,
    check_specs,
    check_step,
    decode,
    encode_control,
    header_limit,
    read_data,
    to_array,
    to_frame,
)

_ACK_EVERY = 8
_ACK_AFTER_S = 0.1
_SPARE_FRAMES = 64
_KEYS_HINT = "partc keys BUILD makes new keys; copy each device's keys folder to it again"
_BUILD_HINT = "copy the folders of one build to all devices"


@dataclass(frozen=True, slots=True)
class Arrived:
    """Data from a device, checked in every respect."""

    peer: str
    step: Step
    values: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Control:
    """Any other message from a participant whose name is known."""

    peer: str
    origin: Origin
    fields: Fields
    frames: Sequence[memoryview]


@dataclass(frozen=True, slots=True)
class Linked:
    """We may send to this device now."""

    peer: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A connection to or from this participant is closed."""

    peer: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Failed:
    """A message that must not be trusted, or a link that cannot be used; the requests in flight are lost."""

    error: PartcError


@dataclass(frozen=True, slots=True)
class Barred:
    """This device cannot be part of the ring: another build, other keys."""

    error: PartcError


LinkEvent = Arrived | Control | Linked | Lost | Failed | Barred | Input


@dataclass(slots=True)
class _Outgoing:
    sender: Sender[list[bytes | memoryview]]
    ready: bool = False


@dataclass(slots=True)
class _Incoming:
    receiver: Receiver[tuple[Data, list[memoryview], Foreseen | None]]
    origin: Origin = b""
    unacknowledged: int = 0
    due: float | None = None


@dataclass(slots=True)
class _Names:
    """Who is at the other end of the connections to us."""

    by_route: dict[Origin, str] = field(default_factory=dict)

    def of(self, origin: Origin) -> str | None:
        return origin if isinstance(origin, str) else self.by_route.get(origin)


class Links:
    """All links of one device."""

    def __init__(self, manifest: Role, transport: Transport, info: Mapping[str, Any]) -> None:
        """Nothing is connected yet; `info` is told to everyone whom we welcome."""
        self._manifest = manifest
        self._transport = transport
        self._info = dict(info)
        self._plan = bytes.fromhex(manifest.plan_id)
        self._limit = header_limit(manifest)
        self._names = _Names()
        self._out: dict[str, _Outgoing] = {}
        self._in = {
            name: _Incoming(Receiver(self._plan, manifest.epoch, _window(manifest, name, Recv)))
            for name in manifest.receive
        }
        self._expected = awaited(manifest)
        self._foresight = Foresight(self._check)

    def connect(self, addresses: Mapping[str, str]) -> None:
        """Connect to every device that we send to, and to the source; raises as `Transport.connect`."""
        for name, address in sorted(addresses.items()):
            capacity = _window(self._manifest, name, Send)
            self._out[name] = _Outgoing(Sender(capacity, _new_session(), self._manifest.epoch))
            self._transport.connect(name, address)

    @property
    def missing(self) -> list[str]:
        """The devices to which no link stands yet."""
        return [name for name, out in self._out.items() if not out.ready]

    def send_data(self, peer: str, step: Step, names: tuple[str, ...], arrays: Sequence[Array]) -> int:
        """Send values to a device; the bytes that went.

        Raises:
            RunError: there is no link, or it has stopped acknowledging.
        """
        out = self._out[peer]
        if not out.ready:
            raise RunError(f"{peer} is not connected", where=self._manifest.device)
        sender = out.sender
        shapes = [array.shape for array in arrays]
        header = self._foresight.header(peer, step, names, shapes, sender)
        if header is None:
            types = self._manifest.types
            specs = tuple((name, types[name].dtype, shape) for name, shape in zip(names, shapes, strict=True))
            data = Data(self._plan, sender.epoch, sender.session, sender.next_seq, step, specs)
            header = self._foresight.write(peer, data)
        frames: list[bytes | memoryview] = [header, *map(to_frame, arrays)]
        sender.push(frames)
        if not self._transport.send(peer, frames):
            raise RunError(f"the connection to {peer} is closed", where=self._manifest.device)
        return sum(map(len, frames))

    def control(self, origin: Origin, kind: str, frames: Sequence[memoryview] = (), **fields: Any) -> bool:
        """Send a control message; False when nobody is there to take it."""
        header = encode_control(kind, self._plan, self._manifest.epoch, fields)
        return self._transport.send(origin, [header, *frames])

    def handle(self, event: Event, now: float) -> Sequence[LinkEvent]:
        """What an event of the transport means."""
        match event:
            case Message():
                return self._guarded(event, now)
            case Up(name):
                self.control(
                    name, "hello", name=self._manifest.device, session=self._out[name].sender.session
                )
            case Down(origin):
                return self._down(origin)
            case Rejected(name):
                message = f"{name} and this device do not have each other's keys"
                return (Barred(RunError(message, where=self._manifest.device, hint=_KEYS_HINT)),)
            case Input():
                return (event,)
        return ()

    def tick(self, now: float) -> float | None:
        """Acknowledge what has waited long enough; when this must be called again."""
        for link in self._in.values():
            if link.due is not None and now >= link.due:
                self._acknowledge(link)
        return min((link.due for link in self._in.values() if link.due is not None), default=None)

    def look_ahead(self) -> None:
        """Do now, while there is time, what the next messages would need when they come."""
        self._foresight.look_ahead()

    def _guarded(self, message: Message, now: float) -> Sequence[LinkEvent]:
        try:
            return self._message(message, now)
        except RunError as error:
            peer = self._names.of(message.origin)
            if peer in (None, CLIENT):
                self._refuse(message.origin, error)
                return ()
            error.where = error.where or f"{peer} -> {self._manifest.device}"
            return (Failed(error),)

    def _message(self, message: Message, now: float) -> Sequence[LinkEvent]:
        frames = [memoryview(frame.buffer) for frame in message.frames[1:]]
        peer = self._names.of(message.origin)
        foreseen = self._foresight.read(peer, message.frames[0].bytes)
        if foreseen is not None:
            return self._data(foreseen.peer, foreseen.data, frames, now, foreseen)
        fields = decode(message.frames[0].buffer, self._limit)
        kind = fields["kind"]
        if kind == "hello":
            self._hello(message, fields)
            return ()
        if peer is None:
            return ()  # left over from a connection that broke; what matters comes again after `hello`
        if kind == "data":
            return self._data(peer, read_data(fields), frames, now)
        if kind in ("refuse", "welcome") and not isinstance(message.origin, str):
            raise RunError(f"{peer} answers what nobody asked")
        if kind == "refuse":
            return (Barred(RunError(fields["message"], where=fields["where"], hint=fields["hint"])),)
        if fields["plan"] != self._plan:
            raise RunError("a message of another build", hint=_BUILD_HINT)
        if kind == "welcome":
            return self._welcome(peer, fields)
        if kind == "ack":
            self._sender(peer).acknowledge(fields["session"], fields["epoch"], fields["seq"])
            return ()
        return (Control(peer, message.origin, fields, frames),)

    def _hello(self, message: Message, fields: Fields) -> None:
        name = fields["name"]
        manifest = self._manifest
        welcome = {*manifest.receive, *(manifest.ring if manifest.is_source else ())} - {manifest.device}
        if name not in welcome and not (name == CLIENT and manifest.is_source):
            raise RunError(f"{name!r} has no business with {manifest.device}")
        if message.user is not None and message.user != name:
            raise RunError(f"the key of {message.user!r} does not belong to {name!r}", hint=_KEYS_HINT)
        if fields["plan"] != self._plan:
            mine, theirs = manifest.plan_id[:12], fields["plan"].hex()[:12]
            raise RunError(
                f"{manifest.device} runs build {mine}, {name} has build {theirs}", hint=_BUILD_HINT
            )
        self._names.by_route[message.origin] = name
        expected = 0
        if name in self._in:
            self._in[name].receiver.open(fields["session"])
            self._in[name].origin = message.origin
            expected = self._in[name].receiver.acknowledgement()
        self.control(message.origin, "welcome", name=manifest.device, next=expected, info=self._info)

    def _welcome(self, peer: str, fields: Fields) -> Sequence[LinkEvent]:
        out = self._out[peer]
        kept = [seq for seq, _ in out.sender.unacknowledged()]
        if not (kept[0] if kept else out.sender.next_seq) <= fields["next"] <= out.sender.next_seq:
            out.sender.restart(_new_session(), out.sender.epoch)
            self.control(peer, "hello", name=self._manifest.device, session=out.sender.session)
            return ()
        out.sender.acknowledge(out.sender.session, out.sender.epoch, fields["next"])
        for _, frames in out.sender.unacknowledged():
            self._transport.send(peer, frames)
        out.ready = True
        return (Linked(peer),)

    def _data(
        self, peer: str, data: Data, frames: list[memoryview], now: float, foreseen: Foreseen | None = None
    ) -> Sequence[LinkEvent]:
        link = self._in.get(peer)
        if link is None:
            raise RunError(f"{peer} sends no data here")
        came = link.receiver.accept(data.plan, data.epoch, data.session, data.seq, (data, frames, foreseen))
        if data.epoch != link.receiver.epoch:
            return ()  # no acknowledgement: a sender that is ahead of us keeps it, and repeats it after `hello`
        link.unacknowledged += 1
        link.due = link.due if link.due is not None else now + _ACK_AFTER_S
        if link.unacknowledged >= _ACK_EVERY:
            link.due = now
        return [self._checked(peer, *each) for each in came]

    def _checked(self, peer: str, data: Data, frames: list[memoryview], foreseen: Foreseen | None) -> Arrived:
        sizes = tuple(frame.nbytes for frame in frames)
        if foreseen is None or sizes != foreseen.sizes:
            check_sizes(data.values, sizes, self._check(peer, data))
        self._foresight.came(peer, data)
        values = {
            name: to_array(frame, dtype, shape)
            for frame, (name, dtype, shape) in zip(frames, data.values, strict=True)
        }
        return Arrived(peer, data.step, values)

    def _check(self, peer: str, data: Data) -> tuple[int, ...]:
        """Hold a message against the plan; the bytes that each of its tensors must have."""
        names = tuple(name for name, _, _ in data.values)
        check_step(data.step, self._manifest)
        if (data.step.phase, peer, names) not in self._expected:
            raise RunError(f"{', '.join(names)} is not what {data.step.phase} awaits from {peer}")
        return check_specs(data.values, self._manifest.types, data.step.dims)

    def _acknowledge(self, link: _Incoming) -> None:
        link.unacknowledged, link.due = 0, None
        receiver = link.receiver
        if receiver.session is not None:
            self.control(link.origin, "ack", session=receiver.session, seq=receiver.acknowledgement())

    def _sender(self, peer: str) -> Sender[list[bytes | memoryview]]:
        if peer not in self._out:
            raise RunError(f"{peer} acknowledges what nobody sent")
        return self._out[peer].sender

    def _down(self, origin: Origin) -> Sequence[LinkEvent]:
        if isinstance(origin, str):
            self._out[origin].ready = False
            return (Lost(origin, origin),)
        name = self._names.by_route.pop(origin, None)
        return () if name is None else (Lost(name, origin),)

    def _refuse(self, origin: Origin, error: PartcError) -> None:
        self.control(origin, "refuse", message=error.message, where=error.where, hint=error.hint)


def _window(manifest: Role, peer: str, kind: type[Recv] | type[Send]) -> int:
    """Frames that may be unacknowledged: four steps of every request and a prompt in parts, and some.

    Both ends find the same number.
    """
    programs = manifest.programs.values()
    counts = (sum(isinstance(i, kind) and i.device == peer for i in program) for program in programs)
    model = manifest.model
    return _ACK_EVERY + (3 + model.most_chunks) * model.max_requests * max(1, *counts) + _SPARE_FRAMES


def _new_session() -> int:
    return secrets.randbits(48)
