"""All requests of a ring, by their state, and the slots of those that run.

Slots are as many as the plan has room for (`max_requests`); who has none waits, first come, first served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from partc.errors import RunError
from partc.format.message_parts import Reached
from partc.format.role import Role
from partc.runtime.core.source.job import Job, State
from partc.runtime.core.source.slots import Slots

_MOST_WAITING = 1024
_MOST_AHEAD = 2**48
"""A device knows no request that is further ahead of the first: clocks that count milliseconds from 1970 need less for
any year. One that tells of more would use up the numbers."""


class Queue:
    """All requests that are not over."""

    def __init__(self, slots: int, next_number: int) -> None:
        """None is here yet.

        Args:
            slots: requests that may run at once.
            next_number: of the first request. Devices ignore messages of an earlier request of a slot, so numbers grow
                over restarts of the source as well: its clock gives the first one, and `ready` messages raise it.
        """
        self.next_number = next_number
        self._most_told = next_number + _MOST_AHEAD
        self._slots = Slots(slots)
        self._waiting: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        self._reporting: dict[int, Job] = {}

    def __iter__(self) -> Iterator[Job]:
        """Those that wait, run and report; the queue may change meanwhile."""
        return iter([*self._waiting, *self._running.values(), *self._reporting.values()])

    @property
    def waiting(self) -> list[Job]:
        """Requests without a slot, in the order in which they came."""
        return list(self._waiting)

    @property
    def running(self) -> list[Job]:
        """Requests with a slot, in the order in which they opened."""
        return list(self._running.values())

    @property
    def reporting(self) -> list[Job]:
        """Requests whose devices report."""
        return list(self._reporting.values())

    @property
    def stepping(self) -> list[Job]:
        """Requests that have a step under way."""
        return [job for job in self._running.values() if job.state is State.STEPPING]

    @property
    def reached(self) -> tuple[Reached, ...]:
        """The steps that the running requests have reached."""
        return tuple(Reached(job.number, job.slot, job.reached) for job in self._running.values())

    @property
    def has_next(self) -> bool:
        """Whether a request waits, and a slot is free for it."""
        return bool(self._waiting) and self._slots.any_free

    @property
    def free_slots(self) -> int:
        """Slots that no request has."""
        return self._slots.free

    def runs(self, number: int) -> Job | None:
        """The running request of a number."""
        return self._running.get(number)

    def reports(self, number: int) -> Job | None:
        """The reporting request of a number."""
        return self._reporting.get(number)

    def raise_next_number(self, next_number: int) -> None:
        """A device says that it knows requests of numbers below `next_number`."""
        if next_number <= self._most_told:
            self.next_number = max(self.next_number, next_number)

    def check_room(self) -> None:
        """Raise RunError where too many wait already."""
        if len(self._waiting) >= _MOST_WAITING:
            message = f"{_MOST_WAITING} requests are waiting already"
            raise RunError(message, hint="send it again later", cause="refused")

    def put(self, job: Job) -> None:
        """A request waits for a slot."""
        self._waiting.append(job)

    def open(self, role: Role) -> Job:
        """The next request gets a number and a slot."""
        job = self._waiting.popleft()
        slot, reuse = self._slots.take(job.reusable)
        job.open(self.next_number, slot, role, reuse)
        job.become(State.STANDING)
        self.next_number += 1
        self._running[job.number] = job
        return job

    def report(self, job: Job) -> None:
        """All tokens of a request are out: its slot is free."""
        self._leave(job)
        job.become(State.REPORTING)
        self._reporting[job.number] = job

    def end(self, job: Job, *, keeps_slot: bool = False) -> None:
        """A request is over; others may compute its row still (`keeps_slot`): then `free` follows."""
        match job.state:
            case State.WAITING:
                self._waiting.remove(job)
            case State.REPORTING:
                del self._reporting[job.number]
            case _ if keeps_slot:
                del self._running[job.number]
            case _:
                self._leave(job)
        job.become(State.OVER)

    def free(self, job: Job) -> None:
        """The slot of a request that is over is free, without rows that others may use."""
        self._slots.give(job.slot, job.number, ())

    def forget_rows(self) -> None:
        """A device lost its rows: no prefix can be reused."""
        self._slots.forget()

    def _leave(self, job: Job) -> None:
        del self._running[job.number]
        self._slots.give(job.slot, job.number, job.kept)
