"""Steps that requests share at the source: the tokens of several requests are computed in one step.

A request whose next step makes a token is due. As many steps of due requests are under way as the ring has stages, so
that every device has work; what becomes due meanwhile goes with the next step that begins: first come, first served.
Prompts have steps of their own beside these, part by part. A shared step is one of its first request for devices; a
request that ends while others compute its row keeps its slot until the step is over, since the row is written there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from partc.format.role import Role
from partc.runtime.core.actions import Begin, Failed
from partc.runtime.core.source.job import Call, Job
from partc.runtime.core.step import together

BeginAlone = Callable[[Job, Call, float], Begin]
"""(request, its step, now) → the begin of a step that no other request shares."""


def begin_of(calls: Sequence[Call]) -> Begin:
    """The begin of one step of all these, which have one token each."""
    if len(calls) == 1:
        return Begin(*calls[0])
    inputs = {name: np.concatenate([given[name] for _, given in calls]) for name in calls[0][1]}
    return Begin(together([step for step, _ in calls]), inputs)


@dataclass(slots=True)
class Sharing:
    """The requests that may share steps."""

    role: Role
    held: bool = False
    """Whether no step begins."""
    _takers: set[str] = field(default_factory=set)
    """Devices whose runners take shared steps."""
    _due: deque[Job] = field(default_factory=deque)
    """Requests that wait for a step, in the order in which they became due."""
    _flights: dict[int, tuple[Job, ...]] = field(default_factory=dict)
    """First request → all of a step under way, also those that have ended since."""
    _ended: list[Job] = field(default_factory=list)
    """Requests whose clients have been answered while others computed with them."""

    def greeted(self, device: str, takes: bool) -> None:
        """A device tells whether it takes shared steps."""
        if takes:
            self._takers.add(device)
        else:
            self._takers.discard(device)

    def takes(self, device: str) -> bool:
        """Whether a device has told that it takes shared steps."""
        return device in self._takers

    def serves(self, job: Job) -> bool:
        """Whether the next step of a request may be one of several: all devices take such, and the request does."""
        model, ring = self.role.model, self.role.ring
        others = (name for name in ring if name != self.role.device)
        return model.step_requests > 1 and job.shares and job.is_at_token and self._takers.issuperset(others)

    def add(self, job: Job) -> None:
        """A request is due."""
        if job not in self._due:
            self._due.append(job)

    def leave(self, job: Job) -> None:
        """A request is not due any more."""
        if job in self._due:
            self._due.remove(job)

    def begin(self, now: float, alone: BeginAlone) -> Iterator[Begin]:
        """Begin steps of the requests that are due, as many as the ring has stages."""
        while not self.held and (jobs := self._take()):
            for job in jobs:
                job.step_begins(now)
            calls = [next(job.calls()) for job in jobs]
            yield begin_of(calls) if len(jobs) > 1 else alone(jobs[0], calls[0], now)

    def _take(self) -> list[Job]:
        """The requests of the next step, which is under way from now on; none: enough are."""
        stages = len(self.role.ring)
        if not self._due or len(self._flights) >= stages:
            return []
        many = len(self._due) + sum(map(len, self._flights.values()))
        most = min(self.role.model.step_requests, math.ceil(many / stages))
        jobs = [self._due.popleft() for _ in range(min(most, len(self._due)))]
        self._flights[jobs[0].number] = tuple(jobs)
        return jobs

    def of(self, number: int) -> tuple[Job, ...]:
        """The requests of the step under way that a request is in; none: it is in no such step."""
        found = self._flights.get(number, ())
        if found:
            return found
        return next(
            (jobs for jobs in self._flights.values() if any(job.number == number for job in jobs)), ()
        )

    def over(self, number: int) -> None:
        """The step of this first request is over, or will never be."""
        self._flights.pop(number, None)

    def hold(self, *, at_once: bool) -> None:
        """No step begins any more; `at_once`: those under way are lost."""
        self.held = True
        self._due.clear()
        if at_once:
            self._flights.clear()

    def concerned(self, failed: Failed, running: Iterable[Job]) -> list[Job]:
        """The running requests that a failure ends: whoever shares a step with one ends with it."""
        found: dict[int, Job] = {}
        for job in (*running, *self._ended):
            if failed.concerns(job.number):
                found |= {mate.number: mate for mate in (*self.of(job.number), job)}
        return [job for job in found.values() if job not in self._ended]

    def end(self, job: Job) -> bool:
        """A request ends; whether others go on with it in a step, so that its slot must wait for that."""
        self.leave(job)
        mates = [mate for mate in self.of(job.number) if mate is not job and mate not in self._ended]
        if mates:
            self._ended.append(job)
        return bool(mates)

    def freed(self) -> list[Job]:
        """The ended requests that no step under way is in, once."""
        under_way = [job for jobs in self._flights.values() for job in jobs]
        freed = [job for job in self._ended if job not in under_way]
        self._ended = [job for job in self._ended if job in under_way]
        return freed

    def numbers(self) -> Iterable[int]:
        """The ended requests that steps under way are in."""
        return (job.number for job in self._ended)
