"""Requests at the source: taken from clients, queued, opened in a free slot, stepped, watched, answered."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from partc.errors import PartcError, RunError
from partc.format.dtypes import Array
from partc.format.role import Role
from partc.runtime.client.text import Tokenizer
from partc.runtime.core.link import Progress, patience_s, step_s
from partc.runtime.core.timings import Timing, timing_table
from partc.runtime.jobs import GENERATION, Job, fill_prompts, fill_tensors, opening_of, prompt_steps
from partc.runtime.links import Control
from partc.runtime.shell.transport import Origin
from partc.runtime.wire import Step, to_frame, to_frames

_MOST_QUEUED = 1024
_REPORT_S = 1.0
_LATE = 0.05
"""By how much of the shortest patience a fault may be noticed late."""


class Office(Protocol):
    """What the source needs of its runner."""

    def begin(self, step: Step, inputs: Mapping[str, Array]) -> None:
        """Start a step here, once the request's last one is done here."""

    def close(self, number: int) -> None:
        """End a request here."""

    def control(self, origin: Origin, kind: str, frames: Sequence[memoryview] = (), **fields: Any) -> bool:
        """Send a control message."""

    def timings_of(self, number: int) -> list[Timing]:
        """The steps of a request here."""

    def missing(self) -> list[str]:
        """Devices to which there is no link."""


