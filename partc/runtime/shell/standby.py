"""A second thread that works the loop while the first one computes or loads.

The loop must answer handshakes, acknowledgements and pings at any time, and a step of a large model takes seconds. A
worker for computing would do, but every step would pass through two threads then, which costs more than a small step
itself (a wake-up takes 50-100 µs on a machine whose cores sleep). So it is the other way round: the thread of the loop
computes, and lends the loop to this one, which works it whenever nobody has for 18 ms. Shorter steps never meet it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

_AWAY_S = 0.018
"""The time for which the loop goes without anybody: the promise is 20 ms."""


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

    def away(self) -> Self:
        """Leave the loop to this thread, as a context: its end takes the loop back.

        Raises:
            BaseException: at the end of the context, what `turn` raised; the loop was not worked since then.
        """
        self._away_since = time.monotonic()
        if not self._busy.is_set():
            self._busy.set()
        self._owned.release()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        worked = 0.0
        while not self._ended.is_set():
            self._busy.wait()
            since = self._away_since
            alone = time.monotonic() if since is None else max(since, worked)
            time.sleep(max(0.0, alone + _AWAY_S - time.monotonic()))
            # Steps that were over before cost no more than waking up here now and then.
            if since is not None and since == self._away_since and self._owned.acquire(blocking=False):
                self._work()
                worked = time.monotonic()

    def _work(self) -> None:
        try:
            if self._away_since is not None and self._failure is None:
                self._turn()
        except BaseException as error:
            self._failure = error
        finally:
            self._owned.release()
