"""A second thread that works the loop while the first one computes or loads.

The loop must answer handshakes, acknowledgements and pings at any time, and a step of a large model takes seconds. A
worker for computing would do, but every step would pass through two threads then, which costs more than a small step
itself (a wake-up takes 50-100 µs on a machine whose cores sleep). So it is the other way round: the thread of the loop
computes, and while it does it lends the loop to this one, which looks after it every few milliseconds. Steps that are
shorter than that never meet it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_LOOK_S = 0.008
"""How often the loop is looked after; a message waits at most twice as long."""


class Standby:
    """Works a loop while its owner is away; the two never work it at once."""

    def __init__(self, turn: Callable[[], None]) -> None:
        """Begin; `turn` does what there is to do, without waiting."""
        self._turn = turn
        self._owned = threading.Lock()
        self._owned.acquire()
        self._away_since: float | None = None
        self._failure: BaseException | None = None
        self._busy = threading.Event()
        """Set while it may be needed at all, so that an idle device sleeps."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="standby", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """The owner leaves the loop to this thread.

        Raises:
            BaseException: what `turn` raised meanwhile; the loop was not looked after since then.
        """
        self._away_since = time.monotonic()
        self._busy.set()
        self._owned.release()
        try:
            yield
        finally:
            self._owned.acquire()
            self._away_since = None
        if self._failure is not None:
            raise self._failure

    def rest(self) -> None:
        """Nothing will be computed for a while."""
        self._busy.clear()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self._busy.set()
        self._thread.join()

    def _look_after(self) -> None:
        while self._busy.wait() and not self._ended.wait(_LOOK_S):
            since = self._away_since
            if since is None or time.monotonic() - since < _LOOK_S or not self._owned.acquire(blocking=False):
                continue
            try:
                if self._away_since is not None and self._failure is None:
                    self._turn()
            except BaseException as error:
                self._failure = error
            finally:
                self._owned.release()
