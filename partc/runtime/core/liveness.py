"""Patience: how long a step may go without progress before a device counts as gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEAST_PATIENCE_S = 5.0
"""The shortest time without progress after which a peer counts as gone, seconds."""
REJOIN_S = 60.0
"""The time that requests wait for a device that is lost, seconds."""
LINGER_S = 30.0
"""The time that a request goes on whose client is gone, seconds."""
MOST_S = 1e6
"""The longest time that a command line may ask for, seconds: half of it has a place in 32 bits of milliseconds."""
PLANNED_PROMPT_TOKENS = 32.0
"""The prompt that a prediction is for where the placement does not say, tokens."""
PATIENCE_FACTOR = 4.0
"""The multiple of a step's expected time that may pass before that."""
COMPUTING_FACTOR = 12.0
"""The multiple of the patience that a step may take while a device says that it computes: it is slow, and not gone."""


def patience_s(predicted_s: float, floor_s: float = LEAST_PATIENCE_S, slowest_s: float = 0.0) -> float:
    """Seconds that a step may go without progress: max(floor, 4 × predicted, 4 × the slowest so far)."""
    return max(floor_s, PATIENCE_FACTOR * predicted_s, PATIENCE_FACTOR * slowest_s)


def step_s(predicted: Mapping[str, float], phase: str, rows: int, tokens: int) -> float:
    """The predicted seconds of a step of `rows` sequences with `tokens` new tokens each.

    The prediction is for one sequence, and for a prompt as long as the workload's (`prefill_tokens`); a larger step
    takes at most in proportion longer, but for attention, which the factor of the patience covers.
    """
    planned = predicted.get("prefill_tokens", PLANNED_PROMPT_TOKENS) if phase == "prefill" else 1.0
    return predicted.get(f"{phase}_s", 0.0) * max(1.0, rows * tokens / max(1.0, planned))


def soonest(*dues: float | None) -> float | None:
    """The first of some times that may be none; None: there is none at all."""
    return min((due for due in dues if due is not None), default=None)


@dataclass(slots=True)
class Progress:
    """When something last moved, on a clock that the caller reads."""

    since: float
    """Seconds on the caller's clock."""

    def moved(self, now: float) -> None:
        """Something moved."""
        self.since = now

    def expires(self, patience: float) -> float:
        """When the patience ends, on the caller's clock."""
        return self.since + patience
