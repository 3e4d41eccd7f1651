"""The balancer beside a client: whoever holds a ring open watches it, asks for placements, and hears what came of them.

| who | how long it balances | tokens to come |
| --- | --- | --- |
| `partc run` | while it generates | those of its requests |
| `partc serve`, the door of a cluster | while the ring stands | as many as came lately: others ask, and will |
| `partc watch --balance` | while it watches | the same |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from partc.balance.homing import Homing
from partc.balance.order import Decider, Order
from partc.errors import PartcError, UserError
from partc.format.capabilities import facts_of
from partc.format.messages import Placed
from partc.format.placement import Placement
from partc.format.role import read_roles
from partc.format.status import RingStatus
from partc.planner.model.plan_file import PLAN_FILE, is_placed, read_plan
from partc.printable import note

LOOK_S = 0.5
"""Time between two states of the ring."""
PLACED_NOTE = "`place` in devices.yaml says where a ring begins; --no-balance keeps it there"

Outcome = Placed | PartcError
Tell = Callable[[Order, Outcome], None]
"""Called with every move that was asked for, and its end."""


class Ring(Protocol):
    """A connection to a running ring (`partc.runtime.client`)."""

    def watch(self, period_s: float, on_status: Callable[[RingStatus], None]) -> bytes:
        """Be told how the ring is, every `period_s` seconds; a ticket for `unwatch`."""

    def unwatch(self, ticket: bytes) -> None:
        """End what `watch` began."""

    def place(self, placement: Placement, on_end: Callable[[Outcome], None], reason: str) -> object:
        """Ask for another placement."""


@dataclass(frozen=True)
class Balancing:
    """The balancer of a build's rings."""

    begin: Callable[[], Decider]
    """Makes the one that decides, anew for each connection."""
    tell: Tell

    @contextmanager
    def beside(self, ring: Ring) -> Iterator[None]:
        """Balance a ring for as long as the block lasts, whenever its connection is listened to."""
        ticket = ring.watch(LOOK_S, partial(self._look, ring, self.begin()))
        try:
            yield
        finally:
            ring.unwatch(ticket)

    def _look(self, ring: Ring, decider: Decider, status: RingStatus) -> None:
        order = decider.on_status(status, time.monotonic())
        if order is not None:
            ring.place(order.placement, partial(self._answered, decider, order), reason=order.text)

    def _answered(self, decider: Decider, order: Order, outcome: Outcome) -> None:
        now = time.monotonic()
        if isinstance(outcome, PartcError):
            decider.refused(outcome.message, now)
        else:
            decider.placed(outcome.seconds, now)
        self.tell(order, outcome)


def read_balancing(build: Path, tell: Tell, *, goes_on: bool) -> Balancing | None:
    """The balancer of a build; None where nothing can move, or the build has no plan.

    Where devices share stages, it goes back to the plan when a device that was lost is there again, and moves nothing
    else. A damaged plan is noted, and no reason not to run.

    Args:
        build: its folder.
        tell: is told every move.
        goes_on: whether requests come that nobody knows of yet.
    """
    if not (build / PLAN_FILE).exists():
        return None
    try:
        roles = read_roles(build)
        facts = facts_of(roles)
        if facts.groups:
            return Balancing(partial(Homing, roles[facts.source].placement), tell) if facts.survives else None
        return _moving(build, tell, goes_on=goes_on) if facts.movable else None
    except UserError as error:
        note(f"nothing is balanced: {error}")
        return None


def _moving(build: Path, tell: Tell, *, goes_on: bool) -> Balancing:
    """The balancer of stages of one device each. The planner is slow to import, so it is where it is needed alone."""
    from partc.balance.artifacts import read_artifacts
    from partc.balance.ring import RingBalancer

    begin = partial(RingBalancer, read_artifacts(build), goes_on=goes_on)
    return Balancing(begin, _noted_once(tell) if is_placed(read_plan(build / PLAN_FILE)) else tell)


def note_refusal(order: Order, outcome: Outcome) -> None:
    """A note about a move that was refused; one that was made stands in the log, as every change of placement does."""
    if isinstance(outcome, PartcError):
        note(f"not moved: {order.text}: {outcome.message}")


def _noted_once(tell: Tell) -> Tell:
    """`tell`, and after the first move of a build that the user placed a note that `place` does not hold for moves."""
    notes = iter([PLACED_NOTE])

    def told(order: Order, outcome: Outcome) -> None:
        tell(order, outcome)
        if not isinstance(outcome, PartcError) and (text := next(notes, None)):
            note(text)

    return told
