"""The thread that owns the client of a ring: requests go in from the event loop, tokens come back to it.

| state | what it does with requests |
|---|---|
| starting | keeps them until the ring stands |
| ready | submits them |
| lost | connects again, or opens the ring anew where it cannot come back (a local runner that died too often);
  requests in flight go back to the owner, to begin again with the tokens that they had, once |
| ended | gives back those that may begin again, and ends the others with an error |

A request that begins again is the same query with the tokens that it had (`known` of `submit`): they are forced in
steps of the shapes that they had before, and a draw depends on seed and position, so the rest is as it would have been.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import traceback
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeVar

from partc.errors import PartcError, RunError
from partc.format.placement import Placement
from partc.format.status import RingStatus
from partc.printable import note
from partc.runtime.client.client import Client
from partc.runtime.client.placing import Answered
from partc.runtime.client.results import Result, Tokens
from partc.serve.job import Job

_T = TypeVar("_T")
State = Literal["starting", "ready", "lost", "ended"]
Connect = Callable[[], Client]


@dataclass(frozen=True)
class Opened:
    """A ring that was started, or found."""

    connect: Connect
    failure: Callable[[], PartcError | None] = lambda: None
    """The reason why it will not come back by itself; None: it stands, or may."""


Opener = Callable[[], AbstractContextManager[Opened]]
"""Starts a ring, or finds one, for as long as the block lasts."""
Beside = Callable[[Client], AbstractContextManager[None]]
"""Works beside a client for as long as the block lasts: the balancer."""

_AGAIN_S = 0.5
"""Time between two tries to connect."""
_MOST_PAUSE_S = 30.0
"""Longest time between two tries to open a ring anew; the first one is `_AGAIN_S`, and each doubles it."""
_LISTEN_S = 1.0
_Watching = tuple[bytes, float] | None
"""Ticket of a client's watch, and its period; None: it does not watch."""


class Owner(Protocol):
    """Callbacks of the object that owns the rings. All are called in the event loop."""

    def ring_is(self, ring: RingThread, state: State, error: PartcError | None) -> None:
        """The ring is in a state, for a reason."""

    def job_ended(self, job: Job, outcome: Result | PartcError) -> None:
        """A job has ended."""

    def job_waits(self, ring: RingThread, job: Job, error: PartcError) -> None:
        """A job is to begin, or to begin again, and the ring cannot take it now."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A placement that is asked for."""

    placement: Placement
    reason: str
    on_end: Answered


class _NotBack(Exception):
    """The ring that was opened will not come back."""

    def __init__(self, error: PartcError) -> None:
        super().__init__(error.message)
        self.error = error


