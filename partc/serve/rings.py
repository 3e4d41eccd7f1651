"""The rings behind an endpoint: all are of one model, and a request goes to one of them.

A request waits here until a ring stands. It goes to the ring that has the fewest for its `max_requests`; one that
computed most of the prompt before counts as if it had one fewer, since it may have kept those rows. What a ring gives
back, because it was lost or is removed, begins again at another.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from partc.errors import PartcError, RunError
from partc.format.placement import Placement
from partc.format.status import RingStatus
from partc.runtime.client.placing import Answered
from partc.runtime.client.results import Result
from partc.serve.job import Job
from partc.serve.ring import Beside, Opener, RingThread, State

OnState = Callable[[str, State, PartcError | None], None]
"""Called with the name of a ring, its state, and the reason."""
OnStatus = Callable[[str, RingStatus], None]
"""Called with the name of a ring, and how it is."""
_LOOK_S = 0.02
"""Time between two looks whether a ring that is to be removed has ended its requests."""


@dataclass(slots=True, eq=False)
class _Ring:
    """A ring, and what is known of it."""

    thread: RingThread
    most: int
    """Requests that it computes at once."""
    state: State = "starting"
    is_leaving: bool = False
    jobs: set[Job] = field(default_factory=set)
    prompts: deque[Sequence[int]] = field(init=False)
    """Of the last requests, whose rows it may have kept."""

    def __post_init__(self) -> None:
        self.prompts = deque(maxlen=self.most)

    @property
    def takes(self) -> bool:
        """Whether requests may go to it."""
        return self.state == "ready" and not self.is_leaving

    def load(self, job: Job) -> float:
        """Requests for one of its places, were `job` there, less what it knows of the prompt."""
        known = (
            max((_common(prompt, job.prompt) for prompt in self.prompts), default=0) if job.query.reuse else 0
        )
        return (len(self.jobs) - known / max(1, len(job.prompt))) / self.most


class Rings:
    """All rings, as the event loop sees them; used in it alone."""

    def __init__(self, loop: AbstractEventLoop, on_state: OnState) -> None:
        """There is no ring yet."""
        self._loop, self._on_state = loop, on_state
        self._rings: dict[str, _Ring] = {}
        self._waiting: dict[Job, None] = {}
        """Jobs that no ring has, in the order in which they came."""
        self._places: dict[Job, _Ring] = {}
        self._on_status: OnStatus | None = None
        self._period_s = 1.0
        self._is_closed = False
        self._begun_again = 0
        """By rings that are removed."""

    @property
    def states(self) -> dict[str, State]:
        """Name → state, of all rings that are not to be removed."""
        return {name: ring.state for name, ring in self._rings.items() if not ring.is_leaving}

    @property
    def state(self) -> State:
        """That of all together: the best of any."""
        found = set(self.states.values())
        order: tuple[State, ...] = ("ready", "starting", "lost")
        return next((state for state in order if state in found), "ended")

    @property
    def most(self) -> int:
        """Requests that all compute at once."""
        return sum(ring.most for ring in self._rings.values() if not ring.is_leaving)

    @property
    def begun_again(self) -> int:
        """Requests that were begun again after their source was lost."""
        return self._begun_again + sum(ring.thread.begun_again for ring in self._rings.values())

    def open(self, name: str, opener: Opener, most: int, beside: Beside | None = None) -> None:
        """Start a ring, or find one; `most` is its `max_requests`, and `beside` works beside its client.

        Raises:
            RunError: there is a ring of that name.
        """
        if name in self._rings:
            raise RunError(f"there is a ring {name!r} already", hint="remove that one first")
        ring = _Ring(RingThread(name, opener, self._loop, self, beside), most)
        self._rings[name] = ring
        if self._on_status is not None:
            self._watch(ring)
        ring.thread.start()

    async def remove(self, name: str, grace_s: float) -> None:
        """End a ring when its requests have ended; those that have not after `grace_s` begin again at another.

        Raises:
            RunError: there is no such ring.
        """
        ring = self._rings.get(name)
        if ring is None:
            raise RunError(f"there is no ring {name!r}", hint=", ".join(self._rings) or "there is none")
        ring.is_leaving = True
        end = self._loop.time() + grace_s
        while ring.jobs and self._loop.time() < end:
            await asyncio.sleep(_LOOK_S)
        await asyncio.to_thread(ring.thread.close)
        await asyncio.sleep(0)  # what the thread has told is heard
        if self._rings.pop(name, None) is not None:  # else somebody else has removed it meanwhile
            self._begun_again += ring.thread.begun_again

    def submit(self, job: Job) -> None:
        """Begin a job as soon as a ring takes it."""
        ring = min(
            (ring for ring in self._rings.values() if ring.takes),
            key=lambda ring: ring.load(job),
            default=None,
        )
        if ring is None:
            self._waiting[job] = None
            return
        self._places[job] = ring
        ring.jobs.add(job)
        if job.query.reuse:
            ring.prompts.append(job.prompt)
        ring.thread.submit(job)

    def cancel(self, job: Job) -> None:
        """End a job; one that has ended is left alone."""
        self._waiting.pop(job, None)
        if (ring := self._forgotten(job)) is not None:
            ring.thread.cancel(job)

    def place(self, name: str, placement: Placement, reason: str, on_end: Answered) -> None:
        """Ask a ring for another placement; `on_end` gets the outcome."""
        ring = self._rings.get(name)
        if ring is None or not ring.takes:
            on_end(RunError("the ring does not stand", where=name, cause="lost-peer"))
        else:
            ring.thread.place(placement, reason, on_end)

    def watch(self, on_status: OnStatus | None, period_s: float) -> None:
        """Be told how the rings are, every `period_s` seconds; None: no longer."""
        self._on_status, self._period_s = on_status, period_s
        for ring in self._rings.values():
            self._watch(ring)

    def give_up(self) -> None:
        """End all requests with an error: the server ends."""
        error = RunError("the server ends", cause="lost-peer")
        for job in [*self._waiting, *self._places]:
            self.cancel(job)
            job.on_end(error)

    def close(self) -> None:
        """End all rings that are ours; jobs end with an error. Not called in the event loop, which must run."""
        self._is_closed = True
        for ring in list(self._rings.values()):
            ring.thread.close()

    def ring_is(self, thread: RingThread, state: State, error: PartcError | None) -> None:
        """Note a state of a ring; what waits goes to one that stands."""
        ring = self._of(thread)
        if ring is None:
            return
        ring.state = state
        if state == "ready":
            waiting, self._waiting = self._waiting, {}
            for job in waiting:
                self.submit(job)
        else:
            ring.prompts.clear()  # its rows may be gone
            for job in thread.withdrawn():
                self._again(job, error)
        if not ring.is_leaving:
            self._on_state(thread.name, state, error)
        if self.state == "ended":
            for job in list(self._waiting):
                self._again(job, error)

    def job_ended(self, job: Job, outcome: Result | PartcError) -> None:
        """Tell who waits for a job."""
        if self._forgotten(job) is not None:
            job.on_end(outcome)

    def job_waits(self, thread: RingThread, job: Job, error: PartcError) -> None:
        """Begin a job elsewhere, or as soon as a ring stands."""
        if job in self._places:  # else nobody wants it any more
            self._again(job, error)

    def _again(self, job: Job, error: PartcError | None) -> None:
        self._forgotten(job)
        self._waiting.pop(job, None)
        if self._is_closed or self.state == "ended":
            job.on_end(error or RunError("the server ends", cause="lost-peer"))
        else:
            self.submit(job)

    def _forgotten(self, job: Job) -> _Ring | None:
        """The ring that had a job, which is no longer its."""
        ring = self._places.pop(job, None)
        if ring is not None:
            ring.jobs.discard(job)
        return ring

    def _of(self, thread: RingThread) -> _Ring | None:
        return next((ring for ring in self._rings.values() if ring.thread is thread), None)

    def _watch(self, ring: _Ring) -> None:
        on_status, name = self._on_status, ring.thread.name
        told = None if on_status is None else lambda status: on_status(name, status)
        ring.thread.watch(told, self._period_s)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin; O(tokens)."""
    same = (index for index, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(same, min(len(one), len(other)))
