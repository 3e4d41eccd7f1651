"""The work that the planner may do: counted in operations, so that a plan is the same on every machine.

An operation is a step of an inner loop over numbers; 3e8 of them take about a second. Every search counts what
it does and stops by its count. The clock is an emergency brake for machines that are much slower or busy: only
where it acts (`Solution.method` says so) may two runs differ.

| limit | operations | reason |
|---|---|---|
| `THOROUGH.programme` | 3e9 | ten seconds; beyond, prices and local search are better in the same time |
| `THOROUGH.search` | 1.4e10 | a minute with the above: 64 devices x 1000 sub-modules come within 5 % of their bound |
| `QUESTION.programme` | 1e8 | a third of a second: an explanation asks some forty questions |
| `QUESTION.search` | 1e9 | three seconds at most; most residual problems are proven in a tenth of that |
| `QUICK.programme` | 1e8 | as for a question: a bound, without looking for a better plan |
| `QUICK.search` | 6e8 | two seconds, for the bound of a baseline's plan |
| `THOROUGH.returns` | 3e9 | ten seconds more for plans that return: 38 sub-modules on three tight devices take three |
| `QUESTION.returns` | 1e8 | a third of a second: most bounds meet with the first prices |
| `QUICK.returns` | 2e7 | prices alone |
| `WHAT_IFS` | 2e9 | dynamic programmes of all changes that are asked about: some seven seconds |
| `ALL_QUESTIONS` | 4e9 | everything that an explanation asks, searches included: twice that |
| `EDGESHARD` | 8e9 | ten seconds and less than 1 GB for a recurrence that has to go through all sets |
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

CALL = 2000.0
"""Operations that take as long as calling numpy."""
WHAT_IFS = 2e9
ALL_QUESTIONS = 4e9
EDGESHARD = 8e9


@dataclass(frozen=True)
class Effort:
    """The limits of one solve."""

    programme: float
    """Operations that the dynamic programme over sets of devices may take; where it needs more, it is not begun."""
    search: float
    """Operations of everything else: branch and bound, or prices and local search."""
    limit_s: float
    """The brake: several times what the operations take on a machine of today."""
    proves: bool = True
    """Whether it goes on from a good plan and a bound until they meet."""
    rounds: int = 400
    """Rounds of better prices."""
    shakes: int = 60
    """Disturbed copies of the best order that local search starts from."""
    returns: float = 3e9
    """Operations of the search for plans that return to a device, once the best one with one interval each is known."""


THOROUGH = Effort(3e9, 1.4e10, 110.0)
QUESTION = Effort(1e8, 1e9, 10.0, returns=1e8)
QUICK = Effort(1e8, 6e8, 10.0, proves=False, rounds=60, shakes=2, returns=2e7)


class WorkSpent(Exception):
    """A search has come to the end of its work, or of its time, before it found anything."""


class NothingFound(Exception):
    """A search has done all it can and found no plan, which does not say that there is none."""


GAVE_UP = (WorkSpent, NothingFound, MemoryError)
"""The ways in which a search may end without a result, so that another takes over. Anything else is a bug of ours."""


class Budget:
    """Operations that are left to a search; what is spent of a part is spent of the whole."""

    def __init__(
        self, operations: float = math.inf, limit_s: float = math.inf, whole: Budget | None = None
    ) -> None:
        """`limit_s`: from now on until the brake."""
        self.left = operations
        self.braked = False
        """Whether the clock, and not the count, ended it or a part of it."""
        self._deadline = time.monotonic() + limit_s
        self._whole = whole

    def part(self, share: float, *, share_time: bool = False) -> Budget:
        """A part of the operations that are left; with `share_time` of the time until the brake, too."""
        seconds = self._deadline - time.monotonic()
        limit_s = max(0.0, seconds) * (share if share_time else 1.0)
        return Budget(share * max(0.0, self.left), limit_s, self)

    def spend(self, operations: float) -> None:
        """Counts work that is about to be done."""
        self.left -= operations
        if self._whole is not None:
            self._whole.spend(operations)

    @property
    def is_spent(self) -> bool:
        """Whether it is time to end."""
        if self.left <= 0:
            return True
        if time.monotonic() <= self._deadline:
            return False
        self._note_brake()
        return True

    def _note_brake(self) -> None:
        self.braked = True
        if self._whole is not None:
            self._whole._note_brake()
