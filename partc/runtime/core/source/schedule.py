"""Requests at the source: taken from clients, queued, opened in a free slot, stepped, watched, answered.

| state of a job | left by |
| --- | --- |
| waiting for a slot and a complete ring | `pump` → running; patience, `cancel` → over |
| running | the last token → reporting; patience, a failure, `cancel` → over |
| reporting (its slot is free again) | the last device's timings, or 1 s → over |
| over, but its client may not know | `linger_s` → forgotten |

A running request stands at a step boundary from time to time. While the schedule is held (`hold`), none goes beyond its
boundary; `rewind` says from where each goes on in another placement, and `go_on` lets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Problem, Reached, Resumption
from partc.format.messages import Cancel, Crossed, Error, Ping, Resume, Submit, Timings
from partc.format.role import Role
from partc.runtime.core.actions import Action, Begin, Broadcast, End, Failed, Stalled
from partc.runtime.core.commands import Send
from partc.runtime.core.events import Origin
from partc.runtime.core.links.outages import Cut, Rejoin, lost_twice, not_joined
from partc.runtime.core.source.answers import ended, refusal, result_of, stats_of, trace_of
from partc.runtime.core.source.job import Job, read_job
from partc.runtime.core.source.orphans import Ending, Orphans, missed, unknown
from partc.runtime.core.source.patience import Patience
from partc.runtime.core.source.sharing import Sharing
from partc.runtime.core.source.slots import Slots
from partc.runtime.core.step import Step, apart

_MOST_QUEUED = 1024
_REPORT_S = 1.0
_LATE = 0.05
"""Faults may be noticed late by this fraction of the shortest patience."""


@dataclass(slots=True)
class Schedule:
    """All requests of a ring."""

    role: Role
    floor_s: float
    """The shortest patience with a silent ring, seconds."""
    rejoin_s: float
    """The time that requests wait for a lost device, seconds; 0: a loss that cannot be made good ends them at once."""
    linger_s: float
    """The time that a request waits for its client to come back, seconds."""
    next_number: int
    """Number of the next request. Devices ignore messages of an earlier request of a slot, so numbers grow over
    restarts of the source as well: its clock gives the first one, and `ready` messages raise it."""
    incomplete_since: float
    absent: Sequence[str] = ()
    """Devices that are not in the ring; nothing is opened while there are any."""
    held: bool = False
    """Whether requests stop at their step boundaries."""
    _waiting: deque[Job] = field(default_factory=deque)
    _running: dict[int, Job] = field(default_factory=dict)
    _reporting: dict[int, Job] = field(default_factory=dict)
    _orphans: Orphans = field(init=False)
    _rejoin: Rejoin = field(init=False)
    _cut: Cut = field(init=False)
    _untold: list[Send] = field(default_factory=list)
    """Tokens that clients are to be told of."""
    _slots: Slots = field(init=False)
    sharing: Sharing = field(init=False)
    patience: Patience = field(init=False)
    _asked_at: float = 0.0
    _look_again: float | None = 0.0

    def __post_init__(self) -> None:
        self._slots, self.sharing = Slots(self.role.model.max_requests), Sharing(self.role)
        self._orphans, self._rejoin = Orphans(self.linger_s), Rejoin(self.rejoin_s)
        self._cut = Cut(max(self.floor_s, self.rejoin_s))
        self.adopt(self.role)

    # -- the ring

    def seen(self, next_request: int) -> None:
        """A device knows requests of numbers below `next_request`."""
        self.next_number = max(self.next_number, next_request)

    def adopt(self, role: Role) -> None:
        """Another placement is in force."""
        self.role = self.sharing.role = role
        self._slots.forget()
        self.patience = Patience(role, self.floor_s)

    def forget_rows(self) -> None:
        """A device lost its rows: no prefix can be reused."""
        self._slots.forget()

    def lost(self, gone: Sequence[str], now: float) -> Iterator[Action]:
        """Devices were lost for which there are no others: requests wait for them."""
        self._rejoin.begin(tuple(gone), now)
        self._look_again = now
        if not self.rejoin_s:
            yield from self._give_up(now)

    def cut(self, links: Sequence[tuple[str, str]], now: float) -> None:
        """The links that are down between devices that are both there."""
        self._look_again = now if self._cut.found(links, now) else self._look_again

    def whole(self, now: float) -> None:
        """Whatever was lost is there again, or is replaced."""
        if self._rejoin.since is not None:
            self._rejoin.since = None
            for job in self._running.values():
                job.progress.moved(now)

    def count_losses(self, devices: Iterable[str], now: float) -> Iterator[Action]:
        """Devices were lost; a request that this happens to twice with the same one may be the cause, and ends."""
        for device in devices:
            for job in list(self._running.values()):
                job.losses[device] += 1
                if job.losses[device] > 1:
                    yield from self._fail(job, lost_twice(device), now)

    # -- changes of placement

    @property
    def is_at_rest(self) -> bool:
        """Whether every request stands at a step boundary."""
        return not any(job.in_flight for job in self._running.values())

    @property
    def first_number(self) -> int:
        """Requests below this number are over."""
        return min((*self._running, *self.sharing.numbers()), default=self.next_number)

    def hold(self, *, at_once: bool) -> None:
        """Requests stop at their step boundaries, or where they are."""
        self.held = True
        self.sharing.hold(at_once=at_once)
        for job in self._running.values() if at_once else ():
            job.in_flight = False

    def reached(self) -> tuple[Reached, ...]:
        """The steps that the running requests have reached."""
        return tuple(Reached(job.number, job.slot, job.reached) for job in self._running.values())

    def rewind(self, watermark: Callable[[int, int], int]) -> tuple[tuple[Resumption, ...], int]:
        """Every running request goes on from the watermark of (number, reached); and how many steps that repeats."""
        self.sharing.hold(at_once=True)
        steps = {job: watermark(job.number, job.reached) for job in self._running.values()}
        repeated = sum(job.reached - step for job, step in steps.items())
        return tuple(job.rewind(step, self.role) for job, step in steps.items()), repeated

    def go_on(self, now: float) -> Iterator[Action]:
        """Requests go on from where they stand."""
        self.held = self.sharing.held = False
        self.whole(now)
        yield from self._let_go()
        for job in self._running.values():
            if not job.in_flight:
                yield from self._begin(job, now)
        yield from self.sharing.begin(now)
        yield from self.pump(now)

    def fail(self, failed: Failed, now: float) -> Iterator[Action]:
        """End what a failure concerns; failures of requests that are over are ignored."""
        for job in self.sharing.concerned(failed, self._running.values()):
            yield from self._fail(job, failed.error, now)

    # -- clients

    def submit(
        self, origin: Origin, submit: Submit, frames: Sequence[memoryview], now: float
    ) -> Iterator[Action]:
        """Take a request; whatever is wrong with it is answered at once. One that is known already is resumed."""
        if self._orphans.find(submit.ticket, self.jobs()) is not None:
            heard = max(map(len, submit.known), default=0)
            yield from self.resume(origin, Resume(ticket=submit.ticket, from_step=heard))
            return
        try:
            self._check_room()
            job = read_job(origin, submit, frames, self.role, now)
        except RunError as error:
            yield from refusal(origin, submit, error)
            return
        self._waiting.append(job)
        yield from self.pump(now)

    def resume(self, origin: Origin, resume: Resume) -> Iterator[Action]:
        """A client is back: it gets what it missed."""
        found = self._orphans.find(resume.ticket, self.jobs())
        if found is None:
            yield Send(origin, unknown(resume.ticket))
            return
        job, ending = found
        yield from self.tell()
        job.origin = origin
        yield from missed(job, ending, origin, resume.from_step)

    def away(self, origin: Origin, now: float) -> Iterator[Action]:
        """A client's connection is broken: its requests wait for it for a while."""
        for job in self.jobs():
            if job.origin != origin:
                continue
            if self.linger_s:
                self._orphans.add(job, now)
                self._look_again = now
            else:
                yield from self._fail(job, RunError("the request was cancelled"), now)

    def cancel(self, origin: Origin, cancel: Cancel, now: float) -> Iterator[Action]:
        """End a client's request."""
        for job in self.jobs():
            if job.origin == origin and cancel.ticket == job.ticket:
                yield from self._fail(job, RunError("the request was cancelled"), now)

    # -- steps

    def pump(self, now: float) -> Iterator[Action]:
        """Open waiting requests while there are slots and a complete ring."""
        while self._waiting and self._slots.any_free and not self.absent and not self.held:
            job = self._waiting.popleft()
            slot, reuse = self._slots.take(job.reusable)
            job.open(self.next_number, slot, self.role, reuse)
            self.next_number += 1
            self._running[job.number] = job
            yield from self._begin(job, now)

    def moved(self, number: int, now: float) -> None:
        """A request made progress."""
        alone = self._running.get(number)
        for job in self.sharing.of(number) or (() if alone is None else (alone,)):
            job.progress.moved(now)

    def emitted(self, step: Step, values: Mapping[str, Array], now: float) -> Iterator[Action]:
        """A step has brought its values."""
        self.sharing.over(step.request)
        for row, own in enumerate(apart(step)):
            given = {name: array[row : row + 1] for name, array in values.items()} if step.others else values
            yield from self._emitted(own, given, now)
        yield from self._let_go()
        yield from self.sharing.begin(now)
        yield from self.pump(now)

    def _emitted(self, step: Step, values: Mapping[str, Array], now: float) -> Iterator[Action]:
        """The values of a request."""
        job = self._running.get(step.request)
        if job is None:
            return
        if job.started >= self.incomplete_since:  # else it took as long as a device was lost
            self.patience.took(step.phase, now - job.started)
        job.progress.moved(now)
        job.in_flight, job.over = False, step.step + 1
        if not self.role.model.generates:
            job.outputs = values
            yield from self._finish(job, now)
            return
        tokens = next(iter(values.values())).reshape(-1)
        if step.step < job.reached:
            known = job.drawn[step.step + 1 - len(job.prompt)]
            job.mismatches += int(np.count_nonzero(tokens != known))
        else:
            yield from self._take(job, step, tokens)
        if job.finished:
            yield from self._finish(job, now)
        elif not self.held:
            yield from self._begin(job, now)

    def _take(self, job: Job, step: Step, tokens: Array) -> Iterator[Action]:
        """New tokens are there."""
        told = job.drew(tokens, step.likely)
        if job.origin is not None:
            self._untold.append(Send(job.origin, told))
        if job.finished or told.step == 0 or len(self.role.ring) == 1:
            yield from self.tell()

    def tell(self) -> Iterator[Action]:
        """Tell clients of new tokens.

        A ring waits for its source from token to token, so there is time for it only when the next step is on its way
        to the other devices; but the first token is waited for, and a source without other devices never waits.
        """
        untold, self._untold = self._untold, []
        yield from untold

    def reported(self, message: Timings, frames: Sequence[memoryview], now: float) -> Iterator[Action]:
        """A device's timings of a request that has ended."""
        job = self._reporting.get(message.request)
        if job is None:
            return
        if job.origin is not None:
            yield Send(job.origin, stats_of(job, message), frames)
        job.reports.discard(message.device)
        if not job.reports:
            yield from self._answer(job, now)

    def crossed(self, message: Crossed, frames: Sequence[memoryview]) -> Iterator[Action]:
        """Tensors that a device received, for the client; the last ones may come behind the last token."""
        job = self._running.get(message.request) or self._reporting.get(message.request)
        if job is not None and job.origin is not None and job.is_news(message):
            yield Send(job.origin, trace_of(job, message), frames)

    # -- liveness

    @property
    def due(self) -> float | None:
        """When `look` must be called."""
        return self._look_again

    def looks(self, now: float) -> bool:
        """Whether `look` looks at anything."""
        return self._look_again is None or now >= self._look_again

    def look(self, now: float) -> Iterator[Action]:
        """End what waits for too long."""
        if not self.looks(now):
            return
        for job in [job for job in self._reporting.values() if now >= job.progress.expires(_REPORT_S)]:
            yield from self._answer(job, now)
        yield from self._look_at_running(now)
        for job in self._orphans.expired(now):
            yield from self._fail(job, self._orphans.error(), now)
        for job in [job for job in self._waiting if self.absent and now >= self._most_awaited(job)]:
            yield from self._fail(job, not_joined(self.absent), now)
        yield from self._ask(now)
        # Steps move deadlines all the time: looking at them at each would cost more than being a little late.
        soonest = min(self._deadlines(now), default=None)
        self._look_again = None if soonest is None else min(max(soonest, now), now + self.floor_s * _LATE)

    # -- inner workings

    def _look_at_running(self, now: float) -> Iterator[Action]:
        if self._rejoin.since is not None:
            if self._rejoin.is_over(now):
                yield from self._give_up(now)
            return
        for job in list(self._running.values()) if self._cut.is_over(now) else ():
            yield from self._fail(job, self._cut.error(), now)
        for job in list(self._running.values()):
            patience = self.patience.of(job, len(self._running), now)
            if not job.in_flight or now < job.progress.expires(patience):
                continue
            error, silent = self.patience.stalled(job, patience, now), self.patience.silent(job, now)
            if self.rejoin_s and now < job.stands_since(job.progress.since) + self.rejoin_s:
                job.progress.moved(now)
                yield Stalled(silent, error)
            else:
                yield from self._fail(job, error, now)

    def _give_up(self, now: float) -> Iterator[Action]:
        """Nobody came back in time."""
        error, self._rejoin.since = self._rejoin.error(), None
        for job in [*self._running.values(), *self._reporting.values()]:
            yield from self._fail(job, error, now)

    def jobs(self) -> list[Job]:
        """All requests that wait, run, or are reported on."""
        return [*self._waiting, *self._running.values(), *self._reporting.values()]

    def _check_room(self) -> None:
        if len(self._waiting) >= _MOST_QUEUED:
            message = f"{_MOST_QUEUED} requests are waiting already"
            raise RunError(message, hint="send it again later", cause="refused")

    def _begin(self, job: Job, now: float) -> Iterator[Action]:
        """Begin the steps that lead to the next token: one, maybe a shared one, parts of a prompt, or known ones."""
        if self.sharing.serves(job):
            self.sharing.add(job)
            return
        job.started = now
        job.progress.moved(now)
        for step, inputs in job.calls():
            yield Begin(step, inputs)

    def _let_go(self) -> Iterator[Action]:
        """Free the slots of requests that have ended while others computed with them."""
        for job in self.sharing.freed():
            self._slots.give(job.slot, job.number, ())
            yield End(job.number, report=False)

    def _finish(self, job: Job, now: float) -> Iterator[Action]:
        """All tokens are out: the slot is free for the next request while the devices report."""
        self._release(job)
        job.progress.moved(now)
        job.reports = set(self.role.ring)
        self._reporting[job.number] = job
        yield End(job.number, report=True)
        yield from self.pump(now)

    def _release(self, job: Job) -> None:
        if self._running.pop(job.number, None) is not None:
            self._slots.give(job.slot, job.number, job.kept)

    def _answer(self, job: Job, now: float) -> Iterator[Action]:
        self._reporting.pop(job.number, None)
        yield from self._end(job, result_of(job, self.role.types, now), now)

    def _end(self, job: Job, ending: Ending, now: float) -> Iterator[Action]:
        """Tell the client, and keep it in case the client is away; outputs may be too large for that."""
        yield ended(job, ending[0], now)
        if job.origin is not None:
            yield Send(job.origin, *ending)
        if self.linger_s and (job.origin is None or self.role.model.generates):
            self._orphans.ended(job, ending, now)

    def _fail(self, job: Job, error: PartcError, now: float) -> Iterator[Action]:
        yield from self.tell()
        if job in self._waiting:
            self._waiting.remove(job)
        elif self.sharing.end(job):
            del self._running[job.number]
        else:
            for mate in self.sharing.of(job.number):
                self.sharing.over(mate.number)
            yield from self._let_go()
            self._release(job)
            self._reporting.pop(job.number, None)
            yield End(job.number, report=False)
        yield from self._end(job, (Error(ticket=job.ticket, problem=Problem.of(error)), ()), now)
        yield from self.sharing.begin(now)
        yield from self.pump(now)

    def _most_awaited(self, job: Job) -> float:
        """When a request has waited long enough for a complete ring."""
        return max(job.submitted, self.incomplete_since) + max(self.floor_s, self.rejoin_s)

    @property
    def _stepping(self) -> list[Job]:
        """The requests that have a step under way."""
        return [job for job in self._running.values() if job.in_flight]

    def _ask(self, now: float) -> Iterator[Action]:
        """Ask the devices for a sign of life when requests have stood still for a while."""
        # Sums as in `_deadlines`: a difference may round otherwise, and then the due time would never pass.
        still = any(now >= job.progress.expires(self.floor_s / 4) for job in self._stepping)
        if still and now >= self._asked_at + self.floor_s / 4:
            self._asked_at = now
            yield Broadcast(Ping())

    def _deadlines(self, now: float) -> Iterator[float]:
        is_whole = self._rejoin.since is None
        ends = (self._rejoin.ends, self._orphans.due, self._cut.ends if self._running and is_whole else None)
        yield from (due for due in ends if due is not None)
        for job in self._stepping if is_whole else ():
            yield job.progress.expires(self.patience.of(job, len(self._running), now))
            yield max(job.progress.since, self._asked_at) + self.floor_s / 4
        yield from (job.progress.expires(_REPORT_S) for job in self._reporting.values())
        if self.absent:
            yield from map(self._most_awaited, self._waiting)
