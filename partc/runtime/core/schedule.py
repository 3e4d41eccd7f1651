"""Requests at the source: taken from clients, queued, opened in a free slot, stepped, watched, answered.

| state of a job | left by |
| --- | --- |
| waiting for a slot and a complete ring | `pump` → running; patience, `cancel` → over |
| running | the last token → reporting; patience, a failure, `cancel` → over |
| reporting (its slot is free again) | the last device's timings, or 1 s → over |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.frames import to_frame
from partc.format.message_parts import Problem
from partc.format.messages import (
    Cancel,
    Crossed,
    Error,
    Ping,
    Pong,
    Result,
    Stats,
    Submit,
    Timings,
    Token,
    Trace,
)
from partc.format.role import Role
from partc.runtime.core.actions import Action, Begin, Broadcast, End, Failed
from partc.runtime.core.commands import Send
from partc.runtime.core.events import Origin
from partc.runtime.core.inputs import GENERATION
from partc.runtime.core.job import Job, read_job
from partc.runtime.core.liveness import patience_s, step_s
from partc.runtime.core.step import Step, announced

_MOST_QUEUED = 1024
_REPORT_S = 1.0
_LATE = 0.05
"""By how much of the shortest patience a fault may be noticed late."""


@dataclass(slots=True)
class Schedule:
    """All requests of a ring."""

    role: Role
    floor_s: float
    """The shortest patience with a silent ring, seconds."""
    next_number: int
    """Number of the next request. Devices ignore messages of an earlier request of a slot, so numbers grow over
    restarts of the source as well: its clock gives the first one, and `ready` messages raise it."""
    incomplete_since: float
    absent: Sequence[str] = ()
    """Devices that are not in the ring; nothing is opened while there are any."""
    _waiting: deque[Job] = field(default_factory=deque)
    _running: dict[int, Job] = field(default_factory=dict)
    _reporting: dict[int, Job] = field(default_factory=dict)
    _untold: list[Send] = field(default_factory=list)
    """Tokens that clients are to be told of."""
    _free: list[int] = field(init=False)
    _others: tuple[str, ...] = field(init=False)
    _slowest: dict[str, float] = field(default_factory=dict)
    """Phase → seconds of its slowest step."""
    _heard: dict[str, tuple[float, Pong]] = field(default_factory=dict)
    """Device → when it last answered a ping, and how."""
    _asked_at: float = 0.0
    _look_again: float | None = 0.0

    def __post_init__(self) -> None:
        self._free = list(range(self.role.model.max_requests))[::-1]
        self._others = tuple(name for name in self.role.ring if name != self.role.device)

    # -- the ring

    def seen(self, next_request: int) -> None:
        """A device knows requests of numbers below `next_request`."""
        self.next_number = max(self.next_number, next_request)

    def lost(self, gone: str, now: float) -> Iterator[Action]:
        """A device is not part of the ring any more: every request that has begun ends."""
        self.incomplete_since = now
        hint = "see what its runner says, start it again, and repeat the request"
        error = RunError(f"{gone} closed its connection", where=gone, hint=hint, cause="lost-peer")
        for job in [*self._running.values(), *self._reporting.values()]:
            yield from self._fail(job, error, now)

    def fail(self, failed: Failed, now: float) -> Iterator[Action]:
        """End what a failure concerns; failures of requests that are over are ignored."""
        for number, job in list(self._running.items()):
            if failed.concerns(number):
                yield from self._fail(job, failed.error, now)

    # -- clients

    def submit(
        self, origin: Origin, submit: Submit, frames: Sequence[memoryview], now: float
    ) -> Iterator[Action]:
        """Take a request; whatever is wrong with it is answered at once."""
        try:
            self._check_new(origin, submit)
            job = read_job(origin, submit, frames, self.role, now)
        except RunError as error:
            yield Send(origin, Error(ticket=submit.ticket, problem=Problem.of(error)))
            return
        self._waiting.append(job)
        yield from self.pump(now)

    def cancel(self, origin: Origin, cancel: Cancel | None, now: float) -> Iterator[Action]:
        """End a client's request, or all of them (None: it went away)."""
        for job in self._jobs():
            if job.origin == origin and (cancel is None or cancel.ticket == job.ticket):
                yield from self._fail(job, RunError("the request was cancelled"), now)

    # -- steps

    def pump(self, now: float) -> Iterator[Action]:
        """Open waiting requests while there are slots and a complete ring."""
        while self._waiting and self._free and not self.absent:
            job = self._waiting.popleft()
            job.number, job.slot = self.next_number, self._free.pop()
            self.next_number += 1
            self._running[job.number] = job
            yield from self._begin(job, job.steps(self.role), now)
            job.inputs = {}

    def moved(self, number: int, now: float) -> None:
        """A request made progress."""
        job = self._running.get(number)
        if job is not None:
            job.progress.moved(now)

    def emitted(self, step: Step, values: Mapping[str, Array], now: float) -> Iterator[Action]:
        """A step has brought its values."""
        job = self._running.get(step.request)
        if job is None:
            return
        self._slowest[step.phase] = max(self._slowest.get(step.phase, 0.0), now - job.started)
        job.progress.moved(now)
        if self.role.model.task != GENERATION:
            job.outputs = values
            yield from self._finish(job, now)
            return
        tokens = next(iter(values.values())).reshape(-1)
        fresh = job.take(tokens.tolist())
        told = Token(ticket=job.ticket, step=job.step, tokens=fresh, finish=tuple(job.finish))
        self._untold.append(Send(job.origin, told))
        if job.finished or job.step == 0 or not self._others:
            yield from self.tell()
        if job.finished:
            yield from self._finish(job, now)
        else:
            job.step += 1
            yield from self._begin(job, [(step.next_token(), {"input_ids": tokens.reshape(-1, 1)})], now)

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
        stats = Stats(
            ticket=job.ticket, device=message.device, columns=message.columns, values=message.values
        )
        yield Send(job.origin, stats, frames)
        job.reports.discard(message.device)
        if not job.reports:
            yield self._answer(job, now)

    def crossed(self, message: Crossed, frames: Sequence[memoryview]) -> Iterator[Action]:
        """Tensors that a device received, for the client."""
        job = self._running.get(message.request)
        if job is not None:
            trace = Trace(
                ticket=job.ticket,
                device=message.device,
                peer=message.peer,
                step=message.step,
                values=message.values,
            )
            yield Send(job.origin, trace, frames)

    # -- liveness

    def answered(self, device: str, pong: Pong, now: float) -> None:
        """A device's loop is alive."""
        self._heard[device] = (now, pong)

    @property
    def due(self) -> float | None:
        """When `look` must be called."""
        return self._look_again

    def look(self, now: float) -> Iterator[Action]:
        """End what waits for too long."""
        if self._look_again is not None and now < self._look_again:
            return
        for job in [job for job in self._reporting.values() if now >= job.progress.expires(_REPORT_S)]:
            yield self._answer(job, now)
        for job in list(self._running.values()):
            patience = self._patience(job)
            if now >= job.progress.expires(patience):
                yield from self._fail(job, self._stalled(job, patience), now)
        if self.absent:
            yield from self._give_up_waiting(now)
        yield from self._ask(now)
        # Steps move deadlines all the time: looking at them at each would cost more than being a little late.
        soonest = min(self._deadlines(), default=None)
        self._look_again = None if soonest is None else min(max(soonest, now), now + self.floor_s * _LATE)

    # -- inner workings

    def _jobs(self) -> list[Job]:
        return [*self._waiting, *self._running.values(), *self._reporting.values()]

    def _check_new(self, origin: Origin, submit: Submit) -> None:
        if any(job.origin == origin and job.ticket == submit.ticket for job in self._jobs()):
            raise RunError(f"request {submit.ticket.hex()[:8]} is being worked on already")
        if len(self._waiting) >= _MOST_QUEUED:
            message = f"{_MOST_QUEUED} requests are waiting already"
            raise RunError(message, hint="send it again later", cause="refused")

    def _begin(
        self, job: Job, steps: Iterable[tuple[Step, Mapping[str, Array]]], now: float
    ) -> Iterator[Action]:
        """Begin the steps that lead to the next token: one, or several parts of a prompt."""
        job.started = now
        job.progress.moved(now)
        for step, inputs in steps:
            yield Begin(step, inputs)

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
            self._free.append(job.slot)

    def _answer(self, job: Job, now: float) -> Send:
        self._reporting.pop(job.number, None)
        result = Result(
            ticket=job.ticket,
            tokens=tuple(map(tuple, job.tokens)),
            finish=tuple(job.finish),
            elapsed_s=max(0.0, now - job.submitted),
            values=announced(job.outputs.items(), self.role.types),
        )
        return Send(job.origin, result, [to_frame(array) for array in job.outputs.values()])

    def _fail(self, job: Job, error: PartcError, now: float) -> Iterator[Action]:
        yield from self.tell()
        if job in self._waiting:
            self._waiting.remove(job)
        else:
            self._release(job)
            self._reporting.pop(job.number, None)
            yield End(job.number, report=False)
        yield Send(job.origin, Error(ticket=job.ticket, problem=Problem.of(error)))
        yield from self.pump(now)

    def _patience(self, job: Job) -> float:
        """Requests in flight take turns on a device, so a step may take as many times longer."""
        phase = "decode" if job.step else "prefill"
        tokens = 1 if job.step else max(job.length, default=1)
        expected = step_s(self.role.predicted, phase, max(1, len(job.length)), tokens)
        return patience_s(expected * max(1, len(self._running)), self.floor_s, self._slowest.get(phase, 0.0))

    def _stalled(self, job: Job, patience: float) -> RunError:
        answers = {name: pong for name, (at, pong) in self._heard.items() if at >= job.progress.since}
        silent = [name for name in self._others if name not in answers]
        if silent:
            what = f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
        else:
            what = "; ".join(f"{name} {pong.doing}" for name, pong in answers.items())
        culprits = silent or [name for name, pong in answers.items() if pong.computing]
        message = f"no progress for {patience:.1f} s in step {job.step}: {what}"
        hint = "start its runner again if it hangs; give the runners a larger --patience if it is only slow"
        return RunError(
            message, where=culprits[0] if len(culprits) == 1 else None, hint=hint, cause="stalled"
        )

    def _give_up_waiting(self, now: float) -> Iterator[Action]:
        for job in list(self._waiting):
            if now >= max(job.submitted, self.incomplete_since) + self.floor_s:
                names = ", ".join(self.absent)
                hint = "start its partc-runner, and see that addresses and keys are those of this build"
                message = f"{names} has not joined the ring"
                yield from self._fail(job, RunError(message, where=names, hint=hint, cause="lost-peer"), now)

    def _ask(self, now: float) -> Iterator[Action]:
        """Ask the devices for a sign of life when requests have stood still for a while."""
        # Sums as in `_deadlines`: a difference may round otherwise, and then the due time would never pass.
        still = any(now >= job.progress.expires(self.floor_s / 4) for job in self._running.values())
        if still and now >= self._asked_at + self.floor_s / 4:
            self._asked_at = now
            yield Broadcast(Ping())

    def _deadlines(self) -> Iterator[float]:
        for job in self._running.values():
            yield job.progress.expires(self._patience(job))
            yield max(job.progress.since, self._asked_at) + self.floor_s / 4
        for job in self._reporting.values():
            yield job.progress.expires(_REPORT_S)
        if self.absent:
            for job in self._waiting:
                yield max(job.submitted, self.incomplete_since) + self.floor_s
