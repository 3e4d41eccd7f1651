"""Requests at the source: taken from clients, queued, opened in a free slot, stepped, watched, answered.

The states of a request are those of `job.py`. While the schedule is held (`hold`), none begins a step: each stands at
its step boundary once those that are under way are over, or void. `rewind` says from where each goes on in another
placement, and `go_on` lets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.message_parts import Problem, Resumption
from partc.format.messages import Cancel, Crossed, Error, Ping, Resume, Submit, Timings
from partc.format.role import Role
from partc.runtime.core.actions import Action, Broadcast, End, Failed, Stalled
from partc.runtime.core.events import Origin
from partc.runtime.core.links.outages import lost_twice
from partc.runtime.core.source.answers import refusal, result_of
from partc.runtime.core.source.clients import Clients
from partc.runtime.core.source.deadlines import Deadlines
from partc.runtime.core.source.guessed_steps import GuessedSteps
from partc.runtime.core.source.job import Job, State
from partc.runtime.core.source.queue import Queue
from partc.runtime.core.source.reading import read_job
from partc.runtime.core.source.sharing import Sharing
from partc.runtime.core.start import Start
from partc.runtime.core.step import Step, apart


@dataclass(slots=True)
class Schedule:
    """All requests of a ring."""

    role: Role
    queue: Queue
    deadlines: Deadlines
    clients: Clients
    absent: Sequence[str] = ()
    """Devices that are not in the ring; nothing is opened while there are any."""
    held: bool = False
    """Whether requests stop at their step boundaries."""
    sharing: Sharing = field(init=False)
    guessed: GuessedSteps = field(init=False)

    def __post_init__(self) -> None:
        self.sharing = Sharing(self.role)
        self.guessed = GuessedSteps(self.queue, self.sharing)

    @classmethod
    def of(cls, role: Role, start: Start, now: float) -> Schedule:
        """The schedule of a source that starts `now`."""
        return cls(
            role,
            Queue(role.model.max_requests, start.first_request),
            Deadlines(role, start.patience_s, start.rejoin_s, incomplete_since=now),
            Clients(start.linger_s, keeps_results=role.model.generates),
        )

    # -- the ring

    def adopt(self, role: Role) -> None:
        """Another placement is in force."""
        self.role = self.sharing.role = role
        self.queue.forget_rows()
        self.deadlines.adopt(role)
        self.guessed.guessing.forget_times(len(role.ring))

    def devices_lost(self, gone: Sequence[str], now: float) -> Iterator[Action]:
        """Devices were lost for which there are no others: requests wait for them."""
        self.deadlines.devices_lost(gone, now)
        if not self.deadlines.rejoin_s:
            for job, error in self.deadlines.lost_for_good(self.queue, now):
                yield from self._fail(job, error, now)

    def outage_over(self, now: float) -> None:
        """Whatever was lost is there again, or is replaced."""
        if self.deadlines.outage_over():
            for job in self.queue.running:
                job.progress.moved(now)

    def count_losses(self, devices: Iterable[str], now: float) -> Iterator[Action]:
        """Devices were lost; a request that this happens to twice with the same one may be the cause, and ends."""
        for device in devices:
            for job in self.queue.running:
                job.losses[device] += 1
                if job.losses[device] > 1:
                    yield from self._fail(job, lost_twice(device), now)

    # -- changes of placement

    @property
    def is_at_rest(self) -> bool:
        """Whether every request stands at a step boundary."""
        return not self.queue.stepping

    @property
    def first_number(self) -> int:
        """Requests below this number are over."""
        running = (job.number for job in self.queue.running)
        return min((*running, *self.sharing.numbers()), default=self.queue.next_number)

    def hold(self, *, at_once: bool) -> None:
        """Requests stop at their step boundaries, or where they are."""
        self.held = True
        self.sharing.hold(at_once=at_once)
        for job in self.queue.running if at_once else ():
            job.stand()

    def rewind(self, watermark: Callable[[int, int], int]) -> tuple[tuple[Resumption, ...], int]:
        """Every running request goes on from the watermark of (number, reached); and how many steps that repeats."""
        self.sharing.hold(at_once=True)
        steps = {job: watermark(job.number, job.reached) for job in self.queue.running}
        repeated = sum(job.reached - step for job, step in steps.items())
        return tuple(job.rewind(step, self.role) for job, step in steps.items()), repeated

    def go_on(self, now: float) -> Iterator[Action]:
        """Requests go on from where they stand."""
        self.held = self.sharing.held = False
        self.outage_over(now)
        yield from self._let_go()
        for job in self.queue.running:
            if job.state is State.STANDING:
                yield from self._begin(job, now)
        yield from self._begin_shared(now)
        yield from self.open_waiting(now)

    def fail(self, failed: Failed, now: float) -> Iterator[Action]:
        """End what a failure concerns; failures of requests that are over are ignored."""
        for job in self.sharing.concerned(failed, self.queue.running):
            yield from self._fail(job, failed.error, now)

    # -- clients

    def submit(
        self, origin: Origin, submit: Submit, frames: Sequence[memoryview], now: float
    ) -> Iterator[Action]:
        """Take a request; whatever is wrong with it is answered at once. One that is known already is resumed."""
        if self.clients.knows(submit.ticket, self.queue):
            heard = max(map(len, submit.known), default=0)
            yield from self.resume(origin, Resume(ticket=submit.ticket, from_step=heard))
            return
        try:
            self.queue.check_room()
            job = read_job(origin, submit, frames, self.role, now)
        except RunError as error:
            yield from refusal(origin, submit, error)
            return
        self.queue.put(job)
        yield from self.open_waiting(now)

    def resume(self, origin: Origin, resume: Resume) -> Iterator[Action]:
        """A client is back: it gets what it missed."""
        return self.clients.resume(origin, resume, self.queue)

    def client_disconnected(self, origin: Origin, now: float) -> Iterator[Action]:
        """A client's connection is broken: its requests wait for it for a while."""
        for job in self.queue:
            if job.origin != origin:
                continue
            if self.clients.waits_for(job, now):
                self.deadlines.look_at(now)
            else:
                yield from self._fail(job, RunError("the request was cancelled"), now)

    def cancel(self, origin: Origin, cancel: Cancel, now: float) -> Iterator[Action]:
        """End a client's request."""
        for job in self.queue:
            if job.origin == origin and cancel.ticket == job.ticket:
                yield from self._fail(job, RunError("the request was cancelled"), now)

    # -- steps

    def open_waiting(self, now: float) -> Iterator[Action]:
        """Open waiting requests while there are slots and a complete ring."""
        while self.queue.has_next and not self.absent and not self.held:
            yield from self._begin(self.queue.open(self.role), now)

    def guess(self, now: float) -> Iterator[Action]:
        """Begin steps with guessed tokens, where there is room; none while requests stop."""
        if self.held:
            self.guessed.due = None
        yield from self.guessed.begin(now)

    def moved(self, number: int, now: float) -> None:
        """A request made progress."""
        alone = self.queue.runs(number)
        for job in self.sharing.of(number) or (() if alone is None else (alone,)):
            job.progress.moved(now)

    def emitted(self, step: Step, values: Mapping[str, Array], now: float) -> Iterator[Action]:
        """A step has brought its values; none do that a wrong guess made void."""
        if not step.others and self._is_void(step):
            return
        self.sharing.over(step.request)
        self.guessed.timed(step)
        for row, own in enumerate(apart(step)):
            given = (
                {name: array[row : row + 1] for name, array in values.items()} if step.rows > 1 else values
            )
            if not self._is_void(own):
                yield from self._emitted(own, given, now)
        yield from self._let_go()
        yield from self._begin_shared(now)
        yield from self.open_waiting(now)

    def reported(self, message: Timings, frames: Sequence[memoryview], now: float) -> Iterator[Action]:
        """A device's timings of a request that has ended."""
        job = self.queue.reports(message.request)
        if job is None:
            return
        yield from self.clients.reported(job, message, frames)
        job.reports.discard(message.device)
        if not job.reports:
            yield from self._answer(job, now)

    def crossed(self, message: Crossed, frames: Sequence[memoryview]) -> Iterator[Action]:
        """Tensors that a device received, for the client; the last ones may come behind the last token."""
        if job := self.queue.runs(message.request) or self.queue.reports(message.request):
            yield from self.clients.crossed(job, message, frames)

    def check_deadlines(self, now: float) -> Iterator[Action]:
        """End what waits for too long."""
        deadlines, queue = self.deadlines, self.queue
        if not deadlines.are_due(now):
            return
        for job, verdict in deadlines.late(queue, self.absent, self.clients.orphans, now):
            match verdict:
                case None:
                    yield from self._answer(job, now)
                case Stalled():
                    yield verdict
                case PartcError():
                    yield from self._fail(job, verdict, now)
        if deadlines.asks(queue.stepping, now):
            yield Broadcast(Ping())
        deadlines.set_due(queue, self.absent, self.clients.orphans.due, now)

    # -- inner workings

    def _is_void(self, step: Step) -> bool:
        """Whether a step of a request took a guess that was wrong, or came behind one."""
        job = self.queue.runs(step.request)
        return job is not None and job.is_void(step)

    def _begin_shared(self, now: float) -> Iterator[Action]:
        """Begin steps of the requests that may share some."""
        return self.sharing.begin(now, self.guessed.begin_alone)

    def _emitted(self, step: Step, values: Mapping[str, Array], now: float) -> Iterator[Action]:
        """The values of a request."""
        job = self.queue.runs(step.request)
        if job is None:
            return
        self.deadlines.took(job, step.phase, now)
        job.progress.moved(now)
        job.stand()
        job.over = step.step + 1
        goes_on = False
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
            goes_on = self.guessed.took(job, step, int(tokens[0]), now)
        if job.finished:
            yield from self._finish(job, now)
        elif goes_on:
            job.become(State.STEPPING)
        elif not self.held:
            yield from self._begin(job, now)

    def _take(self, job: Job, step: Step, tokens: Array) -> Iterator[Action]:
        """New tokens are there."""
        told = job.drew(tokens, step.likely)
        self.clients.drew(job, told)
        if job.finished or told.step == 0 or len(self.role.ring) == 1:
            yield from self.clients.flush_tokens()

    def _begin(self, job: Job, now: float) -> Iterator[Action]:
        """Begin the steps that lead to the next token: one, maybe a shared one, parts of a prompt, or known ones."""
        if self.sharing.serves(job):
            self.sharing.add(job)
            return
        job.step_begins(now)
        for call in job.calls():
            yield self.guessed.begin_alone(job, call, now)

    def _let_go(self) -> Iterator[Action]:
        """Free the slots of requests that have ended while others computed with them."""
        for job in self.sharing.freed():
            self.queue.free(job)
            yield End(job.number, report=False)

    def _finish(self, job: Job, now: float) -> Iterator[Action]:
        """All tokens are out: the slot is free for the next request while the devices report."""
        self.queue.report(job)
        job.progress.moved(now)
        job.reports = set(self.role.ring)
        yield End(job.number, report=True)
        yield from self.open_waiting(now)

    def _answer(self, job: Job, now: float) -> Iterator[Action]:
        self.queue.end(job)
        yield from self.clients.end(job, result_of(job, self.role.types, now), now)

    def _fail(self, job: Job, error: PartcError, now: float) -> Iterator[Action]:
        yield from self.clients.flush_tokens()
        if job.state is State.WAITING:
            self.queue.end(job)
        elif self.sharing.end(job):
            self.queue.end(job, keeps_slot=True)
        else:
            for mate in self.sharing.of(job.number):
                self.sharing.over(mate.number)
            yield from self._let_go()
            self.queue.end(job)
            yield End(job.number, report=False)
        yield from self.clients.end(job, (Error(ticket=job.ticket, problem=Problem.of(error)), ()), now)
        yield from self._begin_shared(now)
        yield from self.open_waiting(now)
