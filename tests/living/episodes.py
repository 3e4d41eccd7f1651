"""Disturbances of a ring of real processes, and how it must come through each of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from partc.balance.artifacts import read_artifacts
from partc.format.placement import Placement, stages_of
from partc.runtime.client import keeper
from partc.runtime.client.launch import LocalRing, launch_local
from tests.living.forwarder import Forwarder

PATIENCE_S, REJOIN_S = 1.0, 8.0
CHANGE_S = 30.0
"""A move is over by then."""
INSIDE_S = 0.1
"""A move takes about so long."""
LINK_BYTES_PER_S = 12.5e6
"""A link of 100 Mbit/s."""


@dataclass(slots=True)
class Ground:
    """A ring, and the forwarders in front of its devices."""

    build: Path
    ring: LocalRing
    links: Mapping[str, Forwarder] = field(default_factory=dict)
    """Device → the link by which all others reach it."""


Disturb = Callable[[Ground, str, Random], None]
"""Disturbs a device, and returns when the disturbance is over."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One kind of disturbance."""

    disturb: Disturb
    about: str
    may_fail: bool = False
    """Whether a clear error within the promised time is right as well."""
    restart: bool = True
    has_links: bool = False
    """Whether devices are reached through forwarders."""
    survive: str = "none"
    """`survive` in devices.yaml."""
    spares_ring: bool = True
    """Whether the ring is as before afterwards, and serves the next trial."""


def _kill(ground: Ground, victim: str, rng: Random) -> None:
    os.kill(ground.ring.pids[victim], signal.SIGKILL)


def _stop(ground: Ground, victim: str, rng: Random) -> None:
    """For less than patience, for more, or for so long that nobody waits any more."""
    pid = ground.ring.pids[victim]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(rng.choice((0.3, 3.0, PATIENCE_S + REJOIN_S + 4.0)) * rng.uniform(0.8, 1.2))
    os.kill(pid, signal.SIGCONT)


def _cut(ground: Ground, victim: str, rng: Random) -> None:
    there = rng.random() < 0.5
    ground.links[victim].cut(there=there, back=not there)
    time.sleep(rng.choice((0.3, 3.0, PATIENCE_S + REJOIN_S + 4.0)) * rng.uniform(0.8, 1.2))
    ground.links[victim].mend()


def _slow(ground: Ground, victim: str, rng: Random) -> None:
    ground.links[victim].slow(LINK_BYTES_PER_S / 100)
    time.sleep(rng.uniform(2.0, 4.0))
    ground.links[victim].mend()


def _hang_up(ground: Ground, victim: str, rng: Random) -> None:
    for _ in range(rng.randint(1, 3)):
        ground.links[victim].hang_up()
        time.sleep(rng.uniform(0.0, 0.3))


def _move(ground: Ground, victim: str, rng: Random) -> None:
    with ground.ring.client() as client:
        client.place(_drawn(ground.build, rng)).result(CHANGE_S)


def _kill_inside_a_move(ground: Ground, victim: str, rng: Random) -> None:
    """The move comes into force, or is given up for the loss."""
    with ground.ring.client() as client:
        placing = client.place(_drawn(ground.build, rng))
        client.wait([placing], rng.uniform(0.0, INSIDE_S))
        os.kill(ground.ring.pids[victim], signal.SIGKILL)
        client.wait([placing], CHANGE_S)


def _drawn(build: Path, rng: Random) -> Placement:
    """One of the placements that the pieces on the disks allow."""
    artifacts = read_artifacts(build)
    drawn = [(rng.choice(sorted(piece.holders)), piece) for piece in artifacts.pieces]
    return artifacts.place(stages_of([name for name, piece in drawn for _ in piece.indices]))


EPISODES = {
    "kill": Episode(_kill, "kill -9, started again"),
    "lose": Episode(
        _kill, "kill -9, and nobody starts it again", restart=False, survive="one", spares_ring=False
    ),
    "move": Episode(_move, "another placement, drawn from those that the disks allow", survive="one"),
    "move-kill": Episode(_kill_inside_a_move, "kill -9 inside such a move, started again", survive="one"),
    "stop": Episode(_stop, "SIGSTOP, SIGCONT after a while", may_fail=True),
    "cut": Episode(
        _cut, "a link carries nothing in one direction for a while", may_fail=True, has_links=True
    ),
    "slow": Episode(_slow, "a link at 1 % of its speed for a while", may_fail=True, has_links=True),
    "hang-up": Episode(_hang_up, "connections are closed and come back", has_links=True),
}


@contextmanager
def ground(build: Path, episode: Episode, ports: Iterator[int]) -> Iterator[Ground]:
    """A ring to disturb; `ports` are free ones for devices behind forwarders."""
    keeper.MOST_DEATHS = 1_000_000  # of trials, not of a fault
    folders = sorted(path.name for path in (build / "devices").iterdir())
    with ExitStack() as stack:
        listen = {name: f"127.0.0.1:{next(ports)}" for name in folders[1:]} if episode.has_links else {}
        links = {name: stack.enter_context(Forwarder(address)) for name, address in listen.items()}
        options: dict[str, Any] = {
            "listen": listen,
            "advertise": {name: link.address for name, link in links.items()},
            "restart": episode.restart,
            "floor_s": PATIENCE_S,
            "rejoin_s": REJOIN_S,
        }
        yield Ground(build, stack.enter_context(launch_local(build, **options)), links)
