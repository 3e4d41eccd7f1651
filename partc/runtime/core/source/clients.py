"""Clients of a ring: what they are told, and what is kept for those that may be away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from partc.format.messages import Crossed, Resume, Timings, Token
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import Send
from partc.runtime.core.events import Origin
from partc.runtime.core.source.answers import ended, stats_of, trace_of
from partc.runtime.core.source.job import Job
from partc.runtime.core.source.orphans import Ending, Orphans, missed, unknown


class Clients:
    """The clients of all requests."""

    def __init__(self, linger_s: float, *, keeps_results: bool) -> None:
        """Nobody has asked yet.

        Args:
            linger_s: the time that a request waits for its client to come back, seconds.
            keeps_results: whether results are small enough to be kept for clients that are away.
        """
        self.orphans = Orphans(linger_s)
        self._linger_s, self._keeps_results = linger_s, keeps_results
        self._untold: list[Send] = []
        """Tokens that clients are to be told of."""

    def knows(self, ticket: bytes, going_on: Iterable[Job]) -> bool:
        """Whether a request goes on, or its end is kept."""
        return self.orphans.find(ticket, going_on) is not None

    def resume(self, origin: Origin, resume: Resume, going_on: Iterable[Job]) -> Iterator[Action]:
        """A client is back: it gets what it missed."""
        found = self.orphans.find(resume.ticket, going_on)
        if found is None:
            yield Send(origin, unknown(resume.ticket))
            return
        job, ending = found
        yield from self.flush_tokens()
        job.origin = origin
        yield from missed(job, ending, origin, resume.from_step)

    def waits_for(self, job: Job, now: float) -> bool:
        """The client of a request is away; whether the request goes on without it for a while."""
        if self._linger_s:
            self.orphans.add(job, now)
        return bool(self._linger_s)

    def drew(self, job: Job, token: Token) -> None:
        """A request has a new token."""
        if job.origin is not None:
            self._untold.append(Send(job.origin, token))

    def flush_tokens(self) -> Iterator[Action]:
        """Tell clients of new tokens.

        A ring waits for its source from token to token, so there is time for it only when the next step is on its way
        to the other devices; but the first token is waited for, and a source without other devices never waits.
        """
        untold, self._untold = self._untold, []
        yield from untold

    def reported(self, job: Job, message: Timings, frames: Sequence[memoryview]) -> Iterator[Action]:
        """A device has reported the times of a request."""
        if job.origin is not None:
            yield Send(job.origin, stats_of(job, message), frames)

    def crossed(self, job: Job, message: Crossed, frames: Sequence[memoryview]) -> Iterator[Action]:
        """A device has received tensors of a traced request."""
        if job.origin is not None and job.is_news(message):
            yield Send(job.origin, trace_of(job, message), frames)

    def end(self, job: Job, ending: Ending, now: float) -> Iterator[Action]:
        """Tell the client how its request ended, and keep that in case the client is away."""
        yield ended(job, ending[0], now)
        if job.origin is not None:
            yield Send(job.origin, *ending)
        if self._linger_s and (job.origin is None or self._keeps_results):
            self.orphans.ended(job, ending, now)
