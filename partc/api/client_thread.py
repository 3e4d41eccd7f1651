"""The thread that holds a ring open and owns its client; any other thread may send requests by it.

Runners on this machine end with the thread that started them (`partc.runtime.client.launch`), so it starts them, too.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from partc.errors import PartcError, RunError
from partc.runtime.client.client import Client
from partc.runtime.client.query import Query
from partc.runtime.client.request import Request
from partc.runtime.client.results import Result, Tokens

_LISTEN_S = 1.0


@dataclass(eq=False)
class Flight:
    """A request on its way."""

    query: Query
    on_token: Callable[[Tokens], None]
    """Called on the client's thread with the tokens of every step; must not raise."""
    outcome: Future[Result] = field(default_factory=Future)
    request: Request | None = None
    """The client's request; None before the thread has sent it."""
    is_cancelled: bool = False


class ClientThread:
    """A client on a thread of its own, from `start` to `close`."""

    def __init__(self, opened: AbstractContextManager[Client]) -> None:
        """Open nothing yet: `start` enters the context `opened`, on the new thread."""
        self._context = opened
        self._standing: Future[Client] = Future()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        """Guards the three below."""
        self._new: list[Flight] = []
        self._cancelled: list[Flight] = []
        self._error: PartcError | None = None
        """Why no request can be sent any more; None while they can be."""
        self._flying: list[Flight] = []
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="partc ring", daemon=True)

    def start(self) -> Client:
        """Open the ring and wait until it stands; of the client only `role` is for other threads.

        Raises:
            PartcError: it does not come to stand.
        """
        self._thread.start()
        try:
            return self._standing.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End requests in flight, the connection and what was started for it; waits until all that has ended."""
        self._ending.set()
        self._wake()
        self._thread.join()
        self._waker.close()
        self._woken.close()

    def submit(self, query: Query, on_token: Callable[[Tokens], None]) -> Flight:
        """Begin a request; what is wrong with it is the exception of its outcome."""
        flight = Flight(query, on_token)
        flight.outcome.set_running_or_notify_cancel()  # it ends by `cancel` alone
        with self._lock:
            if self._error is None:
                self._new.append(flight)
            else:
                flight.outcome.set_exception(self._error)
        self._wake()
        return flight

    def cancel(self, flight: Flight) -> None:
        """Ask for the end of a request; its outcome is an exception then, if it has not ended yet."""
        with self._lock:
            flight.is_cancelled = True
            self._cancelled.append(flight)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it has been woken already, or has ended
            self._waker.send(b"\0")

    def _run(self) -> None:
        error: PartcError = RunError(
            "the ring is closed", hint="open another: with partc.Ring(build) as ring: …"
        )
        try:
            with self._context as client:
                client.wake_on(self._woken)
                self._standing.set_result(client)
                self._serve(client)
        except PartcError as raised:
            error = raised
        except BaseException as raised:
            error = RunError(f"the client of the ring ended: {raised!r}", cause="bug")
            error.__cause__ = raised
        with self._lock:
            self._error = error
            left = [*self._flying, *self._new]
        for outcome in [flight.outcome for flight in left]:
            outcome.set_exception(error)
        if not self._standing.done():
            self._standing.set_exception(error)

    def _serve(self, client: Client) -> None:
        while not self._ending.is_set():
            self._obey(client)
            client.listen(_LISTEN_S)
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            self._settle()

    def _obey(self, client: Client) -> None:
        with self._lock:
            new, self._new = self._new, []
            cancelled, self._cancelled = self._cancelled, []
        for flight in new:
            try:
                flight.request = client.begin(flight.query, flight.on_token)
            except PartcError as error:
                flight.outcome.set_exception(error)
            except Exception as raised:  # others go on, whatever is wrong with this one
                bug = RunError(f"the request could not be begun: {raised!r}", cause="bug")
                bug.__cause__ = raised
                flight.outcome.set_exception(bug)
            else:
                self._flying.append(flight)
        for flight in cancelled:
            if flight.request is not None and not flight.request.done:
                flight.request.cancel()

    def _settle(self) -> None:
        """Tell the outcome of requests that have ended."""
        flying, self._flying = self._flying, []
        for flight in flying:
            outcome = None if flight.request is None else flight.request.outcome
            if outcome is None:
                self._flying.append(flight)
            elif isinstance(outcome, Result):
                flight.outcome.set_result(outcome)
            else:
                flight.outcome.set_exception(outcome)
