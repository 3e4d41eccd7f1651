"""Sockets, encryption, connections and the bytes of messages; what messages mean is the core's.

Each device binds one ROUTER, on which its peers' messages arrive and through which it answers each of them on
the same connection; and it connects one DEALER to every device that it sends to, so that a residual travels
straight to its consumer on a socket of its own (LinguaLinked 3.4.1 has the two roles the other way round:
there the sender is the ROUTER; here the receiver is, since it is the one end that must tell many peers
apart). ZeroMQ's own thread moves the bytes while the device computes; all sockets are used by the one thread
that made them (3.4.2).

Everything that can happen arrives through one `poll`, which sleeps until something does:
messages, connections that come up, break, or are refused, and input on watched files.

With keys, every connection is CURVE: encrypted, and both ends proven. An authenticator in this process (ZAP)
admits the public keys of the peers alone, and names the peer behind every connection.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from partc.errors import BundleError, RunError
from partc.format.address import EXAMPLE, has_port, is_six
from partc.format.codec import decode, encode
from partc.format.fields import FRAME_LIMIT
from partc.format.frames import COPY_BELOW_BYTES
from partc.format.messages import Data, Message
from partc.runtime.core.events import Connected, Disconnected, Origin, Received, Rejected, Unreadable
from partc.runtime.core.liveness import MOST_S
from partc.runtime.shell.addresses import cannot_listen, require_loopback
from partc.runtime.shell.descriptors import hang_up, most_silent
from partc.runtime.shell.incoming import Incoming
from partc.runtime.shell.keys import Keys

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_ZAP_DOMAIN = b"partc"
_BATCH = 64
_ENCRYPTION_BYTES = 64
"""More than CURVE adds to a frame (33), which ZeroMQ counts when it limits the size."""
_LARGEST = 2**63 - 1
"""The largest limit that ZeroMQ takes."""
_MORE = zmq.NOBLOCK | zmq.SNDMORE
_LINGER_MS = 300
_HANDSHAKE_MS = 10_000
"""A connection to us that has not proven whose it is by then is closed."""
_AUTH_TRIES = 3
_RETRY_MS, _RETRY_AT_MOST_MS = 20, 250
"""Time between two tries to connect, the first and the longest: a ring stands still meanwhile."""
_CONNECT_MS = 2000
"""The system alone would try for two minutes, less and less often, to reach a phone that has left the network."""
_HANDSHAKE_FAILED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_EVENTS = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | _HANDSHAKE_FAILED
)


@dataclass(frozen=True, slots=True)
class Input:
    """A watched file is readable or at its end."""

    file: Any


Event = Received | Unreadable | Connected | Disconnected | Rejected | Input


@dataclass(slots=True)
class _Outgoing:
    address: str
    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    up: bool = False
    has_stood: bool = False
    failures: int = 0

    def fails_for_good(self, event: int) -> bool:
        """Whether a failed handshake will fail again.

        Without detail, the other end hung up in the middle: it cannot read what we encrypted for another key,
        or it was just being stopped. The first happens again at every try. Once a connection has stood, it is the
        second, or a router in between that reaches nobody: it may last.
        """
        if event & _HANDSHAKE_FAILED:
            return True
        self.failures += event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and not self.has_stood
        return self.failures >= _AUTH_TRIES


class Transport:
    """All sockets of one participant. Not for use by several threads."""

    def __init__(
        self, keys: Keys | None, frame_limit: int, patience_s: float, header_limit: int = FRAME_LIMIT
    ) -> None:
        """Make no connection yet.

        Args:
            keys: ours and our peers'; None leaves everything in the clear (loopback only).
            frame_limit: larger frames are refused before memory is taken for them, bytes.
            header_limit: longer headers are not read, bytes.
            patience_s: a connection whose other end is dead for 1.5 times this long is closed.
        """
        self._keys = keys
        self._frame_limit = frame_limit
        self._header_limit = header_limit
        # Progress is judged above and sooner; heartbeats find what vanished while nothing was under way.
        self._heartbeat_ms = max(50, int(min(patience_s, MOST_S) * 500))
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._context.linger = _LINGER_MS
        self._poller = zmq.Poller()
        self._outgoing: dict[str, _Outgoing] = {}
        self._incoming = Incoming(most_silent())
        self._router: zmq.Socket[bytes] | None = None
        self._router_monitor: zmq.Socket[bytes] | None = None
        self._zap: zmq.Socket[bytes] | None = None
        self._watched: dict[int, Any] = {}
        self._carriers: dict[Any, str | None] = {}
        """Sockets that carry messages → the device at the other end; none for the ROUTER."""
        self._all_read = False
        """Whether `poll` has read all messages of the ROUTER that lay ready."""
        self._left: list[Disconnected] = []
        """Connections that we closed ourselves since the last `poll`."""

    def listen(self, address: str) -> str:
        """Bind the ROUTER; HOST:PORT, with the port that was given or found (for port 0).

        Raises:
            RunError: the address cannot be had.
        """
        if self._keys is None:
            require_loopback(address)
        else:
            self._zap = self._context.socket(zmq.REP)
            self._zap.bind(_ZAP_ENDPOINT)
            self._poller.register(self._zap, zmq.POLLIN)
        router = self._socket(zmq.ROUTER, address)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        if self._keys is not None:
            router.setsockopt(zmq.CURVE_SERVER, 1)
            router.setsockopt(zmq.ZAP_DOMAIN, _ZAP_DOMAIN)
        self._router_monitor = router.get_monitor_socket(_EVENTS)
        self._router = router
        self._carriers[router] = None
        self._poller.register(router, zmq.POLLIN)
        self._poller.register(self._router_monitor, zmq.POLLIN)
        try:
            router.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            raise cannot_listen(error.errno, str(error.strerror), address) from None
        return router.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0").removeprefix("tcp://")  # type: ignore[union-attr]

    def connect(self, name: str, address: str) -> None:
        """Begin to connect to a device; `Connected` tells when it stands, and comes again after every break.

        A second call, with another address, is for a device that has moved: the old connection is closed.

        Raises:
            RunError: the address is no HOST:PORT, or not a loopback one while there are no keys.
        """
        if not has_port(address):
            raise _no_address(name, address)
        if self._keys is None:
            require_loopback(address)
        if name in self._outgoing:
            if self._outgoing[name].address == address:
                return
            self._leave(name)
        socket = self._dealer(name, address)
        monitor = socket.get_monitor_socket(_EVENTS)
        self._outgoing[name] = _Outgoing(address, socket, monitor)
        self._carriers[socket] = name
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)
        try:
            socket.connect(f"tcp://{address}")
        except zmq.ZMQError:
            raise _no_address(name, address) from None

    def address_of(self, name: str) -> str:
        """The address at which we connect to a device."""
        return self._outgoing[name].address

    @property
    def strangers(self) -> int:
        """Connections to us so far that ended before they had shown a key, or that spoke another protocol."""
        return self._incoming.strangers

    def watch(self, file: Any) -> None:
        """Report input on a file (an object with `fileno`) as well."""
        self._watched[file.fileno()] = file
        self._poller.register(file, zmq.POLLIN)

    def unwatch(self, file: Any) -> None:
        """Stop that."""
        self._poller.unregister(self._watched.pop(file.fileno()))

    def send(self, origin: Origin, message: Message, frames: Sequence[bytes | memoryview] = ()) -> bool:
        """Queue a message without waiting; False when there is no connection to take it.

        Large frames are not copied: their memory must stay as it is until they have left.
        """
        return self.send_frames(origin, [encode(message), *frames])

    def send_frames(self, origin: Origin, frames: Sequence[bytes | memoryview]) -> bool:
        """Queue the frames of a message; see `send`."""
        try:
            if isinstance(origin, str):
                out = self._outgoing[origin]
                # ZeroMQ would keep the message for a connection to come. Its option against that (IMMEDIATE)
                # drops what has arrived but is not read when the connection breaks; so it is done here.
                if not out.up:
                    return False
                self._send(out.socket, frames)
            elif self._router is not None:
                self._send(self._router, [origin, *frames])
        except (zmq.Again, KeyError):
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def poll(self, timeout_s: float | None) -> list[Event]:
        """The events since the last call, in order for each connection; after `timeout_s` at the latest (None: never).

        More messages may lie ready than it returns.
        """
        if self._left:
            left, self._left = self._left, []
            return [*left]
        ready = dict(self._poller.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))))
        self._all_read = False
        if ready.keys() <= self._carriers.keys():
            # Messages and nothing else, as in every step of a ring: the next device waits for us, so it is kept short.
            messages = [message for socket in ready for message in self._until_values(socket)]
            return [*messages, *self._breaks()]
        if self._zap in ready:
            self._authenticate()
        # A connection's last message lies in its socket before the monitor tells of its end: so breaks come last.
        if self._router_monitor in ready:
            self._look_at_incoming()
        comings, goings = self._changes(ready)
        events: list[Event] = [*comings, *self._messages(ready), *goings]
        events += [Input(file) for number, file in self._watched.items() if number in ready]
        return [*events, *self._breaks()]

    def close(self) -> None:
        """Close all sockets; queued messages get a moment to leave."""
        for socket in filter(None, (self._router, *(out.socket for out in self._outgoing.values()))):
            socket.disable_monitor()
        # Whatever was opened, a socket whose connection could not even begin included.
        self._context.destroy(linger=_LINGER_MS)
        self._outgoing.clear()
        self._carriers.clear()
        self._router = None

    def _dealer(self, name: str, address: str) -> zmq.Socket[bytes]:
        socket = self._socket(zmq.DEALER, address)
        socket.setsockopt(zmq.RECONNECT_IVL, _RETRY_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RETRY_AT_MOST_MS)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
        if self._keys is not None:
            socket.setsockopt_string(zmq.CURVE_SERVERKEY, self._key_of(name))
        return socket

    def _leave(self, name: str) -> None:
        """Close the connection to a device; what it has not read is lost, as in a break."""
        out = self._outgoing.pop(name)
        del self._carriers[out.socket]
        self._poller.unregister(out.socket)
        self._poller.unregister(out.monitor)
        out.socket.disable_monitor()
        out.monitor.close()
        out.socket.close(linger=0)
        if out.up:
            self._left.append(Disconnected(name))

    def _socket(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        # Always set, it would turn IPv4 addresses into IPv6 ones.
        socket.setsockopt(zmq.IPV6, int(is_six(address)))
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, min(self._frame_limit + _ENCRYPTION_BYTES, _LARGEST))
        socket.setsockopt(zmq.HEARTBEAT_IVL, self._heartbeat_ms)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2 * self._heartbeat_ms)
        if self._keys is not None:
            socket.setsockopt_string(zmq.CURVE_PUBLICKEY, self._keys.own.public)
            socket.setsockopt_string(zmq.CURVE_SECRETKEY, self._keys.own.secret)
        return socket

    def _key_of(self, name: str) -> str:
        assert self._keys is not None
        if name not in self._keys.peers:
            hint = "partc keys BUILD makes the keys of a build again"
            raise BundleError(f"there is no key of {name!r}", where="keys", hint=hint)
        return self._keys.peers[name]

    @staticmethod
    def _send(socket: zmq.Socket[bytes], frames: Sequence[bytes | memoryview]) -> None:
        # As `send_multipart`, which does so much around it that it takes twice as long.
        for frame in frames[:-1]:
            socket.send(frame, _MORE, copy=len(frame) < COPY_BELOW_BYTES)
        socket.send(frames[-1], zmq.NOBLOCK, copy=len(frames[-1]) < COPY_BELOW_BYTES)

    def _messages(self, ready: Mapping[Any, int]) -> Iterator[Received | Unreadable]:
        for out in self._outgoing.values():
            if out.socket in ready or out.monitor in ready:
                yield from self._all_received(out.socket)
        if self._router is not None and (self._router in ready or self._router_monitor in ready):
            yield from self._all_received(self._router)

    def _all_received(self, socket: zmq.Socket[bytes]) -> Iterator[Received | Unreadable]:
        """The messages that lie ready, but not so many that others starve."""
        for _ in range(_BATCH):
            frames = _receive(socket)
            if frames is None:
                self._all_read |= socket is self._router
                return
            yield self._message(socket, frames)

    def _until_values(self, socket: zmq.Socket[bytes]) -> Iterator[Received | Unreadable]:
        """The messages up to the first that brings values to a step; the others must not pile up behind one another."""
        for message in self._all_received(socket):
            yield message
            if isinstance(message, Received) and isinstance(message.message, Data):
                return

    def _message(self, socket: zmq.Socket[bytes], frames: Sequence[zmq.Frame]) -> Received | Unreadable:
        name = self._carriers[socket]
        if name is not None:
            return self._read(name, None, frames)
        route, first = frames[0].bytes, frames[1]
        if not self._incoming.knows(route):
            self._look_at_incoming()
            self._incoming.came(int(first.get(zmq.SRCFD)), route)
        user = first.get("User-Id") if self._keys is not None else None
        return self._read(route, user if user is None else str(user), frames[1:])

    def _read(self, origin: Origin, user: str | None, frames: Sequence[zmq.Frame]) -> Received | Unreadable:
        try:
            message = decode(frames[0].buffer, self._header_limit)
        except RunError as error:
            return Unreadable(origin, error)
        return Received(origin, user, message, [memoryview(frame.buffer) for frame in frames[1:]])

    def _changes(self, ready: Mapping[Any, int]) -> tuple[list[Event], list[Event]]:
        """The state of our own connections: events before the messages, and events after them."""
        before: list[Event] = []
        after: list[Event] = []
        for name, out in self._outgoing.items():
            for event, _ in _monitored(out.monitor) if out.monitor in ready else ():
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    out.up = out.has_stood = True
                    before.append(Connected(name))
                elif event == zmq.EVENT_DISCONNECTED and out.up:
                    out.up = False
                    after.append(Disconnected(name))
                elif out.fails_for_good(event):
                    after.append(Rejected(name))
        return before, after

    def _look_at_incoming(self) -> None:
        """Read what there is to be told of connections to us."""
        assert self._router_monitor is not None
        for event, descriptor in _monitored(self._router_monitor):
            if event == zmq.EVENT_ACCEPTED:
                silent = self._incoming.accepted(descriptor)
                if silent is not None:
                    hang_up(silent)
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._incoming.proven(descriptor)
            elif event == zmq.EVENT_DISCONNECTED:
                self._incoming.ended(descriptor)

    def _breaks(self) -> Iterator[Disconnected]:
        """Connections to us that have ended; after all messages."""
        return map(Disconnected, self._incoming.breaks(all_read=self._all_read))

    def _authenticate(self) -> None:
        """Answer ZAP requests: 200 with the peer's name for a key that we know, else 400."""
        assert self._zap is not None and self._keys is not None
        while (frames := _receive(self._zap)) is not None:
            version, request, _domain, _address, _identity, mechanism, *credentials = (
                frame.bytes for frame in frames
            )
            public = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" and credentials else ""
            name = self._keys.name_of(public)
            verdict = [b"200", b"OK", name.encode()] if name else [b"400", b"unknown key", b""]
            self._zap.send_multipart([version, request, *verdict, b""])


def _no_address(name: str, address: str) -> RunError:
    hint = f"HOST:PORT is expected, as in {EXAMPLE}"
    return RunError(f"{address!r} is not an address", where=name, hint=hint)


def _receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame] | None:
    """The frames of the next message; none where no message lies ready."""
    try:
        frames = [socket.recv(zmq.NOBLOCK, copy=False)]
    except zmq.Again:
        return None
    # A message is there with all its frames or not at all.
    while frames[-1].more:
        frames.append(socket.recv(zmq.NOBLOCK, copy=False))
    return frames


def _monitored(monitor: zmq.Socket[bytes]) -> Iterator[tuple[int, int]]:
    """(event, value) of all that a monitor has to tell."""
    while monitor.poll(0):
        message = recv_monitor_message(monitor)
        yield int(message["event"]), int(message["value"])
