"""Disturbances of a ring of real processes, and how it must come through each of them."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from partc.cluster.demo import free_ports
from partc.format.messages import Placed
from partc.format.placement import Placement, Stages, stages_of
from partc.runtime.client import keeper
from partc.runtime.client.client import Client
from partc.runtime.client.launch import LocalRing, launch_local
from partc.runtime.engines.ort_library import VARIABLE, library_path
from tests.living.forwarder import Forwarder
from tests.living.promises import Promises, read_promises
from tests.living.throttle import Throttle

PATIENCE_S, REJOIN_S = 1.0, 8.0
CHANGE_S = 30.0
"""A move is over by then."""
INSIDE_S = 0.1
"""A move takes about so long."""
LINK_BYTES_PER_S = 12.5e6
"""A link of 100 Mbit/s."""
SLOWER = 8.0
"""A device that is to give something away takes so many times as long."""
RETURN_S = 60.0
"""A runner that is started again is back by then, however much else the machine has to do."""
APART_S = 2.0
"""Two losses of a trial are no further apart."""


@dataclass(slots=True)
class Ground:
    """A ring, and what can be done to it."""

    build: Path
    ring: LocalRing
    promises: Promises
    throttle: Throttle
    links: Mapping[str, Forwarder] = field(default_factory=dict)
    """Device → the link by which all others reach it."""
    lost: dict[str, float] = field(default_factory=dict)
    """Device → when it was killed for good, seconds."""
    moves: list[Placed] = field(default_factory=list)
    history: list[Stages] = field(default_factory=list)
    """The placements that were in force or prepared, the last one last."""

    @property
    def promised_s(self) -> float | None:
        """Seconds of a token after the loss of one device, by the plan."""
        return self.promises.token_s(*self.lost) if len(self.lost) == 1 else None

    def kill(self, device: str) -> None:
        """`kill -9`."""
        os.kill(self.ring.pids[device], signal.SIGKILL)

    def lose(self, device: str) -> None:
        """The same, where nobody starts it again."""
        self.kill(device)
        self.lost[device] = time.monotonic()
        if device in self.promises.contingencies:
            self.history.append(_stages(self.promises.contingencies[device]))

    def settle(self, client: Client) -> None:
        """Every device has its own speed again, and runs what it was compiled to run."""
        compiled = self.promises.artifacts.compiled
        for device in self.promises.artifacts.builds:
            self.throttle.slow(device, 1.0)
        if self.history[-1] != _stages(compiled):
            client.place(compiled).result(CHANGE_S)
            self.history.append(_stages(compiled))

    def moved(self, placement: Placement, placed: Placed) -> None:
        """Note a move."""
        self.moves.append(placed)
        self.history.append(_stages(placement))


Disturb = Callable[[Ground, str, Random], None]
"""Disturbs a device, and returns when the disturbance is over."""
MayFail = Callable[[Ground], bool]
"""Whether a clear error within the promised time is right as well."""


def never(ground: Ground) -> bool:
    """Tokens alone are right."""
    return False


def always(ground: Ground) -> bool:
    """An error is right as well."""
    return True


def where_nothing_helps(ground: Ground) -> bool:
    """An error is right where no placement does without the devices that were lost."""
    return not ground.promises.survives(ground.lost)


@dataclass(frozen=True, slots=True)
class Episode:
    """One kind of disturbance."""

    disturb: Disturb
    about: str
    may_fail: MayFail = never
    restart: bool = True
    has_links: bool = False
    """Whether devices are reached through forwarders."""
    survive: str = "none"
    """`survive` in devices.yaml."""
    spares_ring: bool = True
    """Whether the ring is as before afterwards, and serves the next trial."""
    balances: bool = False
    """Whether the balancer moves sub-modules; a trial is over when it has."""
    requests: int = 1
    """Requests of a trial, where nobody says how many."""
    rejoin_s: float = REJOIN_S
    """`--rejoin` of the runners."""


def _kill(ground: Ground, victim: str, rng: Random) -> None:
    ground.kill(victim)


def _lose(ground: Ground, victim: str, rng: Random) -> None:
    ground.lose(victim)


def _lose_twice(ground: Ground, victim: str, rng: Random) -> None:
    """The second one during the first change, or behind it."""
    ground.lose(victim)
    time.sleep(rng.choice((INSIDE_S, APART_S)) * rng.random())
    _, *others = ground.promises.artifacts.builds
    ground.lose(rng.choice([name for name in others if name != victim]))


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
    placement = _drawn(ground, rng)
    with ground.ring.client() as client:
        ground.moved(placement, client.place(placement).result(CHANGE_S))


def _kill_inside_a_move(ground: Ground, victim: str, rng: Random) -> None:
    """The move comes into force, or is given up for the loss."""
    placement = _drawn(ground, rng)
    with ground.ring.client() as client:
        placing = client.place(placement)
        client.wait([placing], rng.uniform(0.0, INSIDE_S))
        ground.kill(victim)
        client.wait([placing], CHANGE_S)
    if isinstance(placing.outcome, Placed):
        ground.moved(placement, placing.outcome)
    else:
        ground.history += [_stages(placement), ground.history[-1]]  # it was loaded, and released


def _throttle(ground: Ground, victim: str, rng: Random) -> None:
    ground.throttle.slow(victim, SLOWER)


def _drawn(ground: Ground, rng: Random) -> Placement:
    """One of the placements that the pieces on the disks allow."""
    artifacts = ground.promises.artifacts
    drawn = [(rng.choice(sorted(piece.holders)), piece) for piece in artifacts.pieces]
    return artifacts.place(stages_of([name for name, piece in drawn for _ in piece.indices]))


def _stages(placement: Placement) -> Stages:
    return next(iter(placement.stages.values()))


EPISODES = {
    "kill": Episode(_kill, "kill -9, started again", rejoin_s=RETURN_S),
    "lose": Episode(
        _lose, "kill -9, and nobody starts it again", restart=False, survive="one", spares_ring=False
    ),
    "lose-twice": Episode(
        _lose_twice, "and another one after it", where_nothing_helps, restart=False, survive="one",
        spares_ring=False,
    ),
    "move": Episode(_move, "another placement, drawn from those that the disks allow", survive="one"),
    "move-kill": Episode(
        _kill_inside_a_move, "kill -9 inside such a move, started again", survive="one", rejoin_s=RETURN_S
    ),
    "balance": Episode(
        _throttle, f"{SLOWER:g} times slower, until the balancer has moved something", survive="one",
        balances=True, requests=24,
    ),
    "stop": Episode(_stop, "SIGSTOP, SIGCONT after a while", always),
    "cut": Episode(_cut, "a link carries nothing in one direction for a while", always, has_links=True),
    "slow": Episode(_slow, "a link at 1 % of its speed for a while", always, has_links=True),
    "hang-up": Episode(_hang_up, "connections are closed and come back", has_links=True),
}  # fmt: skip


@contextmanager
def ground(
    build: Path, episode: Episode, runners: Mapping[str, Sequence[str]], slowness: float = 1.0
) -> Iterator[Ground]:
    """A ring to disturb.

    Args:
        build: of the ring.
        episode: what disturbs it.
        runners: the commands of devices that are not run as the build says.
        slowness: the multiple of all patience.
    """
    keeper.MOST_DEATHS = 1_000_000  # of trials, not of a fault
    promises = read_promises(build)
    with ExitStack() as stack:
        _, *others = promises.artifacts.builds
        behind = others if episode.has_links else []
        listen = {
            name: f"127.0.0.1:{port}" for name, port in zip(behind, free_ports(len(behind)), strict=True)
        }
        links = {name: stack.enter_context(Forwarder(address)) for name, address in listen.items()}
        found = library_path()
        library = {VARIABLE: str(found)} if runners and found else {}
        throttle = Throttle(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        options: dict[str, Any] = {
            "listen": listen,
            "advertise": {name: link.address for name, link in links.items()},
            "env": {**library, **(throttle.env if episode.balances else {})},
            "runners": runners,
            "restart": episode.restart,
            "floor_s": PATIENCE_S * slowness,
            "rejoin_s": episode.rejoin_s * slowness,
        }
        ring = stack.enter_context(launch_local(build, **options))
        yield Ground(build, ring, promises, throttle, links, history=[promises.artifacts.stages])
