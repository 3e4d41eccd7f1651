"""Connections of the endpoint: a cap on those that ask nothing, and a short time for a request to begin.

| a connection | is held |
|---|---|
| of which no byte of a request has come | for `FIRST_BYTE_S` |
| whose request has begun, and has no whole head | for `HEAD_S` from its first byte |
| with a request | as long as `Gate` and the request allow |
| whose client does not read what waits for it | for `UNREAD_S`; then its request is cancelled |

Those of the first two rows are in the lobby. It holds a quarter of the files that the process may open, and where one
more comes, the one that has waited longest is closed: an honest request is read within a turn of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_BYTE_S = 5.0
HEAD_S = 10.0
UNREAD_S = 15.0
_UNREAD_BYTES = 32 << 10
"""Size of the system's buffer of what a client has not read; as much may wait in the process."""
GOODBYE_S = 5.0
"""Time that answers under way have to end after a signal."""
_LAST_WORDS_S = 1.0
"""Time in which clients may read that an answer has ended with an error; then connections are cut."""
LAST_RESORT_S = 9
"""Time after a signal by which requests are cancelled that do not end although their connection is cut."""
_SWEEP_S = 0.5
_MOST_WAITING = 1024
_BACKLOG = 1024
"""Connections that the system keeps until they are accepted."""


def most_waiting(files: int) -> int:
    """Connections that may stand without a request, of a process that may open so many files."""
    return max(16, min(_MOST_WAITING, files // 4))


def accepted_at_once(files: int) -> int:
    """Connections that one turn of the event loop takes, before any of them can be closed."""
    return max(8, min(128, files // 8))


class Lobby:
    """The connections that have no request, the one that has waited longest first."""

    def __init__(self, most: int) -> None:
        """Nobody waits yet."""
        self._most = most
        self._open: dict[int, Connection] = {}
        """Descriptor → connection, of all that are open."""
        self._since: dict[Connection, float] = {}

    @property
    def waiting(self) -> int:
        """Connections without a request."""
        return len(self._since)

    def opened(self, connection: Connection) -> None:
        """Take a new connection."""
        self._open[connection.fileno()] = connection
        self.enter(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a connection, which is about to be closed."""
        self._open.pop(connection.fileno(), None)
        self.leave(connection)

    def of(self, descriptor: int) -> Connection | None:
        """The connection of a descriptor that is open."""
        return self._open.get(descriptor)

    def enter(self, connection: Connection) -> None:
        """Begin to wait, behind all others; the first one goes where there are too many."""
        self._since.pop(connection, None)
        while len(self._since) >= self._most:
            self._hang_up(next(iter(self._since)))
        self._since[connection] = time.monotonic()

    def leave(self, connection: Connection) -> None:
        """It has a request, or is gone."""
        self._since.pop(connection, None)

    def is_waiting(self, connection: Connection) -> bool:
        """Whether it has no request."""
        return connection in self._since

    def sweep(self) -> None:
        """Close those that have waited for too long."""
        now = time.monotonic()
        for connection, since in list(self._since.items()):
            if now - since > (HEAD_S if connection.has_begun else FIRST_BYTE_S):
                self._hang_up(connection)

    def _hang_up(self, connection: Connection) -> None:
        self.leave(connection)
        with contextlib.suppress(OSError):  # it is gone already
            connection.shutdown(socket.SHUT_RDWR)  # the event loop reads its end, and closes it


class Connection(socket.socket):
    """An accepted connection, which the lobby knows from its first moment to its last, its TLS handshake included."""

    lobby: Lobby
    has_begun = False
    """Whether a byte of its next request has come."""

    def close(self) -> None:
        """Close it."""
        self.lobby.closed(self)
        super().close()


class Listener(socket.socket):
    """A socket that listens, and whose connections enter a lobby."""

    lobby: Lobby

    def accept(self) -> tuple[Connection, Any]:
        """The next connection."""
        descriptor, address = self._accept()  # type: ignore[attr-defined]
        connection = Connection(self.family, self.type, self.proto, fileno=descriptor)
        connection.lobby = self.lobby
        self.lobby.opened(connection)
        return connection, address


def listener(host: str, port: int, lobby: Lobby) -> Listener:
    """A socket at an address; raises OSError or OverflowError where it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = Listener(family, socket.SOCK_STREAM)
    made.lobby = lobby
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD_BYTES)  # of its connections
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


class Protocol(H11Protocol):
    """HTTP, which tells the lobby whether its connection has a request."""

    def __init__(self, lobby: Lobby, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._lobby = lobby
        self._connection: Connection | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Find the connection."""
        super().connection_made(transport)
        self._connection = self._lobby.of(transport.get_extra_info("socket").fileno())
        transport.set_write_buffer_limits(_UNREAD_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._is_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give the client some time to read."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._is_read()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Read it; a head that begins has its time from now on."""
        connection = self._connection
        if connection is not None and self._lobby.is_waiting(connection) and not connection.has_begun:
            connection.has_begun = True
            self._lobby.enter(connection)
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._look()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()

    def _look(self) -> None:
        connection = self._connection
        if connection is None or self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._lobby.leave(connection)
        elif self.cycle is not None and not self._lobby.is_waiting(connection):
            connection.has_begun = False
            self._lobby.enter(connection)


class HttpServer(uvicorn.Server):
    """uvicorn's server, with a lobby, and an end that leaves no request without its answer."""

    def __init__(self, config: uvicorn.Config, lobby: Lobby, on_goodbye: Callable[[], None]) -> None:
        """`on_goodbye` ends the answers that are under way `GOODBYE_S` after a signal."""
        super().__init__(config)
        self._lobby, self._on_goodbye = lobby, on_goodbye
        self._sweeper: asyncio.TimerHandle | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(_BACKLOG)  # asyncio's backlog is the number that it accepts at once, too
        self._sweep()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: answers have some seconds, then an error, and who does not read that is cut off."""
        loop = asyncio.get_running_loop()
        timers: Sequence[asyncio.TimerHandle] = (
            loop.call_later(GOODBYE_S, self._on_goodbye),
            loop.call_later(GOODBYE_S + _LAST_WORDS_S, self._cut),
        )
        try:
            await super().shutdown(sockets)
        finally:
            for timer in (*timers, self._sweeper):
                if timer is not None:
                    timer.cancel()

    def _sweep(self) -> None:
        self._lobby.sweep()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _cut(self) -> None:
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
