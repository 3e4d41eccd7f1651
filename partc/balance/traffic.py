"""Traffic of a ring that serves: as many tokens are expected as came in the last minutes."""

from __future__ import annotations

from collections import deque

from partc.format.status import RingStatus

SPAN_S = 600.0
"""So far back tokens count, and so far ahead they are expected: a load of less is not worth a move."""


class Traffic:
    """Tokens that a ring has computed of late. Each step of a request is one."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._came: deque[tuple[float, int]] = deque()
        """When tokens were told, and how many."""
        self._total = 0
        self._told = (0, 0)
        """Epoch and steps of the last state: steps are counted anew in every epoch."""

    def expected(self, ring: RingStatus, now: float) -> int:
        """Tokens to expect behind this state; `now` is in seconds."""
        steps = ring.main_steps
        count = 0 if steps is None else steps.steps
        epoch, before = self._told
        self._told = ring.epoch, count
        self._add(count - before if ring.epoch == epoch and count >= before else count, now)
        return self._total

    def _add(self, tokens: int, now: float) -> None:
        self._came.append((now, tokens))
        self._total += tokens
        while now - self._came[0][0] > SPAN_S:
            self._total -= self._came.popleft()[1]
