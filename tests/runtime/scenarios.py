"""Scenarios: a ring, what its client asks for, and what goes wrong meanwhile; and what must hold whatever does.

A scenario is all that chance decides: run twice, it goes the same way, bit for bit. Its text is Python, so that one
that a test printed can be run again: `python -m tests.runtime.scenarios 'Scenario(...)'` prints every event.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from hypothesis import strategies as st

from partc.format.message_parts import Sampling
from partc.format.role import Role
from partc.runtime.core.commands import Command, Compute, Draw, Send
from partc.runtime.core.events import Computed, Event, Received
from partc.runtime.virtual.client import Answer
from partc.runtime.virtual.network import Conditions
from partc.runtime.virtual.node import Observer
from partc.runtime.virtual.ring import Ring, unobserved
from tests.runtime.roles import RINGS, null_engine, roles_of

EOS = 3
CALM = Conditions(delay_s=0.001)
_END_S = 60.0
"""After the last thing that goes wrong or is asked for, everything must have ended within this time."""
_HEAL_S = 20.0
_QUIET_S = 10.0

Prompts = tuple[tuple[int, ...], ...]


class Violation(AssertionError):
    """Something that must hold did not."""


@dataclass(frozen=True)
class Ask:
    """A request."""

    at_ms: int
    prompts: Prompts
    tokens: int
    temperature: float = 0.0
    cancel_ms: int | None = None
    """The client cancels it so much later."""
    alone: bool = False
    """It shares no step, whatever the ring does."""


@dataclass(frozen=True)
class Cut:
    """A connection breaks, or both between two participants."""

    at_ms: int
    opener: int
    """Index of a participant; the client is the last one."""
    listener: int
    both: bool = False


@dataclass(frozen=True)
class Restart:
    """A device ends without a word, and comes back."""

    at_ms: int
    device: int
    pause_ms: int


@dataclass(frozen=True)
class Scenario:
    """All that chance decides."""

    ring: str
    asks: tuple[Ask, ...]
    faults: tuple[Cut | Restart, ...] = ()
    delay_ms: int = 1
    jitter_ms: int = 0
    disorder: float = 0.0
    repetition: float = 0.0
    notice_ms: int = 0
    compute_ms: int = 5
    rejoin_s: float = 0.0
    load_ms: int = 0
    seed: int = 0
    shared: bool = False
    """Whether requests of one sequence share steps."""

    @property
    def conditions(self) -> Conditions:
        """How the network behaves."""
        return Conditions(
            self.delay_ms / 1000, self.jitter_ms / 1000, self.disorder, self.repetition, self.notice_ms / 1000
        )

    @property
    def last_s(self) -> float:
        """When the last thing is asked for or goes wrong."""
        asked = [ask.at_ms + (ask.cancel_ms or 0) for ask in self.asks]
        broken = [fault.at_ms + getattr(fault, "pause_ms", 0) + self.notice_ms for fault in self.faults]
        return max([*asked, *broken]) / 1000


@dataclass(frozen=True)
class Outcome:
    """How a scenario went."""

    results: int
    causes: tuple[str, ...]
    """Of the requests that failed."""
    events: int
    virtual_s: float


@cache
def _roles(ring: str, shared: bool) -> Mapping[str, Role]:
    slots, together = (8, 4) if shared else (2, 1)
    programs = RINGS[ring]
    return roles_of(
        programs, max_batch=2, max_requests=slots, step_requests=together, prompt_chunk=3, eos=(EOS,)
    )


def _sampling(ask: Ask) -> Sampling:
    return Sampling(temperature=ask.temperature, seed=7)


def _new_ring(name: str, *, shared: bool = False, **options: object) -> Ring:
    roles = _roles(name, shared)
    return Ring(roles, lambda device: null_engine(roles[device]), **options)  # type: ignore[arg-type]


@cache
def expected(ring: str, prompts: Prompts, tokens: int, temperature: float) -> tuple[tuple[int, ...], ...]:
    """The tokens of a request that is alone in an undisturbed ring."""
    alone = _new_ring(ring)
    sampling = Sampling(temperature=temperature, seed=7)
    answer = alone.client.submit(prompts, tokens, sampling=sampling)
    alone.run(_END_S, until=lambda: answer.done)
    assert answer.result is not None, answer.problem
    return answer.result.tokens


def play(scenario: Scenario, observe: Observer = unobserved) -> Outcome:
    """Run a scenario.

    Raises:
        Violation: something that must hold did not.
    """
    ring = _new_ring(
        scenario.ring,
        shared=scenario.shared,
        conditions=scenario.conditions,
        seconds=partial(_seconds, scenario.compute_ms / 1000),
        rejoin_s=scenario.rejoin_s,
        load_s=scenario.load_ms / 1000,
        seed=scenario.seed,
        observe=observe,
    )
    asked: dict[Ask, Answer] = {}
    for ask in scenario.asks:
        ring.clock.at(ask.at_ms / 1000, partial(_ask, ring, ask, asked))
    for fault in scenario.faults:
        ring.clock.at(fault.at_ms / 1000, partial(_break, ring, fault))
    ring.run(scenario.last_s)
    ring.run(
        scenario.last_s + _END_S, until=lambda: all(ask in asked and asked[ask].done for ask in scenario.asks)
    )
    for ask, answer in asked.items():
        _check_answer(scenario, ask, answer)
    _check_healed(scenario, ring)
    _check_quiet(ring)
    problems = [answer.problem for answer in asked.values() if answer.problem is not None]
    causes = tuple(sorted(problem.cause for problem in problems))
    return Outcome(len(asked) - len(causes), causes, ring.clock.turns, ring.clock.now)


def _seconds(compute_s: float, device: str, work: Compute | Draw) -> float:
    return compute_s if isinstance(work, Compute) else compute_s / 10


def _ask(ring: Ring, ask: Ask, asked: dict[Ask, Answer]) -> None:
    answer = asked[ask] = ring.client.submit(
        ask.prompts, ask.tokens, sampling=_sampling(ask), reuse=not ask.alone
    )
    if ask.cancel_ms is not None:
        ring.clock.after(ask.cancel_ms / 1000, lambda: ring.client.cancel(answer))


def _break(ring: Ring, fault: Cut | Restart) -> None:
    names = list(ring.nodes)
    if isinstance(fault, Restart):
        name = names[fault.device % len(names)]
        if ring.nodes[name].alive:
            ring.restart(name, fault.pause_ms / 1000)
        return
    everybody = [*names, ring.client.name]
    opener, listener = (everybody[index % len(everybody)] for index in (fault.opener, fault.listener))
    ring.network.cut(opener, listener)
    if fault.both:
        ring.network.cut(listener, opener)


# -- what must hold


def _check_answer(scenario: Scenario, ask: Ask, answer: Answer) -> None:
    """Tokens as alone in an undisturbed ring, or an error for which there is a reason; never both."""
    if not answer.done:
        raise Violation(f"{ask} hangs")
    if answer.late or (answer.result is not None and answer.problem is not None):
        raise Violation(f"{ask} ends, and {answer.late} comes later")
    right = expected(scenario.ring, ask.prompts, ask.tokens, ask.temperature)
    told = tuple(
        tuple(token for token in row if token is not None)
        for row in (zip(*answer.tokens, strict=True) if answer.tokens else [() for _ in right])
    )
    if any(row != good[: len(row)] for row, good in zip(told, right, strict=True)):
        raise Violation(f"{ask} is told {told}, not {right}")
    if answer.result is not None and not (answer.result.tokens == told == right):
        raise Violation(f"{ask} is told {told}, and then {answer.result.tokens}, not {right}")
    if answer.problem is not None:
        _check_problem(scenario, ask, answer.problem.cause, answer.problem.message)


def _check_problem(scenario: Scenario, ask: Ask, cause: str, message: str) -> None:
    cancelled = ask.cancel_ms is not None and message == "the request was cancelled"
    disturbed = scenario.faults and cause in ("lost-peer", "stalled")
    if not cancelled and not disturbed:
        raise Violation(f"{ask} fails without a reason: {cause}: {message}")


def _check_healed(scenario: Scenario, ring: Ring) -> None:
    """What went wrong is over: the ring serves the next request."""
    ring.network.conditions = CALM
    ring.run(ring.clock.now + _HEAL_S)
    gone = {name: node.error for name, node in ring.nodes.items() if not node.alive}
    if gone:
        raise Violation(f"devices left: {gone}")
    prompts: Prompts = ((1, 2, 3, 4, 5),)
    # A device whose connection broke, or carried nothing one way for a while, may have a request that is over, until
    # its slot is taken again: that a request is over is said once.
    fills = scenario.shared or any(isinstance(fault, Cut) for fault in scenario.faults)
    count = _roles(scenario.ring, scenario.shared)[ring.source].model.max_requests if fills else 1
    answers = [ring.client.submit(prompts, 4, reuse=scenario.shared) for _ in range(count)]
    ring.run(ring.clock.now + _HEAL_S, until=lambda: all(answer.done for answer in answers))
    for answer in answers:
        if answer.result is None:
            raise Violation(f"the ring does not heal: {answer.problem}")
        if answer.result.tokens != expected(scenario.ring, prompts, 4, 0.0):
            raise Violation(f"the next request gets {answer.result.tokens}")


def _check_quiet(ring: Ring) -> None:
    """Nothing is left: no request, no frame without an acknowledgement, no alarm."""
    ring.run(ring.clock.now + _QUIET_S)
    for name, node in ring.nodes.items():
        device = node.device
        kept = device.links.outgoing.unacknowledged
        if device.has_requests or kept or device.deadline is not None:
            doing = device.requests.doing()
            raise Violation(f"{name} is not quiet: {doing}, frames for {kept}, alarm {device.deadline}")
    source = ring.nodes[ring.source].device.source
    assert source is not None
    schedule = source.schedule
    if list(schedule.queue) or schedule.queue.free_slots != schedule.role.model.max_requests:
        raise Violation(f"the source keeps {list(schedule.queue)}, free slots {schedule.queue.free_slots}")


# -- all scenarios

_MS = st.integers(0, 1500)
_PROMPT = st.lists(st.integers(4, 16), min_size=1, max_size=7).map(tuple)
_ASKS = st.builds(
    Ask,
    at_ms=_MS,
    prompts=st.lists(_PROMPT, min_size=1, max_size=2).map(tuple),
    tokens=st.integers(1, 6),
    temperature=st.sampled_from([0.0, 1.0]),
    cancel_ms=st.none() | _MS,
)
_CUTS = st.builds(Cut, at_ms=_MS, opener=st.integers(0, 4), listener=st.integers(0, 4), both=st.booleans())
_RESTARTS = st.builds(Restart, at_ms=_MS, device=st.integers(0, 3), pause_ms=st.sampled_from([0, 100, 2000]))
SCENARIOS = st.builds(
    Scenario,
    ring=st.sampled_from(sorted(RINGS)),
    asks=st.lists(_ASKS, min_size=1, max_size=4, unique=True).map(tuple),
    faults=st.lists(_CUTS | _RESTARTS, max_size=4).map(tuple),
    delay_ms=st.sampled_from([1, 10, 50]),
    jitter_ms=st.sampled_from([0, 10, 100]),
    disorder=st.sampled_from([0.0, 0.3, 1.0]),
    repetition=st.sampled_from([0.0, 0.3, 1.0]),
    notice_ms=st.sampled_from([0, 100, 1000, 7500]),
    compute_ms=st.sampled_from([1, 20, 100]),
    seed=st.integers(0, 2**32 - 1),
)


SHARED = st.builds(
    Scenario,
    ring=st.sampled_from(sorted(RINGS)),
    asks=st.lists(
        st.builds(
            Ask,
            at_ms=st.integers(0, 200),
            prompts=st.tuples(_PROMPT),
            tokens=st.integers(2, 12),
            temperature=st.sampled_from([0.0, 1.0]),
            cancel_ms=st.none() | st.integers(0, 600),
            alone=st.sampled_from([False, False, True]),
        ),
        min_size=3,
        max_size=9,
        unique=True,
    ).map(tuple),
    faults=st.lists(_CUTS | _RESTARTS, max_size=3).map(tuple),
    delay_ms=st.sampled_from([1, 10]),
    jitter_ms=st.sampled_from([0, 10, 100]),
    disorder=st.sampled_from([0.0, 0.3]),
    repetition=st.sampled_from([0.0, 0.3]),
    notice_ms=st.sampled_from([0, 100, 1000]),
    compute_ms=st.sampled_from([1, 20]),
    seed=st.integers(0, 2**32 - 1),
    shared=st.just(True),
    rejoin_s=st.sampled_from([0.0, 10.0]),
)
"""Requests of one sequence that overlap, in rings in which they share steps."""


def calm(scenario: Scenario) -> Scenario:
    """The same scenario, in which nothing breaks and nobody cancels."""
    asks = tuple(dict.fromkeys(replace(ask, cancel_ms=None) for ask in scenario.asks))
    return replace(scenario, faults=(), asks=asks)


def described(now: float, device: str, event: Event, commands: Sequence[Command]) -> Iterator[str]:
    """What happened to a device, as lines."""
    yield f"{now:9.4f} {device}: {_described(event)}"
    for command in commands:
        yield f"{'':12}-> {_described(command)}"


def _described(thing: Event | Command) -> str:
    match thing:
        case Received(origin, _, message, frames) | Send(origin, message, frames):
            return f"{type(thing).__name__} {origin!r} {message} {_digest(map(bytes, frames))}"
        case Computed(values):
            return f"Computed {_digest(array.tobytes() for array in values)}"
        case Compute(submodule=name, slot=slot, inputs=inputs):
            return f"Compute {name} slot {slot} {_digest(array.tobytes() for array in inputs)}"
        case Draw(logits=logits):
            return f"Draw {_digest([logits.tobytes()])}"
        case _:
            return str(thing)


def _digest(parts: Iterable[bytes]) -> str:
    return f"{zlib.crc32(b''.join(parts)):08x}"


if __name__ == "__main__":
    print(play(eval(sys.argv[1]), lambda *happened: print(*described(*happened), sep="\n")))
