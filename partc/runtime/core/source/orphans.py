"""Requests whose client may be away: they go on without it for a while, and their ends are kept for it.

A gap shows late: a connection may carry nothing for seconds before it counts as broken. So the ends of requests whose
client seems to be there are kept as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from partc.errors import RunError
from partc.format.message_parts import Problem
from partc.format.messages import Error, Result, Token
from partc.runtime.core.commands import Frame, Send
from partc.runtime.core.events import Origin
from partc.runtime.core.source.job import Job

Ending = tuple[Result | Error, Sequence[Frame]]
"""The last message of a request."""

_MOST_ENDED = 64
"""Ends that are kept at once, the last ones."""
_HINT = "send it again; with a higher --linger the source waits longer for its clients"


@dataclass(slots=True)
class _Orphan:
    job: Job
    since: float
    ending: Ending | None = None


@dataclass(slots=True)
class Orphans:
    """Requests whose client may be away."""

    linger_s: float
    """The time that they wait for their client, seconds."""
    _by_ticket: dict[bytes, _Orphan] = field(default_factory=dict)

    def add(self, job: Job, now: float) -> None:
        """The client of a request is away."""
        job.origin = None
        self._by_ticket[job.ticket] = _Orphan(job, now)

    def ended(self, job: Job, ending: Ending, now: float) -> None:
        """A request has ended; its client may not have heard of it."""
        orphan = self._by_ticket.setdefault(job.ticket, _Orphan(job, now))
        orphan.ending = ending
        ended = [ticket for ticket, each in self._by_ticket.items() if each.ending is not None]
        for ticket in ended[:-_MOST_ENDED]:
            del self._by_ticket[ticket]

    def find(self, ticket: bytes, going_on: Iterable[Job]) -> tuple[Job, Ending | None] | None:
        """The request whose client is back, among those that go on or are kept here; and its end where it has ended."""
        orphan = self._by_ticket.get(ticket)
        if orphan is not None and orphan.ending is not None:
            return orphan.job, orphan.ending
        self._by_ticket.pop(ticket, None)
        return next(((job, None) for job in going_on if job.ticket == ticket), None)

    def expired(self, now: float) -> Iterator[Job]:
        """Requests that waited for too long and go on; those that have ended are forgotten."""
        for ticket, orphan in list(self._by_ticket.items()):
            if now >= orphan.since + self.linger_s:
                del self._by_ticket[ticket]
                if orphan.ending is None:
                    yield orphan.job

    def error(self) -> RunError:
        """The reason why a request that waited for too long ends."""
        message = f"the client of this request was away for {self.linger_s:g} s"
        return RunError(message, hint=_HINT, cause="lost-peer")

    @property
    def due(self) -> float | None:
        """When `expired` must be called; to forget what has ended there is no hurry."""
        going_on = (orphan for orphan in self._by_ticket.values() if orphan.ending is None)
        return min((orphan.since + self.linger_s for orphan in going_on), default=None)


def missed(job: Job, ending: Ending | None, origin: Origin, from_step: int) -> Iterator[Send]:
    """All that a client has not heard of a request, from a token on."""
    for step in range(from_step, job.step):
        tokens, finish = job.told(step)
        likely = job.likely.get(step, ())
        yield Send(origin, Token(ticket=job.ticket, step=step, tokens=tokens, finish=finish, likely=likely))
    if ending is not None:
        yield Send(origin, *ending)


def unknown(ticket: bytes) -> Error:
    """The answer to the client of a request that is forgotten, or was never here."""
    error = RunError("this request is not known here", hint=_HINT, cause="refused")
    return Error(ticket=ticket, problem=Problem.of(error))
