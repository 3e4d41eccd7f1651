"""partc as it is used: runners on loopback, encrypted, and a client that asks them for tokens."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

from partc.runtime.client.launch import launch_local
from tests.bench.ring.requests import hop_times
from tests.bench.speed.clocks import Mark, Sample, now
from tests.bench.speed.engines.contract import CONTEXT, PROMPT
from tests.bench.speed.places import with_threads

PATIENCE_S = 60.0
"""A busy machine lets a runner wait; it is not gone then."""


class Ring:
    """Processes of this machine, one a device; a client in this process."""

    def __init__(self, build: Path) -> None:
        self._ring = launch_local(build, floor_s=PATIENCE_S)
        self._client = self._ring.client()
        self._pids = list(self._ring.pids.values())
        self._seed = 0

    def prefill(self) -> Sample:
        """See `Engine`; from the submission to the first token."""
        began = now(self._pids)
        self._client.generate(self._tokens(PROMPT), 1)
        return began.until(now(self._pids))

    def decode(self, steps: int, context: int) -> Sample:
        """See `Engine`; around that context, between the first and the last token that the client gets.

        This is the mean: a client that wakes up late gets two tokens at once, so that single steps say little.
        """
        marks: list[Mark] = []
        self._submit(steps, marks, context).result()
        return marks[0].until(marks[-1]).per(steps)

    def pair(self, steps: int) -> Sample:
        """The time of a token while two requests are in flight, each of so many steps."""
        both: tuple[list[Mark], list[Mark]] = ([], [])
        for request in [self._submit(steps, marks) for marks in both]:
            request.result()
        start = max((marks[0] for marks in both), key=lambda mark: mark.wall_s)
        end = min((marks[-1] for marks in both), key=lambda mark: mark.wall_s)
        within = [mark for mark in (*both[0], *both[1]) if start.wall_s < mark.wall_s <= end.wall_s]
        return start.until(end).per(len(within))

    def hop(self, steps: int) -> Sample:
        """The time between one device's computing and the next one's: the median of so many tokens."""
        result = self._submit(steps, []).result()
        return Sample(statistics.median(hop_times(result, self._client.role.ring)), 0.0)

    def close(self) -> None:
        """End the processes."""
        self._client.close()
        self._ring.close()

    def _submit(self, steps: int, marks: list[Mark], context: int = CONTEXT) -> Any:
        return self._client.submit(
            self._tokens(context - steps // 2),
            max_new_tokens=steps + 1,
            ignore_eos=True,
            on_token=lambda _: marks.append(now(self._pids)),
        )

    def _tokens(self, count: int) -> list[int]:
        """Others every time, so that nothing can be remembered."""
        self._seed += 1
        return random.Random(self._seed).choices(range(3, 32000), k=count)


def load(path: Path, threads: int, processes: int) -> Ring:
    """See the table of contestants."""
    return Ring(path if threads == 1 else with_threads(path, threads))
