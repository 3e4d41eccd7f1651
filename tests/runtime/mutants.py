"""Mutants: the core with one of its precautions left out. Each must break something, else the precaution is useless.

`python -m tests.runtime.mutants [NAME …]` tells how many seeds of `tests.runtime.living` it took for each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from partc.format.message_parts import Held, Reached
from partc.format.role import Role
from partc.runtime.core.actions import Action
from partc.runtime.core.device.execution import Execution
from partc.runtime.core.device.fetches import Fetches
from partc.runtime.core.device.preparation import Preparation
from partc.runtime.core.device.request import Request
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.device.under_way import UnderWay
from partc.runtime.core.links.link import Receiver
from partc.runtime.core.links.outgoing import Outgoing
from partc.runtime.core.source import job, source
from partc.runtime.core.source.changes import Changes
from partc.runtime.core.source.job import Job
from partc.runtime.core.source.members import Member, Members
from partc.runtime.core.source.schedule import Schedule
from partc.runtime.core.step import Step
from tests.runtime.living import Life, guessing_life, hybrid_life, life, play

Patch = AbstractContextManager[Any]

CATCHES: Mapping[str, int] = {
    "no incarnation": 142,
    "no epoch check": 42,
    "highest row": 1293,
    "COMMIT not repeated": 35,
    "epoch reset at the source": 35,
    "watermark in rows": 1574,
    "forced steps without a bound": 2889,
    "steps that are not over": 139,
    "steps behind the one that was told": 898,
    "guesses are settled": 428,
}
"""Mutant → the seed that has told it from the core: those that are told late, of the core as it was then."""


@dataclass(frozen=True)
class Mutant:
    """One precaution less."""

    name: str
    patches: Sequence[Patch]
    seeds: int
    """Within so many it is caught."""
    kind: Callable[[int], Life] = life
    """The lives of which one catches it."""


def caught_at(mutant: Mutant, *hints: int) -> tuple[int, str] | None:
    """The first seed that tells a mutant from the core, and how; None: none does. Some seeds may be tried first."""
    with ExitStack() as stack:
        for each in mutant.patches:
            stack.enter_context(each)
        for seed in (*hints, *range(mutant.seeds)):
            try:
                play(mutant.kind(seed))
            except Exception as error:
                return seed, f"{type(error).__name__}: {error}"
    return None


def mutants() -> list[Mutant]:
    """All of them, freshly made: a patch is used once."""
    common = [Mutant(name, patches, seeds) for name, (patches, seeds) in _all().items()]
    return [
        *common,
        *(Mutant(name, [each], 3000, hybrid_life) for name, each in _of_hybrids().items()),
        *(Mutant(name, [each], 3000, guessing_life) for name, each in _of_guesses().items()),
    ]


def _all() -> Mapping[str, tuple[list[Patch], int]]:
    return {
        "no incarnation": (
            [
                patch.object(Outgoing, "_hello", _nameless_hello),
                patch.object(Changes, "greeted", _nameless_greeting),
                patch.object(Changes, "prepared", _nameless_prepared),
                patch.object(Preparation, "commit", _for_anybody),
            ],
            3000,
        ),
        "no epoch check": ([patch.object(Receiver, "accept", _of_any_epoch)], 3000),
        "highest row": ([patch.object(Requests, "held", _highest)], 3000),
        "replayed tokens emitted": ([patch.object(Schedule, "emitted", _always_new)], 3000),
        "no watermark": ([patch.object(source, "_watermark", _no_watermark)], 3000),
        "amnesia that lies": ([patch.object(Preparation, "_have", _lies)], 3000),
        "rows without their request": (
            [
                patch.object(Fetches, "_fetch", _of_the_slot),
                patch.object(Fetches, "forget", _nothing),
                patch.object(Fetches, "reset", _nothing),
            ],
            3000,
        ),
        "COMMIT not repeated": (
            [
                patch.object(Members, "has_forgotten", _by_life_alone),
                patch.object(Changes, "begin_anew", _no_actions),
            ],
            3000,
        ),
        "epoch reset at the source": ([patch.object(Changes, "greeted", _own_epoch_alone)], 3000),
        "watermark in rows": ([patch.object(Requests, "held", _in_rows)], 3000),
        "forced steps without a bound": ([patch.object(job, "MOST_FORCED", 10**6)], 3000),
    }


def _of_hybrids() -> Mapping[str, Patch]:
    return {
        "steps that are not over": patch.object(Requests, "steps_in", _over),
        "steps behind the one that was told": patch.object(source, "_watermark", _of_all),
    }


def _of_guesses() -> Mapping[str, Patch]:
    return {
        "a wrong guess is not taken back": patch.object(Job, "compare", _always_right),
        "tokens of an old branch are told": patch.object(Job, "is_void", _never),
        "rows of an old branch are computed": patch.object(Request, "is_void", _never),
        "guesses are settled": patch.object(Request, "settled", property(lambda self: self.steps)),
        "the last step goes on first": patch.object(UnderWay, "able", _last_able),
    }


_hello, _greeted, _prepared = Outgoing._hello, Changes.greeted, Changes.prepared
_commit, _accept, _emitted = Preparation.commit, Receiver.accept, Schedule.emitted
_fetch, _watermark, _compare = Fetches._fetch, source._watermark, Job.compare


def _nothing(self: object, *_: object) -> None:
    """Nothing is done."""


def _no_actions(self: object, *_: object) -> Iterator[Action]:
    return iter(())


def _last_able(self: UnderWay) -> Execution | None:
    """Of the steps that can go on the last does."""
    return next((each for each in reversed([*self]) if each.can_go_on), None)


def _never(self: object, step: Step) -> bool:
    return False


def _always_right(self: Job, token: int) -> bool:
    """A guess counts as right, and its step goes on."""
    window = self.window
    return _compare(self, window.guesses[0].token if window is not None and window.guesses else token)


def _nameless_hello(self: Outgoing, out: Any) -> Any:
    return replace(_hello(self, out), incarnation=0)


def _nameless_greeting(self: Changes, device: str, member: Member) -> None:
    _greeted(self, device, Member(0, member.epoch, member.placement))


def _nameless_prepared(self: Changes, device: str, message: Any, *rest: Any) -> Any:
    return _prepared(self, device, replace(message, incarnation=0), *rest)


def _for_anybody(self: Preparation, commit: Any) -> Any:
    return _commit(self, replace(commit, incarnation=self.incarnation))


def _of_any_epoch(self: Receiver[Any], epoch: int, session: int, seq: int, frame: Any) -> Any:
    return _accept(self, self.epoch, session, seq, frame)


def _highest(self: Requests, submodules: Sequence[str]) -> Iterator[Held]:
    """Rows of later steps count, though those of earlier ones are missing."""
    for number, request in self._open.items():
        steps = request.steps + 2
        if steps:
            yield from (Held(number, name, steps) for name in submodules)


def _in_rows(self: Requests, submodules: Sequence[str]) -> Iterator[Held]:
    """Rows count instead of steps."""
    for number, request in self._open.items():
        if request.steps:
            rows = max(request.position(request.steps))
            yield from (Held(number, name, rows) for name in submodules)


def _always_new(self: Schedule, step: Any, values: Any, now: float) -> Any:
    """Whatever is drawn is told."""
    found = self.queue.runs(step.request)
    if found is None or step.step >= found.reached:
        return _emitted(self, step, values, now)
    known = found.drawn
    found.drawn = known[: max(0, step.step + 1 - len(found.prompt))]
    return _emitted(self, step, values, now)


def _no_watermark(adopt: Any, request: int, reached: int) -> int:
    return reached


def _over(self: Requests, number: int, submodule: str) -> int:
    """Steps that are over count, though a later one has begun."""
    return self._open[number].steps


def _of_all(adopt: Any, request: int, reached: int) -> int:
    """What everybody has is gone on from, though its last token is lost."""
    return min(reached, _watermark(adopt, request, 10**6))


def _lies(self: Preparation, role: Role) -> tuple[Held, ...]:
    """The device says that it has what is asked for."""
    assert self._message is not None
    return tuple(
        Held(each.request, name, each.step) for each in self._message.requests for name in role.running
    )


def _of_the_slot(self: Fetches, reached: Reached, submodule: str, message: Any, now: float) -> Any:
    """Rows that another request left in the slot count."""
    for (_, name), fetch in list(self._fetches.items()):
        if name == submodule and fetch.reached.slot == reached.slot and fetch.have:
            made = list(_fetch(self, reached, submodule, message, now))
            self._fetches[reached.request, submodule].have = min(fetch.have, reached.step)
            return made
    return _fetch(self, reached, submodule, message, now)


def _by_life_alone(self: Members, device: str) -> bool:
    life = self.life(device)
    return life != self._lives.get(device, life)


def _own_epoch_alone(self: Changes, device: str, member: Member) -> None:
    highest = self.highest
    _greeted(self, device, member)
    self.highest = highest


if __name__ == "__main__":
    for mutant in mutants():
        if not sys.argv[1:] or mutant.name in sys.argv[1:]:
            print(mutant.name, caught_at(mutant), sep=": ", flush=True)
