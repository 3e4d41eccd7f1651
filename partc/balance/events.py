"""Events and decisions of the balancer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from partc.balance.speeds import LINKS, Seconds
from partc.format.placement import Stages


@dataclass(frozen=True)
class Window:
    """`WINDOW_STEPS` steps of a ring under one placement (`partc.format.status`)."""

    stages: Stages
    """The placement in force, in sub-modules of the plan."""
    step_s: float
    """Seconds from one token of a request to the next: the median."""
    compute_s: Mapping[str, float]
    """Device → seconds that it computes in a step: the median."""
    remaining_tokens: float
    """Tokens that are expected still."""
    fixed_s: float = 0.0
    """Seconds of a step that no placement changes: the choice of tokens."""
    requests: int = 1
    """Requests in flight; a step of one of several also waits for the others."""
    free_bytes: Mapping[str, float] = field(default_factory=dict)
    """Device → bytes that it can take besides what it has taken; absent where it does not tell."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Device → the limit that it has reached, in words and numbers: `battery 28% (limit 30%)`."""

    @property
    def seconds(self) -> Seconds:
        """The seconds of every device, and of the links where they can be told from waiting for other requests."""
        rest = self.step_s - self.fixed_s - sum(self.compute_s.values())
        return {**self.compute_s, **({LINKS: max(0.0, rest)} if self.requests <= 1 else {})}


@dataclass(frozen=True)
class Moved:
    """The placement that was decided is in force."""

    cost_s: float
    """Seconds that the move cost: loading, and standing still."""


@dataclass(frozen=True)
class Refused:
    """The placement that was decided will not be in force."""

    reason: str


@dataclass(frozen=True)
class MovedByHand:
    """Somebody else has moved something."""

    before: Stages
    after: Stages


Event = Window | Moved | MovedByHand | Refused


@dataclass(frozen=True)
class Stay:
    """Nothing is to be done."""

    reason: str


@dataclass(frozen=True)
class Move:
    """Another placement is to be in force."""

    stages: Stages
    before_s: float
    """Seconds per token without it, by the plan with measured times."""
    after_s: float
    """Seconds per token with it."""
    reason: str

    @property
    def gain(self) -> float:
        """The part of the time per token that it saves; below 0 where a limit costs time."""
        return 1 - self.after_s / self.before_s


@dataclass(frozen=True)
class Back:
    """The placement before the last move is to be in force again."""

    stages: Stages
    reason: str


Decision = Stay | Move | Back
