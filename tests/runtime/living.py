"""Rings that live: devices vanish, come back, forget and are relieved, and the tokens stay those of a quiet ring.

Every device has all pieces, so that any placement can follow on any other. A life is all that chance decides: run
twice, it goes the same way, bit for bit. `python -m tests.runtime.living SEED` prints every event of one, `SEED shared`
of the one whose requests share steps, `SEED hybrid` of the one with states that steps rewrite, `SEED guessing` of the
one whose source guesses tokens.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from functools import cache, partial

from msgspec.structs import replace

from partc.format.message_parts import Sampling
from partc.format.placement import Placement, seal_placement, stages_of
from partc.format.role import Role
from partc.runtime.core.commands import Command, Compute, Draw
from partc.runtime.core.events import Event
from partc.runtime.virtual.client import Answer
from partc.runtime.virtual.network import Conditions
from partc.runtime.virtual.node import Observer
from partc.runtime.virtual.ring import Ring, unobserved
from tests.runtime.roles import Kind, both, null_engine, roles_of

DEVICES = ("a", "b", "c", "d")
PIECES = 6
LENGTH = 72
REJOIN_S = 20.0
_END_S = 300.0
"""After the last thing that goes wrong, everything must have ended within this time."""

_KINDS: Mapping[str, Sequence[Kind]] = {"p0": ("whole", "rows"), "p3": ("whole",)}
"""Kinds of the states of pieces with some that steps rewrite as a whole; other pieces have rows."""

_CHEAP = ((2, 500), (4, 250), (8, 125))
"""Tokens of a step that cost so little, as the build says, that a source takes them wherever it may."""

Assignment = tuple[str, ...]
"""The device of every piece; the source has the first."""
BASE: Assignment = ("a", "b", "b", "c", "c", "d")
WITHOUT: tuple[Assignment, ...] = (
    ("a", "c", "c", "c", "d", "d"), ("a", "b", "b", "b", "d", "d"), ("a", "b", "b", "c", "c", "c"),
)  # fmt: skip
"""One for each device that may be lost."""


class Violation(AssertionError):
    """Something that must hold did not."""


@dataclass(frozen=True)
class Ask:
    """A request."""

    at_s: float
    prompts: tuple[tuple[int, ...], ...]
    tokens: int
    temperature: float


@dataclass(frozen=True)
class Fault:
    """Something goes wrong, or a move is asked for."""

    at_s: float
    kind: str
    """`crash`, `source` (the source crashes), `cut`, `mute` (one direction carries nothing), `stall` (a process stands
    still), `move`."""
    device: str
    pause_s: float = 0.0
    """Until it is over; for ever: infinity."""
    peer: str = ""
    assignment: Assignment = ()


@dataclass(frozen=True)
class Life:
    """All that chance decides."""

    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...]
    conditions: Conditions
    compute_s: float
    load_s: float
    has_contingencies: bool
    is_mirrored: bool
    seed: int
    is_shared: bool = False
    """Whether requests of one sequence share steps."""
    rewritten: tuple[str, ...] = ()
    """Pieces with states that steps rewrite as a whole."""
    guessed: float | None = None
    """The share of tokens that drafts have right; None: nothing is guessed."""
    step_tokens: tuple[tuple[int, int], ...] = ()
    """Tokens of a request that a step may take, and what it costs."""

    @property
    def stands_s(self) -> float:
        """When the ring stands at the latest, if nothing is lost for ever: what is away before then comes back."""
        stands = self.load_s + 1
        for fault in sorted(self.faults, key=lambda fault: fault.at_s):
            if fault.kind in ("crash", "stall", "mute") and fault.at_s < stands and fault.pause_s < 1e6:
                stands = max(stands, fault.at_s + fault.pause_s + self.load_s + 1)
        return stands

    @property
    def last_s(self) -> float:
        """When the last thing is asked for or goes wrong."""
        pauses = [fault.pause_s if fault.pause_s < 1e6 else 3.0 for fault in self.faults]
        ends = [fault.at_s + pause for fault, pause in zip(self.faults, pauses, strict=True)]
        return max([*(ask.at_s for ask in self.asks), *ends])


def life(seed: int) -> Life:
    """The life that a seed stands for."""
    rng = random.Random(seed)
    asks = tuple(_ask(rng) for _ in range(rng.randint(1, 3)))
    faults = tuple(_fault(rng) for _ in range(rng.randint(1, 5)))
    conditions = Conditions(
        delay_s=rng.choice([0.001, 0.01, 0.05]),
        jitter_s=rng.choice([0.0, 0.01, 0.1]),
        disorder=rng.choice([0.0, 0.3, 1.0]),
        repetition=rng.choice([0.0, 0.3]),
        notice_s=rng.choice([0.0, 0.1, 1.0]),
    )
    return Life(
        asks=asks,
        faults=faults,
        conditions=conditions,
        compute_s=rng.choice([0.001, 0.02, 0.1]),
        load_s=rng.choice([0.0, 0.05, 1.0]),
        has_contingencies=rng.random() < 0.5,
        is_mirrored=rng.random() < 0.5,
        seed=seed,
    )


def shared_life(seed: int) -> Life:
    """The life of a seed with more requests, which share steps as far as they are of one sequence."""
    rng = random.Random(-1 - seed)
    asks = [_ask(rng) for _ in range(rng.randint(3, 9))]
    alone = [dataclass_replace(ask, prompts=ask.prompts[:1]) if rng.random() < 0.9 else ask for ask in asks]
    return dataclass_replace(life(seed), asks=tuple(alone), is_shared=True)


def guessing_life(seed: int) -> Life:
    """The life of a seed, or that with shared steps, whose source guesses tokens, in longer answers."""
    rng = random.Random(f"guessing {seed}")
    of_seed = life(seed) if seed % 3 else shared_life(seed)
    asks = [
        dataclass_replace(
            ask, prompts=ask.prompts[: rng.choice([1, 1, 2])], tokens=max(ask.tokens, rng.choice([8, 40]))
        )
        for ask in of_seed.asks
    ]
    return dataclass_replace(
        of_seed,
        asks=tuple(asks),
        guessed=rng.choice([0.2, 0.6, 0.9, 1.0]),
        step_tokens=rng.choice([(), _CHEAP[:2], _CHEAP]),
    )


def hybrid_life(seed: int) -> Life:
    """The life of a seed, or that with shared steps, with pieces whose states steps rewrite.

    Half of what goes wrong is a link that carries nothing for longer than patience lasts: nobody is lost then, and
    requests go on from what all have.
    """
    rng = random.Random(f"hybrid {seed}")
    of_seed = life(seed) if seed % 5 else shared_life(seed)
    faults = tuple(_muted(rng, fault) if rng.random() < 0.5 else fault for fault in of_seed.faults)
    return dataclass_replace(of_seed, faults=faults, rewritten=rng.choice([("p0", "p3"), ("p3",)]))


def _muted(rng: random.Random, fault: Fault) -> Fault:
    sender, receiver = rng.sample(DEVICES, 2)
    device, peer = (receiver, sender) if sender == DEVICES[0] else (sender, receiver)
    return dataclass_replace(
        fault, kind="mute", device=device, peer=peer, pause_s=rng.choice([5.5, 6.0, 8.0])
    )


def _ask(rng: random.Random) -> Ask:
    rows = rng.randint(1, 2)
    prompts = tuple(tuple(rng.randint(4, 16) for _ in range(rng.choice([1, 4, 9, 20]))) for _ in range(rows))
    return Ask(rng.random() * 2, prompts, rng.choice([2, 4, 8, 8, 15, 15, 50]), rng.choice([0.0, 1.0]))


def _fault(rng: random.Random) -> Fault:
    kind = rng.choice(
        ["crash"] * 6 + ["cut", "cut", "mute", "mute", "stall", "stall"] + ["move"] * 4 + ["source"]
    )
    device = rng.choice(DEVICES[1:])
    peer = rng.choice([name for name in DEVICES if name != device])
    pause = rng.choice([0.0, 0.05, 0.5, 3.0, 12.0, float("inf")])
    if kind in ("mute", "stall"):
        pause = rng.choice([0.05, 0.5, 3.0, 12.0])
    borders = sorted(rng.randint(1, PIECES) for _ in range(3))
    order = rng.sample(DEVICES[1:], 3)
    holders = ["a"] * borders[0]
    for name, begin, end in zip(order, borders, [*borders[1:], PIECES], strict=True):
        holders += [name] * (end - begin)
    return Fault(rng.random() * 4, kind, device, pause, peer, tuple(holders))


# -- placements


def programs_of(assignment: Assignment) -> dict[str, dict[str, str]]:
    """Device → phase → text: a chain of pieces, and residuals from 0 to 3 and from 1 to 5."""
    reads = {k: [f"v{k - 1}"] for k in range(1, PIECES)} | {0: ["input_ids"]}
    reads[3].append("r0")
    reads[5].append("r1")
    writes = {k: [f"v{k}"] for k in range(PIECES)}
    writes[0].append("r0")
    writes[1].append("r1")
    lines: dict[str, list[str]] = {name: [] for name in dict.fromkeys(assignment)}
    here: dict[str, set[str]] = {name: {"input_ids"} for name in lines}
    maker = {value: assignment[k] for k, values in writes.items() for value in values}
    for k, device in enumerate(assignment):
        for value in reads[k]:
            if value not in here[device]:
                lines[device].append(f"recv {value} from {maker[value]}")
                here[device].add(value)
        lines[device].append(f"run p{k} (position, {', '.join(reads[k])}) -> ({', '.join(writes[k])})")
        here[device].update(writes[k])
        for value in writes[k]:
            users = (assignment[j] for j in range(k + 1, PIECES) if value in reads[j])
            lines[device] += [f"send {value} to {user}" for user in dict.fromkeys(users) if user != device]
    last, source = assignment[-1], assignment[0]
    lines[last].append(f"sample v{PIECES - 1} -> token")
    if last != source:
        lines[last].append(f"send token to {source}")
        lines[source].append(f"recv token from {last}")
    lines[source].append("emit token")
    return {name: both("\n".join(text)) for name, text in lines.items()}


@cache
def placement_of(assignment: Assignment, mirrored: bool = False) -> Placement:
    """A placement of the pieces; every device may join."""
    role = next(iter(plain_roles().values()))
    programs = programs_of(assignment)
    ring = tuple(programs)
    return seal_placement(
        replace(
            role.placement,
            ring=ring,
            stages=dict.fromkeys(("prefill", "decode"), stages_of(assignment)),
            mirrors=_mirrors(assignment) if mirrored else {},
            programs={phase: {n: programs[n][phase] for n in ring} for phase in ("prefill", "decode")},
        )
    )


def _mirrors(assignment: Assignment) -> dict[str, str]:
    """Each piece is kept by the device that has it after the loss of its own, or by any other."""
    spare = dict(zip(DEVICES[1:], WITHOUT, strict=True))
    takers = {f"p{k}": spare[device][k] for k, device in enumerate(assignment) if device in spare}
    return {name: taker for name, taker in takers.items() if taker != assignment[int(name[1:])]}


@cache
def plain_roles(
    shared: bool = False, rewritten: tuple[str, ...] = (), step_tokens: tuple[tuple[int, int], ...] = ()
) -> Mapping[str, Role]:
    """The roles of all devices with nothing but their own pieces."""
    slots, together = (8, 4) if shared else (2, 1)
    return roles_of(
        programs_of(BASE), max_batch=2, max_requests=slots, step_requests=together, prompt_chunk=16, eos=(3,),
        max_sequence=LENGTH, kinds={name: _KINDS[name] for name in rewritten}, step_tokens=step_tokens,
    )  # fmt: skip


@cache
def roles(
    mirrored: bool = False,
    shared: bool = False,
    rewritten: tuple[str, ...] = (),
    step_tokens: tuple[tuple[int, int], ...] = (),
) -> Mapping[str, Role]:
    """The roles of all devices in the base placement; each has all pieces."""
    plain = plain_roles(shared, rewritten, step_tokens)
    pieces = {module.name: module for role in plain.values() for module in role.build.submodules}
    values = {name: kind for role in plain.values() for name, kind in role.build.values.items()}
    every = tuple(pieces[name] for name in sorted(pieces))
    base = placement_of(BASE, mirrored)
    return {
        name: Role(role.changed(submodules=every, values=values).build, base) for name, role in plain.items()
    }


# -- playing


def new_ring(life: Life, observe: Observer = unobserved) -> Ring:
    """The ring of a life."""
    made = roles(life.is_mirrored, life.is_shared, life.rewritten, life.step_tokens)
    return Ring(
        made,
        lambda name: null_engine(made[name]),
        seconds=partial(_seconds, life.compute_s),
        conditions=life.conditions,
        observe=observe,
        rejoin_s=REJOIN_S,
        contingencies=tuple(placement_of(each, life.is_mirrored) for each in WITHOUT)
        if life.has_contingencies
        else (),
        load_s=life.load_s,
        seed=life.seed,
    )


def _seconds(compute_s: float, device: str, work: Compute | Draw) -> float:
    return compute_s if isinstance(work, Compute) else compute_s / 10


@cache
def expected(
    prompts: tuple[tuple[int, ...], ...], tokens: int, temperature: float, rewritten: tuple[str, ...] = ()
) -> tuple[tuple[int, ...], ...]:
    """The tokens of a request that is alone in a quiet ring."""
    made = roles(rewritten=rewritten)
    alone = Ring(made, lambda name: null_engine(made[name]))
    answer = alone.client.submit(prompts, tokens, sampling=Sampling(temperature=temperature, seed=7))
    alone.run(_END_S, until=lambda: answer.done)
    assert answer.result is not None, answer.problem
    return answer.result.tokens


def play(life: Life, observe: Observer = unobserved) -> Counter[str]:
    """Run a life; what happened in it.

    Raises:
        Violation: something that must hold did not.
    """
    ring = new_ring(life, observe)
    asked: dict[Ask, Answer] = {}
    for ask in life.asks:
        ring.clock.at(ask.at_s, partial(_submit, ring, ask, asked, life))
    for fault in life.faults:
        ring.clock.at(fault.at_s, partial(_do, ring, fault))
    ring.run(life.last_s)
    ring.run(
        life.last_s + _END_S,
        until=lambda: len(asked) == len(set(life.asks)) and all(a.done for a in asked.values()),
    )
    counts: Counter[str] = Counter()
    for ask, answer in asked.items():
        _check(life, ask, answer)
        if answer.result is not None:
            counts["results"] += 1
            counts["replayed"] += answer.result.replayed
            counts["drafted"] += answer.result.drafted
            counts["accepted"] += answer.result.accepted
            if answer.result.mismatches:
                raise Violation(f"{ask}: {answer.result.mismatches} mismatches")
        elif answer.problem is not None:
            counts[answer.problem.cause] += 1
    _check_healed(life, ring)
    counts["moves"] += sum(placed for placed in ring.client.placed)
    source = ring.nodes[ring.source].device.source
    assert source is not None
    counts["changes"] += source.changes.role.epoch
    return counts


def _check_healed(life: Life, ring: Ring) -> None:
    """What went wrong is over: the ring serves the next request, if all devices are there, or a placement without."""
    for name, node in ring.nodes.items():
        if not node.alive:
            ring.restart(name, 0.0)
    ring.run(ring.clock.now + REJOIN_S)
    prompts: tuple[tuple[int, ...], ...] = ((5, 6, 7, 8),)
    answer = ring.client.submit(prompts, 3)
    ring.run(ring.clock.now + _END_S, until=lambda: answer.done)
    if answer.result is None or answer.result.tokens != expected(prompts, 3, 0.0, life.rewritten):
        raise Violation(f"the next request: {answer.result or answer.problem}")
    source = ring.nodes[ring.source].device.source
    assert source is not None
    schedule = source.schedule
    if schedule.queue.free_slots != schedule.role.model.max_requests:
        raise Violation(f"free slots {schedule.queue.free_slots}, running {list(schedule.queue)}")


def _submit(ring: Ring, ask: Ask, asked: dict[Ask, Answer], life: Life) -> None:
    if ask not in asked:
        likely = sum(map(len, ask.prompts)) % 3 if life.is_shared else 0
        asked[ask] = ring.client.submit(
            ask.prompts,
            ask.tokens,
            sampling=Sampling(temperature=ask.temperature, seed=7, likely=likely),
            reuse=life.is_shared,
            drafts=life.guessed is not None,
            expected=_draft_of(ask, life),
        )


def _draft_of(ask: Ask, life: Life) -> list[int]:
    """The answer, with so many tokens of it right."""
    if life.guessed is None:
        return []
    rng = random.Random(life.seed)
    right = expected(ask.prompts, ask.tokens, ask.temperature, life.rewritten)[0]
    return [token if rng.random() < life.guessed else rng.randrange(17) for token in right]


def _do(ring: Ring, fault: Fault) -> None:
    name, over = fault.device, fault.pause_s
    match fault.kind:
        case "crash":
            if ring.nodes[name].alive:
                ring.restart(name, over) if over < 1e6 else ring.nodes[name].kill()
        case "source":
            if ring.nodes[ring.source].alive:
                ring.restart(ring.source, min(over, 3.0))
        case "cut":
            ring.network.cut(name, fault.peer)
            ring.network.cut(fault.peer, name)
        case "mute":
            ring.network.mute(name, fault.peer, over)
        case "stall":
            ring.nodes[name].stall(over)
        case "move":
            ring.client.place(placement_of(fault.assignment, fault.pause_s > 0))
        case _:
            raise ValueError(fault.kind)


def _check(life: Life, ask: Ask, answer: Answer) -> None:
    if not answer.done:
        raise Violation(f"{ask} hangs")
    if answer.late:
        raise Violation(f"{ask} ends, and {answer.late} comes later")
    right = expected(ask.prompts, ask.tokens, ask.temperature, life.rewritten)
    rows = zip(*answer.tokens, strict=True) if answer.tokens else [() for _ in right]
    told = tuple(tuple(token for token in row if token is not None) for row in rows)
    if any(row != good[: len(row)] for row, good in zip(told, right, strict=True)):
        raise Violation(f"{ask} is told {told}, not {right}")
    if answer.result is not None and not answer.result.tokens == told == right:
        raise Violation(f"{ask} is told {told}, and then {answer.result.tokens}, not {right}")
    if answer.problem is not None and not (
        answer.problem.cause in ("lost-peer", "stalled") and _may_fail(life)
    ):
        raise Violation(f"{ask} fails without a reason: {answer.problem}")


def _may_fail(life: Life) -> bool:
    """Whether a request may end: the source is lost, the same device twice, or one for which there is no other, or
    that was not there yet."""
    lost = [
        name for fault in life.faults if fault.kind != "move" for name in {fault.device, _other_end(fault)}
    ]
    for_ever = [fault.device for fault in life.faults if fault.kind == "crash" and fault.pause_s > 1e6]
    has_source = any(fault.kind == "source" for fault in life.faults)
    early = any(
        fault.kind == "crash" and fault.at_s < life.stands_s and fault.pause_s > 1e6 for fault in life.faults
    )
    return early or has_source or len(lost) > len(set(lost)) or len(for_ever) > life.has_contingencies


def _other_end(fault: Fault) -> str:
    """The other device that may count as lost."""
    return fault.peer if fault.kind in ("cut", "mute") and fault.peer != DEVICES[0] else fault.device


def _print(now: float, device: str, event: Event, commands: Sequence[Command]) -> None:
    from tests.runtime.scenarios import described

    print(*described(now, device, event, commands), sep="\n")


if __name__ == "__main__":
    kinds = {"": life, "shared": shared_life, "hybrid": hybrid_life, "guessing": guessing_life}
    chosen = kinds["".join(sys.argv[2:])](int(sys.argv[1]))
    print(chosen)
    print(play(chosen, _print))
