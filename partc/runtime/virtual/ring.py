"""A ring in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from partc.errors import InternalError
from partc.format.placement import Placement
from partc.format.role import Role
from partc.runtime.core.commands import Command, Compute, Draw
from partc.runtime.core.events import Event
from partc.runtime.core.liveness import LEAST_PATIENCE_S
from partc.runtime.core.start import Start
from partc.runtime.engines.contract import Engine
from partc.runtime.virtual.client import VirtualClient
from partc.runtime.virtual.clock import Clock
from partc.runtime.virtual.network import Arrival, Conditions, Network, Participant
from partc.runtime.virtual.node import Node, Observer, Seconds

_MOST_TURNS = 100_000


def no_time(device: str, work: Compute | Draw) -> float:
    """Computing takes no time."""
    return 0.0


def unobserved(now: float, device: str, event: Event, commands: Sequence[Command]) -> None:
    """Nothing is observed."""


class Ring:
    """All devices of a ring, and a client of it."""

    def __init__(
        self,
        roles: Mapping[str, Role],
        engine_of: Callable[[str], Engine],
        *,
        seconds: Seconds = no_time,
        conditions: Conditions = Conditions(),  # noqa: B008  (frozen)
        arrival: Arrival | None = None,
        observe: Observer = unobserved,
        patience_s: float = LEAST_PATIENCE_S,
        rejoin_s: float = 0.0,
        linger_s: float = 0.0,
        contingencies: Sequence[Placement] = (),
        load_s: float = 0.0,
        seed: int = 0,
    ) -> None:
        """All devices start at 0.

        Args:
            roles: by device.
            engine_of: a new engine for every life of a device.
            seconds: how long computing takes.
            conditions: how the network behaves.
            arrival: when messages arrive, instead of by delay and jitter.
            observe: told of every event of every device, and of the commands that followed.
            patience_s: the shortest time without progress after which a peer counts as gone.
            rejoin_s: the time that requests wait for a lost device.
            linger_s: the time that requests wait for their client.
            contingencies: placements that do without a device.
            load_s: the time that loading takes.
            seed: of all chance.
        """
        self.clock = Clock()
        self._rng = random.Random(seed)
        self.network = Network(self.clock, conditions, self._rng, self._participant, arrival)
        self._roles, self._engine_of = roles, engine_of
        self._seconds, self._observe, self._load_s = seconds, observe, load_s
        self._start_of = partial(
            Start, patience_s=patience_s, rejoin_s=rejoin_s, linger_s=linger_s, contingencies=contingencies
        )
        self.nodes: dict[str, Node] = {}
        for name in roles:
            self._start(name)
        self.source = next(iter(roles.values())).source
        self.client = VirtualClient(roles[self.source], self.network)

    def restart(self, name: str, pause_s: float, late_s: float = 0.0) -> None:
        """End a device without a word, which may show later (`Node.kill`), and start it again after a pause."""
        self.nodes[name].kill(late_s)
        self.clock.after(pause_s, partial(self._start, name))

    def run(self, limit_s: float, until: Callable[[], bool] = lambda: False) -> None:
        """Go on until something holds, or this time has come.

        Raises:
            InternalError: time does not go on.
        """
        most = self.clock.turns + _MOST_TURNS
        while not until() and self.clock.next_s is not None and self.clock.next_s <= limit_s:
            self.clock.turn()
            if self.clock.turns > most:
                raise InternalError(f"{_MOST_TURNS} events by {self.clock.now} s: time does not go on")
        if not until():
            self.clock.now = max(self.clock.now, limit_s)

    def _participant(self, name: str) -> Participant:
        return self.nodes[name]

    def _start(self, name: str) -> None:
        incarnation, first = self._rng.getrandbits(64), 1 + int(self.clock.now * 1000)
        start = self._start_of(incarnation, first)
        node = Node(
            self._roles[name],
            self._engine_of(name),
            start,
            self.clock,
            self.network,
            self._seconds,
            self._observe,
            self._load_s,
        )
        self.nodes[name] = node
        self.clock.after(self._load_s, node.load)
