"""Connections in virtual time, with all that ZeroMQ connections may do, and with what links survive besides.

A connection carries messages both ways, in order. When it breaks, what is under way is lost, and each end notices on
its own, sooner or later: a new connection may stand before the old one's end is noticed, and what the old one carries
may arrive later than what the new one does, but for the first message. Whoever opened it tries again.

Links number their messages, so that they survive more: `disorder` lets numbered messages be overtaken, and with
`repetition` they arrive twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from partc.format.messages import Ack, Data, Hello, Message
from partc.runtime.core.commands import Frame
from partc.runtime.core.events import Connected, Disconnected, Event, Origin, Received
from partc.runtime.virtual.clock import Clock

Arrival = Callable[[str, str, Message, Sequence[Frame], float], float]
"""(sender, receiver, message, frames, now) -> when it arrives."""


@dataclass(frozen=True)
class Conditions:
    """The behaviour of a network; by default messages arrive at once."""

    delay_s: float = 0.0
    """Seconds of every message and of a new connection."""
    jitter_s: float = 0.0
    """A message takes up to so much longer."""
    disorder: float = 0.0
    """Share of the numbered messages that later ones may overtake."""
    repetition: float = 0.0
    """Share of the numbered messages that arrive twice."""
    notice_s: float = 0.0
    """An end notices a break up to so much later."""
    retry_s: float = 0.05
    """Time between attempts to connect."""


class Participant(Protocol):
    """One end of connections."""

    name: str
    alive: bool

    def take(self, event: Event) -> None:
        """Something happened."""


@dataclass(eq=False)
class _Pipe:
    """One direction of a connection."""

    sender: Participant
    receiver: Participant
    origin: Origin
    """The connection's name at the receiver."""
    last_s: float = 0.0
    """The time at which the last message in order arrives."""
    ends_s: float | None = None
    """Messages that would arrive later are lost."""


@dataclass(eq=False)
class _Connection:
    there: _Pipe
    back: _Pipe

    @property
    def opener(self) -> Participant:
        return self.there.sender

    @property
    def listener(self) -> Participant:
        return self.there.receiver


class Network:
    """All connections of a ring."""

    def __init__(
        self,
        clock: Clock,
        conditions: Conditions,
        rng: random.Random,
        find: Callable[[str], Participant],
        arrival: Arrival | None = None,
    ) -> None:
        """Nothing is connected.

        Args:
            clock: the time.
            conditions: how it behaves; may be replaced at any time.
            rng: the only source of chance.
            find: the participant of a name, as it is now.
            arrival: stands instead of delay and jitter.
        """
        self.conditions = conditions
        self._clock, self._rng, self._find = clock, rng, find
        self._arrival = arrival or self._delayed
        self._connections: list[_Connection] = []
        self._pipes: dict[tuple[Participant, Origin], _Pipe] = {}
        """(sender, its name for the connection) → what carries its messages."""
        self._first: dict[tuple[str, str], float] = {}
        """(name of the opener, name of the listener) → when the first message of its last connection arrives."""
        self._made = 0
        self._muted: dict[tuple[str, str], float] = {}
        """(sender, receiver) → until when nothing arrives."""

    def connect(self, opener: Participant, name: str) -> None:
        """Connect, and again after every break; `Connected` tells when it stands."""
        self._clock.after(self.conditions.delay_s, partial(self._try, opener, name))

    def send(self, sender: Participant, origin: Origin, message: Message, frames: Sequence[Frame]) -> None:
        """Carry a message; where no connection stands it is lost."""
        pipe = self._pipes.get((sender, origin))
        if pipe is None or pipe.ends_s is not None:
            return
        event = Received(pipe.origin, sender.name, message, [memoryview(bytes(frame)) for frame in frames])  # type: ignore[arg-type]
        conditions, now = self.conditions, self._clock.now
        arrives = self._arrival(sender.name, pipe.receiver.name, message, frames, now)
        numbered = isinstance(message, Data | Ack)
        if numbered and self._chance(conditions.disorder):
            arrives += self._rng.random() * 4 * (conditions.delay_s + conditions.jitter_s)
        else:
            pipe.last_s = arrives = max(arrives, pipe.last_s)
        until = self._muted.get((sender.name, pipe.receiver.name), 0.0)
        if arrives < until:
            pipe.last_s = arrives = max(until, pipe.last_s)
        if isinstance(message, Hello):
            self._first[sender.name, pipe.receiver.name] = arrives
        self._clock.at(arrives, partial(self._deliver, pipe, event))
        if numbered and self._chance(conditions.repetition):
            again = self._rng.random() * 8 * (conditions.delay_s + conditions.jitter_s)
            self._clock.at(arrives + again, partial(self._deliver, pipe, event))

    def cut(self, opener: str, listener: str) -> None:
        """Break the connection that one participant opened to another one, if it stands."""
        for connection in list(self._connections):
            if (connection.opener.name, connection.listener.name) == (opener, listener):
                self._break(connection)

    def mute(self, sender: str, receiver: str, seconds: float) -> None:
        """Carry nothing from one participant to another for a while, though all connections stand.

        What is sent meanwhile comes late, as over TCP, which repeats it.
        """
        self._muted[sender, receiver] = self._clock.now + seconds

    def leave(self, participant: Participant, late_s: float = 0.0) -> None:
        """A process has ended: its connections break; the ends of those that it had opened show so much later."""
        for connection in list(self._connections):
            if participant in (connection.opener, connection.listener):
                self._break(connection, late_s if participant is connection.opener else 0.0)

    # -- inner workings

    def _try(self, opener: Participant, name: str) -> None:
        if not opener.alive:
            return
        listener = self._find(name)
        if not listener.alive:
            self._clock.after(self.conditions.retry_s, partial(self._try, opener, name))
            return
        self._made += 1
        route = f"{opener.name}/{self._made}".encode()
        first_s = self._first.get((opener.name, name), 0.0)
        there, back = _Pipe(opener, listener, route, first_s), _Pipe(listener, opener, name)
        self._connections.append(_Connection(there, back))
        self._pipes[opener, name], self._pipes[listener, route] = there, back
        opener.take(Connected(name))

    def _deliver(self, pipe: _Pipe, event: Received) -> None:
        if pipe.receiver.alive and (pipe.ends_s is None or self._clock.now < pipe.ends_s):
            pipe.receiver.take(event)

    def _break(self, connection: _Connection, late_s: float = 0.0) -> None:
        self._connections.remove(connection)
        for pipe in (connection.there, connection.back):
            noticed = self._clock.now + self._rng.random() * self.conditions.notice_s
            pipe.ends_s = self._clock.now + self._rng.random() * (noticed - self._clock.now)
            noticed += late_s if pipe is connection.there else 0.0
            self._clock.at(noticed, partial(self._noticed, pipe, pipe is connection.back))

    def _noticed(self, pipe: _Pipe, is_opener: bool) -> None:
        """An end of a connection learns that it is broken; the one that opened it tries again."""
        self._pipes.pop((pipe.receiver, pipe.origin), None)
        if not pipe.receiver.alive:
            return
        pipe.receiver.take(Disconnected(pipe.origin))
        if is_opener:
            self._clock.after(self.conditions.retry_s, partial(self._try, pipe.receiver, str(pipe.origin)))

    def _delayed(
        self, sender: str, receiver: str, message: Message, frames: Sequence[Frame], now: float
    ) -> float:
        return now + self.conditions.delay_s + self._rng.random() * self.conditions.jitter_s

    def _chance(self, share: float) -> bool:
        return share > 0.0 and self._rng.random() < share
