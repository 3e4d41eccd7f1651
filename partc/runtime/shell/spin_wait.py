"""Being awake when a message comes.

A core that nobody uses falls asleep, and a virtual machine gives it away: a message that wakes it, and the two threads
that it passes through, takes 0.1-0.2 ms longer. But from token to token a device waits about as long as it did before.
So it sleeps through the first part of a wait only, and spends the rest looking, giving way to whoever else wants the
core. It looks for no longer than a wait usually takes, and not at all while there is no request.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

_give_way: Callable[[], None] = getattr(os, "sched_yield", partial(time.sleep, 0))
_ASLEEP = 0.7
"""The part of a usual wait that is slept through: waits differ by a tenth or two."""
_LOOKED_FOR = 1.5
"""After how many usual waits it goes to sleep again."""
_LONGEST_S = 0.01
"""Longer waits are slept through: what could be won is a small part of them, and who looks takes something from whoever
computes beside it (1.1B parameters cut in two, waits of 20 ms: a hop 0.2 ms shorter, computing 2 ms longer)."""


class SpinWait(Generic[T]):
    """The length of a device's waits, and the decision for the next one."""

    def __init__(
        self, poll: Callable[[float | None], Sequence[T]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing was waited for yet; `poll` sleeps until something happens, for so many seconds at most."""
        self._poll = poll
        self._clock = clock
        self._began = clock()
        self._usual_s = 0.0

    def begin(self) -> None:
        """There is nothing left to do."""
        self._began = self._clock()

    def end(self) -> None:
        """There is something to do again."""
        waited = self._clock() - self._began
        self._usual_s = waited if waited < _LONGEST_S else 0.0

    def wait(self, timeout_s: float | None) -> Sequence[T]:
        """The events that `poll` finds; perhaps none before the time is over."""
        now = self._clock()
        wake, doze = self._began + _ASLEEP * self._usual_s, self._began + _LOOKED_FOR * self._usual_s
        if now >= doze:
            return self._poll(timeout_s)
        end = doze if timeout_s is None else min(doze, now + timeout_s)
        # Polling knows milliseconds.
        asleep_s = math.floor(1000 * (min(wake, end) - now)) / 1000
        found = self._poll(asleep_s) if asleep_s > 0 else ()
        while not found and self._clock() < end:
            found = self._poll(0.0)
            if not found:
                _give_way()
        return found