class RingThread:
    """A ring, as the event loop sees it; the methods but `run` are the loop's."""

    def __init__(
        self, name: str, opener: Opener, loop: AbstractEventLoop, owner: Owner, beside: Beside | None = None
    ) -> None:
        """Nothing is started yet."""
        self.name = name
        self._opener, self._loop, self._owner = opener, loop, owner
        self._beside: Beside = beside or (lambda client: contextlib.nullcontext())
        self._new: deque[Job] = deque()
        self._cancelled: deque[Job] = deque()
        self._places: deque[_Place] = deque()
        """Placements that are asked for."""
        self._jobs: list[Job] = []
        """Jobs in flight, or to be submitted again."""
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._on_status: Callable[[RingStatus], None] | None = None
        self._period_s = 1.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ring", daemon=True)
        self._held: list[Callable[[], None]] | None = None
        """Calls that wait until all that came is handled; None: they do not wait."""
        self._stood = False
        """Whether the ring ever stood: else the server cannot begin, and ends."""
        self.begun_again = 0
        """Requests that were begun again after their source was lost."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and, if it is ours, the ring; jobs end with an error."""
        self._ending.set()
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._woken.close()
        self._waker.close()

    def submit(self, job: Job) -> None:
        """Begin a job as soon as the ring stands."""
        self._new.append(job)
        self._wake()

    def cancel(self, job: Job) -> None:
        """End a job; one that has ended is left alone."""
        self._cancelled.append(job)
        self._wake()

    def place(self, placement: Placement, reason: str, on_end: Answered) -> None:
        """Ask for another placement; `on_end` is called in the event loop."""
        self._places.append(_Place(placement, reason, on_end))
        self._wake()

    def withdrawn(self) -> list[Job]:
        """Jobs that the thread has not seen yet, which are no longer the ring's."""
        return list(_emptied(self._new))

    def watch(self, on_status: Callable[[RingStatus], None] | None, period_s: float) -> None:
        """Be told how the ring is, in the event loop, every `period_s` seconds; None: no longer."""
        self._on_status, self._period_s = on_status, period_s
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it has not read what wakes it anyway, or has ended
            self._waker.send(b"\0")

    # What follows runs in the thread.

    def _run(self) -> None:
        error: PartcError | None = None
        try:
            self._open_until_ended()
        except PartcError as failure:
            error = failure
        except BaseException as failure:
            error = RunError(f"{type(failure).__name__}: {failure}", cause="bug")
            error.__cause__ = failure
        self._tell_state("ended", error)
        self._give_back(error or RunError("the server ends", cause="lost-peer"))

    def _open_until_ended(self) -> None:
        """Open the ring, and again whenever it cannot come back; raises what kept it from ever standing."""
        pause = _AGAIN_S
        while not self._ending.is_set():
            try:
                with self._opener() as opened:
                    while not self._ending.is_set():
                        self._life(opened)
            except _NotBack as failure:
                reason = failure.error
            except RunError as failure:
                if not self._stood:
                    raise
                reason = failure
            else:
                return
            note(f"{reason.message}; the ring is opened again")
            self._tell_state("lost", reason)
            self._give_back(reason)
            self._ending.wait(pause)
            pause = min(2 * pause, _MOST_PAUSE_S)

    def _life(self, opened: Opened) -> None:
        """One connection to the ring, from its beginning to its break.

        Raises:
            _NotBack: the ring will not come back.
        """
        client = self._connected(opened)
        if client is None:
            return
        with closing(client):
            client.wake_on(self._woken)
            self._stood = True
            self._tell_state("ready", None)
            try:
                with self._beside(client):
                    self._serve(client, opened)
            except RunError as error:
                if not _is_loss(error):
                    raise
                note(f"{error.where or 'ring'}: {error.message}")
                self._settle()
                self._tell_state("lost", error)
                self._give_back(error)

    def _connected(self, opened: Opened) -> Client | None:
        """A connection; None where the server ends before there is one. Raises as `_life`."""
        told = False
        while not self._ending.is_set():
            self._check(opened)
            try:
                return opened.connect()
            except RunError as error:
                if not _is_loss(error):
                    raise
                if not told:
                    note(f"{error.message}; trying again")
                    told = True
            self._ending.wait(_AGAIN_S)
        return None

    def _check(self, opened: Opened) -> None:
        if self._stood and (failure := opened.failure()) is not None:
            raise _NotBack(failure)

    def _give_back(self, reason: PartcError) -> None:
        """The ring is out of reach: the owner gets what may begin there or elsewhere; the rest ends."""
        self._take_new()
        for place in _emptied(self._places):
            self._call(place.on_end, reason)
        for job in self._jobs:
            if self._ending.is_set() and job.request is not None:
                job.lives -= 1  # the ring was not lost: its requests may begin again however often they did
            if job.request is None and not job.is_cancelled:
                self._call(self._owner.job_waits, self, job, reason)
            elif job.finish:
                self._end(job, _complete(job))
            elif _may_begin_again(job):
                job.request = None
                self.begun_again += 1
                self._call(self._owner.job_waits, self, job, reason)
            else:
                self._end(job, reason)
        self._jobs = []

    def _serve(self, client: Client, opened: Opened) -> None:
        """Submit and listen until the server ends.

        Raises:
            RunError: the connection to the ring is lost.
            _NotBack: the ring will not come back.
        """
        watching: _Watching = None
        while not self._ending.is_set():
            watching = self._watch(client, watching)
            self._obey(client)
            self._listen(client)
            self._drain()
            self._settle()
            self._check(opened)
        for job in self._jobs:
            if job.request is not None and not job.request.done:
                job.request.cancel()

    def _listen(self, client: Client) -> None:
        """Handle what comes. A bug in what belongs to one request has ended that one, and the others go on.

        The event loop is woken once for all of it: that takes longer than what it does with a token.
        """
        self._held = []
        try:
            client.listen(_LISTEN_S)
        except PartcError:
            raise
        except Exception:
            if not any(job.request is not None and job.request.done for job in self._jobs):
                raise
            traceback.print_exc()
        finally:
            held, self._held = self._held, None
            if held:
                self._call(_call_each, held)

    def _watch(self, client: Client, watching: _Watching) -> _Watching:
        period_s = None if self._on_status is None else self._period_s
        if period_s == (None if watching is None else watching[1]):
            return watching
        # First the new one: the source forgets what it knows when nobody watches.
        wanted = None if period_s is None else (client.watch(period_s, self._tell_status), period_s)
        if watching is not None:
            client.unwatch(watching[0])
        return wanted

    def _take_new(self) -> None:
        self._jobs += _emptied(self._new)
        for job in _emptied(self._cancelled):
            job.is_cancelled = True
            if job.request is not None and not job.request.done:
                job.request.cancel()

    def _obey(self, client: Client) -> None:
        self._take_new()
        for place in _emptied(self._places):
            client.place(place.placement, partial(self._call, place.on_end), place.reason)
        for job in [job for job in self._jobs if job.request is None]:
            self._begin(job, client)

    def _begin(self, job: Job, client: Client) -> None:
        if job.is_cancelled:
            self._jobs.remove(job)
            self._end(job, RunError("cancelled"))
            return
        job.lives += 1
        try:
            job.request = client.begin(job.query_now, lambda tokens: self._token(job, tokens))
        except PartcError as error:
            if _is_loss(error):
                job.lives -= 1  # it waits for the next connection
                raise
            self._jobs.remove(job)
            self._end(job, error)
        except Exception as error:
            traceback.print_exc()
            self._jobs.remove(job)
            self._end(job, RunError(f"the request could not be sent: {error!r}", cause="bug"))

    def _token(self, job: Job, tokens: Tokens) -> None:
        (token,) = tokens.tokens
        if token is not None and not job.is_cancelled:
            job.tokens.append(token)
            self._call(job.on_token, token, tokens.likely[0] if tokens.likely else ())

    def _settle(self) -> None:
        """Take the ends of jobs; those whose source was lost are kept, to begin again, once."""
        for job in list(self._jobs):
            outcome = None if job.request is None else job.request.outcome
            if outcome is None:
                continue
            if isinstance(outcome, Result) or job.finish:
                self._jobs.remove(job)
                self._end(job, outcome if isinstance(outcome, Result) else _complete(job))
            elif _is_source_lost(outcome) and _may_begin_again(job):
                job.request = None
                self.begun_again += 1
            else:
                self._jobs.remove(job)
                self._end(job, outcome)

    def _end(self, job: Job, outcome: Result | PartcError) -> None:
        self._call(self._owner.job_ended, job, outcome)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass

    def _tell_state(self, state: State, error: PartcError | None) -> None:
        self._call(self._owner.ring_is, self, state, error)

    def _tell_status(self, ring: RingStatus) -> None:
        if (on_status := self._on_status) is not None:
            self._call(on_status, ring)

    def _call(self, function: Callable[..., None], *values: object) -> None:
        """Call it in the event loop."""
        if self._held is not None:
            self._held.append(partial(function, *values))
            return
        with contextlib.suppress(RuntimeError):  # the event loop has ended, and nobody waits any more
            self._loop.call_soon_threadsafe(function, *values)


def _call_each(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


def _emptied(queue: deque[_T]) -> Iterator[_T]:
    """Everything that a queue has; another thread may take from it as well."""
    with contextlib.suppress(IndexError):
        while True:
            yield queue.popleft()


def _is_loss(error: PartcError) -> bool:
    """Whether another connection may be better."""
    return isinstance(error, RunError) and error.cause in ("lost-peer", "stalled")


def _is_source_lost(outcome: PartcError) -> bool:
    return isinstance(outcome, RunError) and outcome.cause == "lost-peer"


def _may_begin_again(job: Job) -> bool:
    return not (job.is_cancelled or job.lives > 1)


def _complete(job: Job) -> Result:
    """The result of a request whose ring was lost between its last token and its end."""
    return Result(
        prompts=[job.prompt], tokens=[job.tokens], texts=[], finish=[job.finish], outputs={}, elapsed_s=0.0, timings={},
        trace=[],
    )  # fmt: skip
