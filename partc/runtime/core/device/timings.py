"""The times of a step on one device, and the table of them that a client gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from partc.format.dtypes import Array

_FIXED_COLUMNS = ("step", "started_s", "compute_s", "queue_s", "sent_bytes", "received_bytes", "epoch")


@dataclass(slots=True)
class Timing:
    """The times of one step on this device, seconds."""

    request: int
    step: int
    """The number of its token, from 0; the parts of a prompt have the same."""
    started_s: float = 0.0
    """On this device's clock."""
    compute_s: float = 0.0
    queue_s: float = 0.0
    """Ready, but another request was being computed."""
    sent_bytes: int = 0
    received_bytes: int = 0
    wait_s: dict[str, float] = field(default_factory=dict)
    """Peer → seconds in which this request could only wait for its message."""
    epoch: int = 0
    """Epoch of the placement under which it ran; of its last part, where these had several."""

    def add(self, later: Timing) -> None:
        """Count a later part of the same step as well."""
        self.compute_s += later.compute_s
        self.queue_s += later.queue_s
        self.sent_bytes += later.sent_bytes
        self.received_bytes += later.received_bytes
        self.epoch = max(self.epoch, later.epoch)
        for peer, seconds in later.wait_s.items():
            self.wait_s[peer] = self.wait_s.get(peer, 0.0) + seconds


def by_token(timing: Timing, count: int) -> list[Timing]:
    """The timings of the tokens that one step computed: all of it is the first one's, and the others came with that.

    So they add up, also where guesses are taken back.
    """
    others = [
        Timing(timing.request, timing.step + token, timing.started_s, epoch=timing.epoch)
        for token in range(1, count)
    ]
    return [timing, *others]


def whole_steps(timings: Iterable[Timing]) -> list[Timing]:
    """The timings of one request, those of the parts of its prompt as one."""
    found: dict[int, Timing] = {}
    for timing in timings:
        if timing.step not in found:
            found[timing.step] = Timing(timing.request, timing.step, timing.started_s)
        found[timing.step].add(timing)
    return list(found.values())


def timing_table(timings: Sequence[Timing]) -> tuple[list[str], Array]:
    """(columns, float64 table of steps x columns); the columns are fixed ones, then `wait_s:PEER`."""
    peers = sorted({peer for timing in timings for peer in timing.wait_s})
    columns = [*_FIXED_COLUMNS, *(f"wait_s:{peer}" for peer in peers)]
    rows = [
        [
            *(float(getattr(timing, name)) for name in _FIXED_COLUMNS),
            *(timing.wait_s.get(peer, 0.0) for peer in peers),
        ]
        for timing in timings
    ]
    return columns, np.array(rows, np.float64).reshape(len(rows), len(columns))