class Source:
    """All requests of a ring."""

    def __init__(
        self, manifest: Role, folder: Path, office: Office, clock: Callable[[], float], floor_s: float
    ) -> None:
        """No request yet; `floor_s` is the shortest patience with a silent ring."""
        self._manifest = manifest
        self._office = office
        self._clock = clock
        self._floor_s = floor_s
        self._tokenizer = Tokenizer(folder)
        self._others = [name for name in manifest.ring if name != manifest.device]
        self._joined: dict[str, Origin] = {}
        self._incomplete_since = clock()
        self._waiting: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        self._reporting: dict[int, Job] = {}
        self._untold: list[tuple[Job, int, list[int | None], list[str]]] = []
        """Job, step, tokens and texts that its client is to be told of."""
        self._free = list(range(manifest.model.max_requests))[::-1]
        # Devices drop what belongs to an earlier request of a slot; so numbers grow over restarts as well. Where
        # the clock was set back in between, a device's `ready` says how far they had come.
        self._next_number = time.time_ns() // 1_000_000
        self._slowest: dict[str, float] = {}
        self._heard: dict[str, tuple[float, str]] = {}
        self._asked_at = 0.0
        self._look_again = 0.0

    # -- the ring

    @property
    def absent(self) -> list[str]:
        """Devices that are not in the ring yet."""
        outside = [name for name in self._others if name not in self._joined]
        return list(dict.fromkeys([*outside, *self._office.missing()]))

    def joined(self, device: str, origin: Origin, next_request: int) -> None:
        """A device is ready, with all its links; it knows requests of numbers below `next_request`."""
        self._joined[device] = origin
        self._next_number = max(self._next_number, next_request)
        self.pump()

    def lost(self, device: str, gone: str) -> None:
        """A device is not part of the ring any more: itself is gone, or one that it sends to."""
        self._joined.pop(device, None)
        self._incomplete_since = self._clock()
        hint = "see what its runner says, start it again, and repeat the request"
        self.fail_all(RunError(f"{gone} closed its connection", where=gone, hint=hint))

    def fail_all(self, error: PartcError) -> None:
        """End every request that has begun."""
        for job in [*self._running.values(), *self._reporting.values()]:
            self._fail(job, error)

    def fail(self, number: int, error: PartcError) -> None:
        """End one request."""
        job = self._running.get(number)
        if job is not None:
            self._fail(job, error)

    def broadcast(self, kind: str, **fields: Any) -> None:
        """Tell every device that has joined."""
        for origin in list(self._joined.values()):
            self._office.control(origin, kind, **fields)

    # -- clients

    def submit(self, message: Control) -> None:
        """Take a request; whatever is wrong with it is answered at once."""
        fields = message.fields
        now = self._clock()
        try:
            self._check_new(message)
            job = Job(message.origin, fields["request"], opening_of(fields), now, Progress(now))
            self._fill(job, message)
        except RunError as error:
            self._tell_error(message.origin, fields["request"], error)
            return
        self._waiting.append(job)
        self.pump()

    def cancel(self, origin: Origin, ticket: int | None) -> None:
        """End a client's request, or all of them (None)."""
        hit = [job for job in self._jobs() if job.origin == origin and ticket in (None, job.ticket)]
        for job in hit:
            self._fail(job, RunError("the request was cancelled"))

    # -- steps

    def pump(self) -> None:
        """Open waiting requests while there are slots and a complete ring."""
        while self._waiting and self._free and not self.absent:
            self._open(self._waiting.popleft())

    def moved(self, number: int) -> None:
        """A request made progress."""
        job = self._running.get(number)
        if job is not None:
            job.progress.moved(self._clock())

    def emitted(self, step: Step, values: Mapping[str, Array]) -> None:
        """A step has brought its values."""
        job = self._running.get(step.request)
        if job is None:
            return
        now = self._clock()
        phase = step.phase
        self._slowest[phase] = max(self._slowest.get(phase, 0.0), now - job.started)
        job.progress.moved(now)
        if self._manifest.model.task != GENERATION:
            job.outputs = values
            self._finish(job)
            return
        tokens = next(iter(values.values()))
        self._untold.append((job, job.step, *job.take([int(token) for token in tokens.reshape(-1)])))
        if job.finished or job.step == 0 or not self._others:
            self.tell()
        if job.finished:
            self._finish(job)
        else:
            job.step += 1
            self._begin(job, [(step.next_token(), {"input_ids": tokens.reshape(-1, 1)})])

    def tell(self) -> None:
        """Tell clients of new tokens.

        A ring waits for its source from token to token, so there is time for it only when the next step is on its way
        to the other devices; but the first token is waited for, and a source without other devices never waits.
        """
        for job, step, tokens, texts in self._untold:
            self._office.control(
                job.origin, "token", request=job.ticket, step=step, tokens=tokens, texts=texts
            )
        self._untold.clear()

    def stats(self, message: Control) -> None:
        """A device's timings of a request that has ended."""
        job = self._reporting.get(message.fields["request"])
        if job is None:
            return
        self._forward(job, message)
        job.reports.discard(message.peer)
        if not job.reports:
            self._answer(job)

    def traced(self, message: Control) -> None:
        """Tensors that a device received, for the client."""
        job = self._running.get(message.fields["request"])
        if job is not None:
            self._forward(job, message)

    # -- liveness

    def pong(self, device: str, doing: str) -> None:
        """A device's loop is alive."""
        self._heard[device] = (self._clock(), doing)

    def tick(self) -> float | None:
        """End what waits for too long; when this must be called again."""
        now = self._clock()
        if now < self._look_again:
            return self._look_again
        for job in [job for job in self._reporting.values() if now >= job.progress.expires(_REPORT_S)]:
            self._answer(job)
        for job in list(self._running.values()):
            patience = self._patience(job)
            if now >= job.progress.expires(patience):
                self._fail(job, self._stalled(job, now, patience))
        if self.absent:
            self._give_up_waiting(now)
        self._ask(now)
        # Steps move deadlines all the time: looking at them at each would cost more than being a little late.
        soonest = min(self._deadlines(now), default=None)
        self._look_again = 0.0 if soonest is None else min(max(soonest, now), now + self._floor_s * _LATE)
        return soonest if soonest is None else self._look_again

    # -- inner workings

    def _jobs(self) -> list[Job]:
        return [*self._waiting, *self._running.values(), *self._reporting.values()]

    def _check_new(self, message: Control) -> None:
        ticket = message.fields["request"]
        if any(job.origin == message.origin and job.ticket == ticket for job in self._jobs()):
            raise RunError(f"request {ticket} is being worked on already")
        if len(self._waiting) >= _MOST_QUEUED:
            raise RunError(f"{_MOST_QUEUED} requests are waiting already", hint="send it again later")

    def _fill(self, job: Job, message: Control) -> None:
        fields = message.fields
        if fields["values"]:
            fill_tensors(job, fields, message.frames, self._manifest)
            return
        job.prompts = fields["prompts"] or self._tokenizer.encode(fields["texts"])
        fill_prompts(job, fields, self._manifest)
        if fields["texts"] and self._manifest.model.task == GENERATION:
            job.streams = [self._tokenizer.stream(prompt) for prompt in job.prompts]

    def _open(self, job: Job) -> None:
        job.number, job.slot = self._next_number, self._free.pop()
        self._next_number += 1
        self._running[job.number] = job
        self._begin(job, prompt_steps(job, self._manifest))
        job.inputs = {}

    def _begin(self, job: Job, steps: Iterable[tuple[Step, Mapping[str, Array]]]) -> None:
        """Begin the steps that lead to the next token: one, or several parts of a prompt."""
        job.started = self._clock()
        job.progress.moved(job.started)
        try:
            for step, inputs in steps:
                self._office.begin(step, inputs)
        except RunError as error:
            self._fail(job, error)

    def _finish(self, job: Job) -> None:
        """All tokens are out: the slot is free for the next request while the devices report."""
        self._release(job)
        job.progress.moved(self._clock())
        job.reports = {device for device in self._others if device in self._joined}
        own = self._office.timings_of(job.number)
        columns, array = timing_table(own)
        self._tell_stats(job, self._manifest.device, columns, array)
        self._office.close(job.number)
        self.broadcast("close", request=job.number, report=True)
        if job.reports:
            self._reporting[job.number] = job
        else:
            self._answer(job)
        self.pump()

    def _release(self, job: Job) -> None:
        if self._running.pop(job.number, None) is not None:
            self._free.append(job.slot)

    def _answer(self, job: Job) -> None:
        self._reporting.pop(job.number, None)
        types = self._manifest.types
        specs = [(name, types[name].dtype, array.shape) for name, array in job.outputs.items()]
        self._office.control(
            job.origin,
            "result",
            [to_frame(array) for array in job.outputs.values()],
            request=job.ticket,
            prompts=job.prompts,
            tokens=job.tokens,
            texts=job.texts if job.streams else [],
            finish=job.finish,
            elapsed_s=self._clock() - job.submitted,
            values=specs,
        )

    def _fail(self, job: Job, error: PartcError) -> None:
        self.tell()
        if job in self._waiting:
            self._waiting.remove(job)
        else:
            self._release(job)
            self._reporting.pop(job.number, None)
            self._office.close(job.number)
            self.broadcast("close", request=job.number, report=False)
        self._tell_error(job.origin, job.ticket, error)
        self.pump()

    def _tell_error(self, origin: Origin, ticket: int, error: PartcError) -> None:
        self._office.control(
            origin, "error", request=ticket, message=error.message, where=error.where, hint=error.hint
        )

    def _tell_stats(self, job: Job, device: str, columns: list[str], array: Array) -> None:
        self._office.control(
            job.origin,
            "stats",
            to_frames(array),
            request=job.ticket,
            device=device,
            columns=columns,
            values=[("timing", "float64", array.shape)],
        )

    def _forward(self, job: Job, message: Control) -> None:
        common = ("v", "kind", "plan", "epoch", "request")
        fields = {name: value for name, value in message.fields.items() if name not in common}
        self._office.control(job.origin, message.fields["kind"], message.frames, request=job.ticket, **fields)

    def _patience(self, job: Job) -> float:
        """Requests in flight take turns on a device, so a step may take as many times longer."""
        phase = "decode" if job.step else "prefill"
        tokens = 1 if job.step else max(job.length, default=1)
        expected = step_s(self._manifest.predicted, phase, max(1, len(job.length)), tokens)
        return patience_s(expected * max(1, len(self._running)), self._floor_s, self._slowest.get(phase, 0.0))

    def _stalled(self, job: Job, now: float, patience: float) -> RunError:
        silent = [name for name in self._others if self._heard.get(name, (0.0, ""))[0] < job.progress.since]
        if silent:
            what = f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
        else:
            what = "; ".join(f"{name} {self._heard[name][1]}" for name in self._others)
        message = f"no progress for {patience:.1f} s in step {job.step}: {what}"
        hint = "start its runner again if it hangs; give the runners a larger --patience if it is only slow"
        return RunError(message, where=silent[0] if len(silent) == 1 else None, hint=hint)

    def _give_up_waiting(self, now: float) -> None:
        for job in list(self._waiting):
            if now >= max(job.submitted, self._incomplete_since) + self._floor_s:
                names = ", ".join(self.absent)
                hint = "start its partc-runner, and see that addresses and keys are those of this build"
                self._fail(job, RunError(f"{names} has not joined the ring", where=names, hint=hint))

    def _ask(self, now: float) -> None:
        """Ask the devices for a sign of life when requests have stood still for a while."""
        still = any(job.progress.silent_s(now) >= self._floor_s / 4 for job in self._running.values())
        if still and now - self._asked_at >= self._floor_s / 4:
            self._asked_at = now
            self.broadcast("ping", token=0)

    def _deadlines(self, now: float) -> Iterator[float]:
        for job in self._running.values():
            yield job.progress.expires(self._patience(job))
            asks = max(job.progress.since, self._asked_at) + self._floor_s / 4
            yield asks
        for job in self._reporting.values():
            yield job.progress.expires(_REPORT_S)
        if self.absent:
            for job in self._waiting:
                yield max(job.submitted, self._incomplete_since) + self._floor_s


def problem(error: PartcError) -> dict[str, str | None]:
    """An error as the fields of a message."""
    return {"message": error.message, "where": error.where, "hint": error.hint}
