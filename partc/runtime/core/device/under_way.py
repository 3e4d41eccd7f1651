"""The steps of one request that are under way on a device, in their order.

Mostly there is one. A step that begins with a guess does so while the one before is still on its way round the ring:
then there are several. None overtakes an earlier one at any instruction of their program: what they wait for comes over
links that keep the order, and of those that can go on the earliest does. So every sub-module sees its rows in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from partc.format.program import REPLAY
from partc.runtime.core.device.execution import Execution
from partc.runtime.core.step import Step

TOKEN_PHASES = ("decode", REPLAY)
"""Phases of steps that take one token."""


@dataclass(slots=True)
class UnderWay:
    """Executions of the steps of a request, the earliest first."""

    _executions: deque[Execution] = field(default_factory=deque)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._executions)

    def __iter__(self) -> Iterator[Execution]:
        """The earliest first."""
        return iter(self._executions)

    @property
    def tokens(self) -> int:
        """Steps of the request that are over with them."""
        return sum([each.tokens for each in self._executions])

    @property
    def first(self) -> Execution | None:
        """The earliest."""
        return self._executions[0] if self._executions else None

    def of(self, step: int) -> Execution | None:
        """That of a step, if it is under way; O(steps under way)."""
        return next((each for each in self._executions if each.step.step == step), None)

    def takes(self, step: Step) -> bool:
        """Whether a step may begin now: all before it are over, or it takes a token behind others of its request alone.

        Steps that are computed again come one after the other: nothing is won where all their tokens are known.
        """
        if not self._executions:
            return True
        last = self._executions[-1].step
        return step.phase == last.phase == "decode" and not (step.others or last.others)

    def add(self, execution: Execution) -> None:
        """The next step begins."""
        self._executions.append(execution)

    def able(self) -> Execution | None:
        """The earliest that can go on; O(steps under way)."""
        return next((each for each in self._executions if each.can_go_on), None)

    def end_first(self) -> Execution:
        """The earliest is over."""
        return self._executions.popleft()

    def drop(self, first: int = 0) -> None:
        """Nothing will follow from any of them, from a step on; one that has taken it behind its own goes on."""
        while self._executions and self._executions[-1].step.step >= first:
            self._executions.pop().drop()
        if self._executions:
            last = self._executions[-1]
            last.tokens = min(last.tokens, first - last.step.step)
