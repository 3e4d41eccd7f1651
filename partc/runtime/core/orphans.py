"""Requests whose client is away: they go on, and wait for it for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from partc.format.messages import Error, Result
from partc.runtime.core.commands import Frame
from partc.runtime.core.job import Job

Ending = tuple[Result | Error, Sequence[Frame]]
"""The last message of a request."""


@dataclass(slots=True)
class _Orphan:
    job: Job
    since: float
    ending: Ending | None = None


@dataclass(slots=True)
class Orphans:
    """The requests of clients whose connections are broken."""

    linger_s: float
    """The time that they wait for their client, seconds."""
    _by_ticket: dict[bytes, _Orphan] = field(default_factory=dict)

    def add(self, job: Job, now: float) -> None:
        """The client of a request is away."""
        job.origin = None
        self._by_ticket[job.ticket] = _Orphan(job, now)

    def keep(self, job: Job, ending: Ending) -> None:
        """Keep the end of a request until its client is back."""
        if job.ticket in self._by_ticket:
            self._by_ticket[job.ticket].ending = ending

    def take(self, ticket: bytes) -> tuple[Job, Ending | None] | None:
        """The request whose client is back, and its end where it has ended."""
        orphan = self._by_ticket.pop(ticket, None)
        return None if orphan is None else (orphan.job, orphan.ending)

    def expired(self, now: float) -> Iterator[Job]:
        """Requests that waited for too long and go on; those that have ended are forgotten."""
        for ticket, orphan in list(self._by_ticket.items()):
            if now >= orphan.since + self.linger_s:
                del self._by_ticket[ticket]
                if orphan.ending is None:
                    yield orphan.job

    @property
    def due(self) -> float | None:
        """When `expired` must be called."""
        return min((orphan.since + self.linger_s for orphan in self._by_ticket.values()), default=None)
