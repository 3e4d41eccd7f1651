"""The result of a simulation, and its JSON.

```
{"mode": "no-bubbles", "requests": 4, "tokens": 96, "batch": 1, "makespan_s", "tokens_per_s", "first_token_s", "pace_s",
 "limit":     {"name": device or "a->b", "s_per_token"},
 "busy":      {device or "a->b": fraction of the makespan},
 "token_s":   [[seconds of each token] of each request],
 "spans":     [{"device", "request", "phase", "step", "stage", "start_s", "end_s"}],
 "transfers": [{"from", "to", "request", "phase", "step", "bytes", "start_s", "end_s"}]}
```

Of a request with guesses `mode` is "guesses", `"drafted": {"guessed", "right", "share", "rows_per_token"}` counts them,
and spans of steps that began with one have `"guess": "right"` or "void".
All times are seconds; requests come at 0, or at `arrivals_s`, which is there where they do not. Requests, steps and
stages count from 0. A request of `batch` sequences counts as one: it makes `batch` tokens wherever one is counted here.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Literal

from partc.runtime.client.results import GuessCounts

GUESSES = "guesses"
"""The mode of one request that is alone, with guessed tokens."""
Guess = Literal["", "right", "void"]
"""What became of a step that began with a guess; "": it did not."""
MODES = ("sequential", "bubbles", "no-bubbles")
"""One request after the other; all finish a token before any begins the next; each goes on at once."""


@dataclass(frozen=True, slots=True)
class Span:
    """One run of one stage on its device."""

    device: str
    request: int
    phase: str
    step: int
    """0 is the first token's."""
    stage: int
    """Index of the interval in the plan's timeline."""
    start_s: float
    end_s: float
    guess: Guess = ""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message on its link; before `start_s` it may have waited for those of other requests."""

    sender: str
    receiver: str
    request: int
    phase: str
    step: int
    bytes: float
    start_s: float
    end_s: float
    free_s: float
    """The time from which the link may carry the next one: `end_s`, or earlier where latency occupies nothing."""


@dataclass(frozen=True)
class Limit:
    """The device or link that is busy longest for a token: no pipeline makes tokens faster."""

    name: str
    s_per_token: float


@dataclass(frozen=True)
class Simulation:
    """Everything that happened until the last token came out."""

    mode: str
    spans: tuple[Span, ...]
    """In the order of their starts."""
    transfers: tuple[Transfer, ...]
    """In the order in which they were sent."""
    token_s: tuple[tuple[float, ...], ...]
    """The time at which the source emitted each token of each request."""
    limit: Limit
    batch: int = 1
    """Sequences of a request."""
    arrivals_s: tuple[float, ...] = ()
    """The time at which each request came; empty: all at 0."""
    drafted: GuessCounts | None = None
    """None: no tokens were guessed."""

    @property
    def makespan_s(self) -> float:
        """The time at which the last token was emitted."""
        return max(times[-1] for times in self.token_s)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all requests over the makespan, one for each step; `batch` times as many come out."""
        # A run that takes no time at all still has a finite rate, so that it can be written as JSON.
        rate = sum(map(len, self.token_s)) / max(self.makespan_s, sys.float_info.min)
        return min(rate, sys.float_info.max)

    @property
    def first_token_s(self) -> float:
        """Mean time from the arrival of a request to its first token."""
        came = self.arrivals_s or (0.0,) * len(self.token_s)
        return fmean(times[0] - start for times, start in zip(self.token_s, came, strict=True))

    @property
    def pace_s(self) -> float | None:
        """Mean time between two tokens of one request; None where each makes one only."""
        steps = len(self.token_s[0]) - 1
        return fmean((times[-1] - times[0]) / steps for times in self.token_s) if steps else None

    @property
    def busy(self) -> dict[str, float]:
        """Device or link (`a->b`) -> fraction of the makespan in which it had something to do."""
        busy: dict[str, list[tuple[float, float]]] = {}
        for span in self.spans:
            busy.setdefault(span.device, []).append((span.start_s, span.end_s))
        for item in self.transfers:
            busy.setdefault(f"{item.sender}->{item.receiver}", []).append((item.start_s, item.free_s))
        end = self.makespan_s
        return {name: covered(times, end) / end if end else 0.0 for name, times in busy.items()}

    def to_json(self) -> dict[str, object]:
        """The JSON form above."""
        return {
            "mode": self.mode,
            "requests": len(self.token_s),
            "tokens": len(self.token_s[0]),
            "batch": self.batch,
            "makespan_s": self.makespan_s,
            "tokens_per_s": self.tokens_per_s,
            "first_token_s": self.first_token_s,
            "pace_s": self.pace_s,
            "limit": asdict(self.limit),
            "busy": self.busy,
            "token_s": [list(times) for times in self.token_s],
            "spans": [_span_json(span) for span in self.spans],
            "transfers": [_transfer_json(item) for item in self.transfers],
            **({"arrivals_s": list(self.arrivals_s)} if self.arrivals_s else {}),
            **self._drafted_json(),
        }

    def _drafted_json(self) -> dict[str, object]:
        if self.drafted is None:
            return {}
        names = ("guessed", "right", "share", "rows_per_token")
        return {"drafted": {name: getattr(self.drafted, name) for name in names}}


def _span_json(span: Span) -> dict[str, object]:
    fields = asdict(span)
    if not span.guess:
        del fields["guess"]
    return fields


def covered(times: list[tuple[float, float]], end: float) -> float:
    """Seconds before `end` that at least one of the spans of time covers; O(n log n)."""
    total = reached = 0.0
    for start, stop in sorted(times):
        begin, until = max(start, reached), min(stop, end)
        total += max(0.0, until - begin)
        reached = max(reached, stop)
    return total


def _transfer_json(item: Transfer) -> dict[str, object]:
    fields = asdict(item)
    del fields["free_s"]
    return {"from": fields.pop("sender"), "to": fields.pop("receiver"), **fields}
