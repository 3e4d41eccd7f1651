"""The time that changes of placement cost requests, by the clock of the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partc.format.messages import Placed
from partc.runtime.client.results import Timings


@dataclass(frozen=True, slots=True)
class Stall:
    """What a move cost the requests in flight."""

    gap_s: float
    """The longest time from the start of the last step before it to that of the first one after it."""
    usual_s: float
    """The usual time from step to step of that request."""
    stopped_s: float
    """Time for which requests stood still, as the source says."""
    steps: int
    """Steps that were computed again, of all requests."""


def stalls(moves: Sequence[Placed], timings: Sequence[Timings]) -> list[Stall]:
    """One for each move that some request lived through; `timings` are those of the source, of every request."""
    found = []
    for move in moves:
        gaps = [(gap, usual_s(table)) for table in timings if (gap := _gap_s(table, move.epoch))]
        if gaps:
            found.append(Stall(*max(gaps), move.stopped_s, move.steps))
    return found


def usual_s(timings: Timings, *, last_epoch: bool = False) -> float:
    """The median time from the start of a step to that of the next, of all or of those of the last epoch."""
    started, epoch = timings.column("started_s"), timings.column("epoch")
    chosen = started[epoch == epoch[-1]] if last_epoch else started
    return float(np.median(np.diff(chosen))) if len(chosen) > 1 else 0.0


def _gap_s(timings: Timings, epoch: int) -> float | None:
    """Seconds from the step before an epoch to the first one in it; None: the request was not there."""
    started, epochs = timings.column("started_s"), timings.column("epoch")
    first = int(np.searchsorted(epochs, epoch))
    if not 0 < first < len(epochs) or epochs[first] != epoch:
        return None
    return float(started[first] - started[first - 1])
