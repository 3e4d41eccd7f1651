"""A change of placement that is under way, and what the client is told that asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from partc.errors import PartcError
from partc.format.digests import canonical_json
from partc.format.message_parts import Problem
from partc.format.messages import Error, Placed, Prepared
from partc.format.placement import Placement, placement_json
from partc.format.role import Role
from partc.runtime.core.actions import Action, Adopt, Wish
from partc.runtime.core.commands import Send
from partc.runtime.core.liveness import Progress


@dataclass(slots=True)
class Change:
    """A change that is under way."""

    role: Role
    """The role of the source."""
    asked: Mapping[str, int]
    """Participant → its incarnation."""
    is_loss: bool
    wish: Wish | None
    heard: dict[str, Progress]
    """Participant → its last sign of life."""
    prepared: dict[str, Prepared] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """The epoch to come."""
        return self.role.epoch


def placed(adopt: Adopt, steps: int, now: float) -> Iterator[Action]:
    """Tell the client that its placement is in force; `steps` were computed again for that."""
    if adopt.wish is not None:
        yield Send(
            adopt.wish.origin,
            Placed(
                ticket=adopt.wish.ticket,
                epoch=adopt.role.epoch,
                seconds=now - adopt.wish.asked,
                stopped_s=adopt.stopped_s,
                steps=steps,
            ),
        )


def refusal(wish: Wish, error: PartcError) -> Send:
    """Tell the client that its placement will not be in force."""
    return Send(wish.origin, Error(ticket=wish.ticket, problem=Problem.of(error)))


def text_of_ring(placement: Placement) -> str:
    """The text of a placement's programs, which tell one placement from another whatever its epoch."""
    return canonical_json(placement_json(placement)["programs"])
