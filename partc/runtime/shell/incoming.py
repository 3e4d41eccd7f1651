"""Connections to a ROUTER: which route is which file descriptor, and which of them have ended.

The monitor of a socket tells of a connection by its file descriptor alone; a message names both its descriptor and its
route. The system gives the descriptor of a connection that has ended to the next one, messages are read later than they
came, and so is what the monitor tells. A runner that is started again may be back before anybody has looked: then the
end of one connection, its last messages and the first ones of the next connection lie ready together, all under one
number. So connections are kept in the order in which they were accepted, and what the monitor has to tell must be read
(`accepted`, `proven`, `ended`) before a route that is not known (`knows`) is told of (`came`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_MOST_PAST = 4096
"""Routes of ended connections that are kept in mind: messages of theirs may still be read."""


@dataclass(slots=True)
class _Connection:
    route: bytes = b""
    """Empty until a message of it was read."""
    is_proven: bool = False
    """Whether the handshake is over; before that no message comes."""
    has_ended: bool = False


@dataclass(slots=True)
class Incoming:
    """The connections to a ROUTER."""

    most_silent: int
    """The most connections that may stand of which no message has come."""
    strangers: int = 0
    """Connections that have ended before their handshake was over."""
    _by_number: dict[int, list[_Connection]] = field(default_factory=dict)
    """File descriptor → the connections that it stands for, in the order in which they were accepted; all but the last
    have ended."""
    _routes: set[bytes] = field(default_factory=set)
    """Routes of connections that stand, or whose end is not told yet."""
    _past: dict[bytes, None] = field(default_factory=dict)
    """Routes of connections that have ended, the oldest first."""
    _silent: dict[int, None] = field(default_factory=dict)
    """Connections of which no message has come, the oldest first."""
    _ending: bool = False

    # -- what the monitor tells

    def accepted(self, number: int) -> int | None:
        """A connection is accepted; the number of one to hang up on, which has been silent longest of too many.

        Who says nothing may be anybody, and every connection is an open file: a thousand of them would keep clients
        out.
        """
        while any(not each.has_ended for each in self._by_number.get(number, ())):
            self.ended(number)  # it was not told of, but the system has given its number away
        self._by_number.setdefault(number, []).append(_Connection())
        self._silent.pop(number, None)
        self._silent[number] = None
        if len(self._silent) <= self.most_silent:
            return None
        oldest = next(iter(self._silent))
        del self._silent[oldest]
        return oldest

    def proven(self, number: int) -> None:
        """The handshake of a connection is over."""
        for connection in self._by_number.get(number, ())[-1:]:
            connection.is_proven = True

    def ended(self, number: int) -> None:
        """A connection is closed."""
        self._silent.pop(number, None)
        connections = self._by_number.get(number, [])
        connection = next((each for each in connections if not each.has_ended), None)
        if connection is None:
            return
        connection.has_ended = self._ending = True
        if not connection.is_proven and not connection.route:
            self.strangers += 1
            connections.remove(connection)

    # -- messages

    def knows(self, route: bytes) -> bool:
        """Whether a message of a connection has come before."""
        return route in self._routes or route in self._past

    def came(self, number: int, route: bytes) -> None:
        """The first message of a connection is read."""
        self._silent.pop(number, None)
        connections = self._by_number.setdefault(number, [])
        connection = next((each for each in connections if not each.route), None)
        if connection is None:
            connections.append(connection := _Connection())
        connection.route = route
        self._routes.add(route)

    def breaks(self, *, all_read: bool) -> Iterator[bytes]:
        """Routes of connections that have ended since the last call.

        Args:
            all_read: whether no message lies ready. A connection that has ended without one had nothing to say then;
                otherwise its first message may still come.
        """
        if not self._ending:
            return
        self._ending = False
        for number, connections in list(self._by_number.items()):
            kept = [each for each in connections if not self._is_over(each, all_read)]
            yield from (each.route for each in connections if each.has_ended and each.route)
            self._by_number[number] = kept
            self._ending |= any(each.has_ended for each in kept)
            if not kept:
                del self._by_number[number]

    def _is_over(self, connection: _Connection, all_read: bool) -> bool:
        """Whether nothing more can come of a connection; its route is kept in mind."""
        if not connection.has_ended or not (connection.route or all_read):
            return False
        if connection.route:
            self._routes.discard(connection.route)
            self._past[connection.route] = None
            if len(self._past) > _MOST_PAST:
                del self._past[next(iter(self._past))]
        return True
