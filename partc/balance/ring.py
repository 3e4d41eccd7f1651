"""The balancer of a running ring: the states that it tells in, placements to ask for out."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from partc.balance.artifacts import Artifacts
from partc.balance.balancer import Balancer
from partc.balance.events import Back, Decision, Move, Moved, MovedByHand, Refused, Stay
from partc.balance.order import Order
from partc.balance.traffic import Traffic
from partc.balance.windows import Windows, stages_in
from partc.errors import PlanError
from partc.format.placement import Stages
from partc.format.status import RingStatus
from partc.planner.model.layers import Shape
from partc.planner.model.stages import devices_of


class RingBalancer:
    """Decides on the moves of one ring (`partc.balance.order.Decider`)."""

    def __init__(self, artifacts: Artifacts, *, goes_on: bool = False) -> None:
        """For the ring of a build; `goes_on`: requests come that nobody knows of yet."""
        self._artifacts = artifacts
        limits = {name: build.limits for name, build in artifacts.builds.items()}
        self._windows = Windows(limits)
        self._traffic = Traffic() if goes_on else None
        self._balancer = Balancer(artifacts.problem, artifacts.pieces)
        self._last: RingStatus | None = None
        self._moves = 0
        """Moves that were made for this balancer, since the last state."""

    def on_status(self, ring: RingStatus, now: float) -> Order | None:
        """Take a state of the ring; `now` is in seconds on one clock."""
        self._notice_others(ring, now)
        expected = 0 if self._traffic is None else self._traffic.expected(ring, now)
        window = self._windows.take(ring)
        if window is None:
            return None
        window = replace(window, remaining_tokens=max(window.remaining_tokens, expected))
        decision = self._balancer.on(window, now)
        if isinstance(decision, Stay):
            return None
        try:
            placement = self._artifacts.place(decision.stages)
        except PlanError as error:
            self.refused(error.message, now)
            return None
        what = moved_text(self._artifacts.shape, stages_in(ring), decision.stages)
        return Order(placement, f"{what}: {_reason(decision)}")

    def placed(self, seconds: float, now: float) -> None:
        """The last order is in force, after so many seconds."""
        self._moves += 1
        self._balancer.on(Moved(seconds), now)

    def refused(self, reason: str, now: float) -> None:
        """The last order will not be in force."""
        self._balancer.on(Refused(reason), now)

    def _notice_others(self, ring: RingStatus, now: float) -> None:
        """Whether somebody else has moved something since the last state."""
        last, self._last = self._last, ring
        own, self._moves = self._moves, 0
        if last is not None and ring.moves > last.moves + own:
            self._balancer.on(MovedByHand(stages_in(last), stages_in(ring)), now)


def moved_text(shape: Shape, before: Stages, after: Stages) -> str:
    """The difference of two placements: `layers 4-5 from phone to board`."""
    pairs = zip(devices_of(before), devices_of(after), strict=True)
    runs = [
        ([place for place, _ in run], here, there)
        for (here, there), run in groupby(enumerate(pairs), key=lambda item: item[1])
        if here != there
    ]
    return ", ".join(f"{shape.describe(run)} from {here} to {there}" for run, here, there in runs)


def _reason(decision: Decision) -> str:
    match decision:
        case Move(reason=reason) if decision.gain > 0:
            return f"{reason}, {decision.gain:.0%} less"
        case Move(reason=reason) | Back(reason=reason) | Stay(reason=reason):
            return reason
