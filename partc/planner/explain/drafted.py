"""The time of a token where some are guessed: (1 - g) · lap + g · max(slowest stage, lap / W).

A lone request leaves all devices but one idle; the source then begins steps with guessed tokens
(`partc/runtime/core/source/guessing.py`). `g` is the share of tokens whose guess was right, and `W` the steps that may
be under way. g = 0 is EdgeShard's latency (Eq. 4 to 6), g = 1 its time without bubbles (Eq. 10), which is that of a
pipeline full of requests.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from partc.config.units import format_seconds
from partc.format.plan import Predicted
from partc.planner.model.problem import Problem
from partc.runtime.core.step import MOST_GUESSED

SHARES = (0.1, 0.3, 1.0)
"""Shares of tokens for which a plan says its time: ordinary text, structured text, copies."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a ring that one request has for itself, seconds."""

    lap_s: float
    """From a token to the next."""
    slowest_s: float
    """The time for which a step occupies the busiest device or link."""

    @property
    def room(self) -> int:
        """Steps that may be under way at once (W)."""
        most = 1 + MOST_GUESSED
        return max(1, min(most, int(self.lap_s / self.slowest_s))) if self.slowest_s else most

    def token_s(self, share: float) -> float:
        """Seconds of a token where such a share is guessed right."""
        return (1.0 - share) * self.lap_s + share * max(self.slowest_s, self.lap_s / self.room)


def pace_of(problem: Problem, predicted: Predicted) -> Pace | None:
    """The pace of a plan; None where it generates nothing, or on one device.

    A link is busy while it sends: the latency that follows keeps nobody from sending the next message.
    """
    decode = next((each for each in predicted.phases if each.phase == "decode"), None)
    if decode is None or len({run.device for run in decode.stages}) < 2:
        return None
    busy: dict[str, float] = defaultdict(float)
    for run in decode.stages:
        busy[run.device] += run.seconds
    for message in decode.messages:
        link = problem.link_of[message.sender, message.receiver]
        busy[f"{message.sender}->{message.receiver}"] += message.bytes / link.bandwidth_bytes_per_s
    return Pace(decode.latency_s, max(busy.values()))


def drafted_text(pace: Pace) -> str:
    """A sentence about the gain of guesses."""
    tenth, third, all_of_them = (format_seconds(pace.token_s(share)) for share in SHARES)
    return (
        f"with drafts: {tenth} per token where a tenth of the tokens is guessed right, {third} at three tenths, "
        f"{all_of_them} where the answer is a copy"
    )
