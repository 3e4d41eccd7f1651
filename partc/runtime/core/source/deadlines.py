"""Deadlines of requests: with a step that does not end, with an outage, with reports, and with those that wait.

`late` says what becomes of whatever has waited for too long; the schedule carries it out.
Times are seconds on the source's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partc.errors import PartcError
from partc.format.role import Role
from partc.runtime.core.actions import Stalled
from partc.runtime.core.links.outages import Cut, Rejoin, not_joined
from partc.runtime.core.source.job import Job, State
from partc.runtime.core.source.orphans import Orphans
from partc.runtime.core.source.patience import Patience
from partc.runtime.core.source.queue import Queue

Verdict = PartcError | Stalled | None
"""What becomes of a request that is late: it ends with an error, it is tried again in a change, or, where only reports
are missing, it is answered without them."""

_REPORT_S = 1.0
_LATE = 0.05
"""Faults may be noticed late by this fraction of the shortest patience."""


class Deadlines:
    """How long what is waited for."""

    def __init__(self, role: Role, floor_s: float, rejoin_s: float, incomplete_since: float) -> None:
        """Nothing is late yet.

        Args:
            role: of the source.
            floor_s: the shortest patience with a silent ring, seconds.
            rejoin_s: the time that requests wait for a lost device, seconds; 0: a loss that cannot be made good ends
                them at once.
            incomplete_since: since when the ring may be incomplete.
        """
        self.floor_s, self.rejoin_s = floor_s, rejoin_s
        self.incomplete_since = incomplete_since
        self.patience = Patience(role, floor_s)
        self._rejoin = Rejoin(rejoin_s)
        self._cut = Cut(max(floor_s, rejoin_s))
        self._asked_at = 0.0
        self.due: float | None = 0.0
        """When the schedule must look at them; None: never."""

    def adopt(self, role: Role) -> None:
        """Another placement is in force."""
        self.patience = Patience(role, self.floor_s)

    def look_at(self, now: float) -> None:
        """Something has changed that must be looked at."""
        self.due = now

    def are_due(self, now: float) -> bool:
        """Whether the schedule must look at them now."""
        return self.due is None or now >= self.due

    # -- outages

    def devices_lost(self, gone: Sequence[str], now: float) -> None:
        """Devices were lost for which there are no others."""
        self._rejoin.begin(tuple(gone), now)
        self.due = now

    def links_down(self, links: Sequence[tuple[str, str]], now: float) -> None:
        """The links that are down between devices that are both there."""
        if self._cut.found(links, now):
            self.due = now

    def outage_over(self) -> bool:
        """Whatever was lost is there again, or is replaced; whether that was waited for."""
        was_awaited, self._rejoin.since = self._rejoin.since is not None, None
        return was_awaited

    # -- requests

    def took(self, job: Job, phase: str, now: float) -> None:
        """A step of a request is over; one that began while a device was away says nothing of the next."""
        if job.started >= self.incomplete_since:
            self.patience.took(phase, now - job.started, job.awaited_tokens)

    def late(
        self, queue: Queue, absent: Sequence[str], orphans: Orphans, now: float
    ) -> Iterator[tuple[Job, Verdict]]:
        """Requests that have waited for too long, one after the other: what follows from each may change the queue.

        Args:
            queue: all requests.
            absent: devices without which none can open.
            orphans: requests whose client is away.
            now: the time.
        """
        for job in queue.reporting:
            if now >= job.progress.expires(_REPORT_S):
                yield job, None
        yield from (
            self._late_steps(queue, now) if self._rejoin.since is None else self.lost_for_good(queue, now)
        )
        for job in orphans.expired(now):
            yield job, orphans.error()
        for job in queue.waiting:
            if absent and now >= self._opens_by(job):
                yield job, not_joined(absent)

    def lost_for_good(self, queue: Queue, now: float) -> Iterator[tuple[Job, PartcError]]:
        """All requests, where nobody came back in time."""
        if self._rejoin.is_over(now):
            error, self._rejoin.since = self._rejoin.error(), None
            for job in (*queue.running, *queue.reporting):
                yield job, error

    def asks(self, stepping: Sequence[Job], now: float) -> bool:
        """Whether the devices are to be asked for a sign of life, since requests have stood still for a while."""
        # Sums as in `_deadlines`: a difference may round otherwise, and then the due time would never pass.
        still = any(now >= job.progress.expires(self.floor_s / 4) for job in stepping)
        if not still or now < self._asked_at + self.floor_s / 4:
            return False
        self._asked_at = now
        return True

    def set_due(self, queue: Queue, absent: Sequence[str], orphans_due: float | None, now: float) -> None:
        """All that is late has been dealt with: find the next deadline."""
        # Steps move deadlines all the time: looking at them at each would cost more than being a little late.
        soonest = min(self._deadlines(queue, absent, orphans_due, now), default=None)
        self.due = None if soonest is None else min(max(soonest, now), now + self.floor_s * _LATE)

    # -- inner workings

    def _late_steps(self, queue: Queue, now: float) -> Iterator[tuple[Job, Verdict]]:
        """Requests whose step does not end, or cannot."""
        for job in queue.running if self._cut.is_over(now) else ():
            yield job, self._cut.error()
        for job in queue.running:
            patience = self.patience.of(job, len(queue.running), now)
            if job.state is not State.STEPPING or now < job.progress.expires(patience):
                continue
            error, silent = self.patience.stalled(job, patience, now), self.patience.silent(job, now)
            if self.rejoin_s and now < job.stands_since(job.progress.since) + self.rejoin_s:
                job.progress.moved(now)
                yield job, Stalled(silent, error)
            else:
                yield job, error

    def _opens_by(self, job: Job) -> float:
        return max(job.submitted, self.incomplete_since) + max(self.floor_s, self.rejoin_s)

    def _deadlines(
        self, queue: Queue, absent: Sequence[str], orphans_due: float | None, now: float
    ) -> Iterator[float]:
        running, is_whole = queue.running, self._rejoin.since is None
        ends = (self._rejoin.ends, orphans_due, self._cut.ends if running and is_whole else None)
        yield from (due for due in ends if due is not None)
        for job in queue.stepping if is_whole else ():
            yield job.progress.expires(self.patience.of(job, len(running), now))
            yield max(job.progress.since, self._asked_at) + self.floor_s / 4
        yield from (job.progress.expires(_REPORT_S) for job in queue.reporting)
        if absent:
            yield from map(self._opens_by, queue.waiting)
