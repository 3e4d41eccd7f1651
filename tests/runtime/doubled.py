"""Lives of rings in which a device is at the end of two connections: a life that has ended unnoticed, or an impostor.

The end of a life shows late, long after the next life has greeted; and somebody with a device's key greets as the life
of it that runs, and leaves. A request sees one loss at most, so it always ends with the tokens of a quiet ring.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache

from partc.format.messages import Hello, Ready
from partc.runtime.core.events import Connected, Event
from partc.runtime.virtual.network import Conditions, Network
from partc.runtime.virtual.ring import Ring
from tests.runtime.living import DEVICES, Life, Violation, new_ring, roles
from tests.runtime.roles import null_engine

_PROMPTS = ((5, 6, 7),)
_TOKENS = 50
_SOON_S = 15.0
"""A request ends so long after the last thing that happens."""


@dataclass(frozen=True)
class Doubled:
    """All that chance decides."""

    seed: int
    victim: str
    late_s: float
    """After its first life has ended, its listeners notice it so much later."""
    begins_s: float
    """When the request begins; the ring stands."""
    kill_s: float | None
    """When the device is killed once more; None: not at all."""
    greets_s: float | None
    """When an impostor greets; None: there is none."""
    stays_s: float
    target: str
    """The device that the impostor connects to."""


def doubled(seed: int) -> Doubled:
    """The life that a seed stands for."""
    rng = random.Random(seed)
    victim = rng.choice(DEVICES[1:])
    has_impostor, begins_s = rng.random() < 0.5, rng.uniform(8.0, 10.0)
    return Doubled(
        seed=seed,
        victim=victim,
        late_s=rng.choice([0.0, 3.0, 60.0]),
        begins_s=begins_s,
        kill_s=None if has_impostor else begins_s + rng.uniform(0.0, 1.0),
        greets_s=begins_s + rng.uniform(-1.0, 1.0) if has_impostor else None,
        stays_s=rng.choice([0.01, 0.3, 2.0]),
        target=rng.choice(["a", *(name for name in DEVICES if name != victim)]),
    )


@dataclass(eq=False)
class Impostor:
    """A participant with the key of a device, which greets as the life of it that runs."""

    name: str
    greeting: Hello
    network: Network
    alive: bool = True
    heard: list[Event] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Greet, and say nothing else but that all is ready."""
        self.heard.append(event)
        if isinstance(event, Connected):
            hello = self.greeting
            ready = Ready(
                next_request=0, placement=hello.placement, epoch=hello.epoch, incarnation=hello.incarnation
            )
            self.network.send(self, event.peer, hello, ())
            self.network.send(self, event.peer, ready, ())

    def leave(self) -> None:
        """End."""
        self.alive = False
        self.network.leave(self)


def play(life: Doubled) -> None:
    """Run a life.

    Raises:
        Violation: a request does not end with the tokens of a quiet ring.
    """
    ring = new_ring(_quiet(life))
    ring.run(2.0)
    ring.restart(life.victim, 0.05, life.late_s)
    ring.run(life.begins_s if life.greets_s is None else min(life.begins_s, life.greets_s))
    if life.greets_s is not None:
        ring.clock.at(life.greets_s, lambda: _greet(ring, life))
    ring.run(life.begins_s)
    answer = ring.client.submit(_PROMPTS, _TOKENS, ignore_eos=True)
    if life.kill_s is not None:
        ring.clock.at(life.kill_s, lambda: ring.restart(life.victim, 0.05))
    ring.run(ring.clock.now + 4.0 + life.stays_s + _SOON_S, until=lambda: answer.done)
    if answer.result is None:
        raise Violation(f"{life}: {answer.problem or 'no end'}")
    if answer.result.tokens != _expected():
        raise Violation(f"{life}: {answer.result.tokens}")


@cache
def _expected() -> tuple[tuple[int, ...], ...]:
    """The tokens of a quiet ring."""
    made = roles()
    alone = Ring(made, lambda name: null_engine(made[name]))
    answer = alone.client.submit(_PROMPTS, _TOKENS, ignore_eos=True)
    alone.run(_SOON_S, until=lambda: answer.done)
    assert answer.result is not None, answer.problem
    return answer.result.tokens


def _greet(ring: Ring, life: Doubled) -> None:
    links = ring.nodes[life.victim].device.links
    role = links.role
    greeting = Hello(
        name=life.victim, session=links.incarnation % 2**40 + 7, plan=role.plan_digest,
        placement=role.placement_digest, epoch=role.epoch, incarnation=links.incarnation,
    )  # fmt: skip
    impostor = Impostor(life.victim, greeting, ring.network)
    ring.network.connect(impostor, life.target)
    ring.clock.after(life.stays_s, impostor.leave)


def _quiet(life: Doubled) -> Life:
    rng = random.Random(life.seed)
    conditions = Conditions(delay_s=rng.choice([0.001, 0.01]), jitter_s=rng.choice([0.0, 0.01]))
    return Life(
        asks=(), faults=(), conditions=conditions, compute_s=rng.choice([0.001, 0.01]), load_s=0.05,
        has_contingencies=rng.random() < 0.3, is_mirrored=rng.random() < 0.5, seed=life.seed,
    )  # fmt: skip
