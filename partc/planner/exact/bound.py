"""A lower bound on the cost of completing a plan, for every state at once.

For a latency this is EdgeShard's sum (section IV-A, Eq. 7-9) over a state with the set of devices in use,
which EdgeShard has for throughput alone (section IV-B, Eq. 12); for a throughput it is Eq. 12. Both are
turned round (from the end to the source), with differences that make them true bounds: the *set* is kept as
counts by type, so that memory is checked per interval and not along one remembered path, the source may hold
more than one sub-module, the message back to it is always part, and absent links and times are infinite. It
follows only one chain of messages (`Tables.path`): a residual message is left out, and so is the part of a
message that depends on how far back the sending interval reaches. Where nothing of the kind matters the bound
is exact, and its arg-min is an optimal plan.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from partc.planner.exact.objective import Objective
from partc.planner.exact.tables import Array, Tables
from partc.planner.model.effort import CALL, Budget, WorkSpent

Used = tuple[int, ...]
"""Members in use of each type."""

_MAX_KEPT = 5e7
"""Elements of the costs to go that are kept: 400 MB."""

_MAX_CACHED = 2.5e7
"""Elements of message tables that are kept."""


class Bound:
    """Least cost to go, by devices in use, type that holds the path's last value, and cut."""

    def __init__(
        self,
        tables: Tables,
        objective: Objective,
        budget: Budget | None = None,
    ) -> None:
        """Solves the dynamic programme.

        Raises:
            WorkSpent: the budget does not suffice.
        """
        self.tables = tables
        self.objective = objective
        self._stage = [objective.stage(tables, t) for t in range(len(tables.types))]
        self._path_bytes = self._bytes_along_path()
        n = tables.count
        self._next_on_path = np.where(tables.on_path & (np.array(tables.path_before) >= 0)[:, None], 1.0, 0.0)
        self._all_on_path = bool(tables.on_path[np.triu_indices(n + 1, 1)].all())
        self._messages: dict[tuple[int, int], Array | None] = {}
        self._to_go: dict[Used, Array] = {}
        self._solve(budget or Budget())

    def start(self) -> Array:
        """[c]: bound for the whole plan when the source holds [0, c)."""
        stage = self._stage[0][0] - (self.objective.per_device if self.objective.adds_up else 0.0)
        to_go = self.to_go((0,) * len(self.tables.types))[0]
        return np.where(
            np.isfinite(stage),
            self.objective.combine(np.where(np.isfinite(stage), stage, 0.0), to_go),
            np.inf,
        )

    def to_go(self, used: Used) -> Array:
        """[type that holds the path's last value, cut]: least cost of the rest."""
        return self._to_go[used]

    def _solve(self, budget: Budget) -> None:
        """Fills from the fullest set to the empty one: the rest behind a device has one more in use."""
        sets = sorted(
            itertools.product(*(range(size + 1) for size in self.tables.capacity)), key=sum, reverse=True
        )
        each = operations(self.tables.capacity, self.tables.count) / len(sets)
        for used in sets:
            if budget.is_spent:
                raise WorkSpent
            budget.spend(each)
            result = self._terminal(used)
            for kind, size in enumerate(self.tables.capacity):
                if used[kind] < size:
                    self._extend(result, kind, self._to_go[plus_one(used, kind)])
            self._to_go[used] = result

    def _terminal(self, used: Used) -> Array:
        result = np.full((len(self.tables.types), self.tables.count + 1), np.inf)
        if all(count >= least for count, least in zip(used, self.tables.least, strict=True)):
            result[:, -1] = self.objective.message(self.tables.return_seconds)
        return result

    def _extend(self, result: Array, kind: int, after: Array) -> None:
        """Minimum of `result` and placing the next interval on a device of type `kind`. O(T n^2)."""
        rest = self.objective.combine(self._stage[kind], after[kind][None, :])
        path = rest if self._all_on_path else np.where(self.tables.on_path, rest, np.inf)
        for holder in range(len(self.tables.types)):
            if (message := self._message(holder, kind)) is not None:
                np.minimum(
                    result[holder], self.objective.combine(path, message).min(axis=1), out=result[holder]
                )
            if not self._all_on_path:
                beside = self.objective.combine(self._stage[kind], after[holder][None, :])
                best = np.where(self.tables.on_path, np.inf, beside).min(axis=1)
                np.minimum(result[holder], best, out=result[holder])

    def _message(self, holder: int, kind: int) -> Array | None:
        """[b, c]: least cost of the path's message from `holder` to `kind`; kept where there is room."""
        if (holder, kind) in self._messages:
            return self._messages[holder, kind]
        message = self._new_message(holder, kind)
        if (len(self._messages) + 1) * (self.tables.count + 1) ** 2 <= _MAX_CACHED:
            self._messages[holder, kind] = message
        return message

    def _new_message(self, holder: int, kind: int) -> Array | None:
        link = self.tables.links[holder][kind]
        if link is None:
            # Before the path begins there is no message, hence no need of a link.
            return None if self.tables.path[0] == 0 else np.where(self._next_on_path > 0, np.inf, 0.0)
        weight = sum(self.tables.weights)
        seconds = link[0] * weight * self._next_on_path + link[1] * self._path_bytes
        return self.objective.message(seconds)

    def _bytes_along_path(self) -> Array:
        """[b, c]: weighted bytes that the path's last sub-module before b sends to [b, c)."""
        n, tables = self.tables.count, self.tables
        result = np.zeros((n + 1, n + 1))
        for cut in range(1, n):
            last = tables.path_before[cut]
            if last >= 0:
                for p, weight in enumerate(tables.weights):
                    result[cut] += weight * tables.traffic(p, last, last + 1, cut).bytes
        return np.where(tables.on_path, result, 0.0)


def operations(capacity: tuple[int, ...], count: int) -> float:
    """Operations of the dynamic programme for types of these sizes and `count` sub-modules.

    Infinite where its results would take too much memory.
    """
    states, kinds = math.prod(float(size + 1) for size in capacity), len(capacity)
    if states * kinds * (count + 1) > _MAX_KEPT:
        return math.inf
    return states * kinds**2 * ((count + 1) ** 2 / 2 + CALL)


def plus_one(used: Used, kind: int) -> Used:
    """One more device of a type in use."""
    return (*used[:kind], used[kind] + 1, *used[kind + 1 :])
