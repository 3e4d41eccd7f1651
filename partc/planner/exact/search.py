"""Best-first branch and bound over exact prefixes of plans.

A label is a prefix: the cut reached, how many devices of each type are in use, and, of each interval that
still has something to send, its type, what it has to send, and when it finished in each phase. It is
extended by every next interval, and its cost is exact, residual messages and their lateness included.
`Bound` says what the rest costs at least, so that the search is A*: when the best label left is no better
than the best plan known, that plan is optimal.

Two labels with the same cut, devices in use and things to send differ only in when those are ready: one
that is later nowhere makes the other superfluous. The plan that follows the bound greedily is known from
the start; where no residual message binds it meets the bound, and nothing is searched.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from partc.planner.exact.bound import Bound, Used, plus_one
from partc.planner.exact.multipliers import PricedBound
from partc.planner.exact.tables import Array, Tables
from partc.planner.model.effort import CALL, Budget

_DIVE_EVERY = 256
_EXTENSION = 20 * CALL
"""Operations of extending a label by one type of device."""


@dataclass(frozen=True, eq=False)
class Sender:
    """An interval that still has values to send."""

    kind: int
    first: int
    end: int
    """Exclusive."""
    finish_s: tuple[float, ...]
    """One entry a phase."""
    pending: int
    """Its values that are used after the label's cut, as bits."""


@dataclass(frozen=True, eq=False)
class Label:
    """A prefix of a plan."""

    cut: int
    used: Used
    cost: float
    """The cost of the prefix: for a latency up to the end of the interval that holds the path's last sub-module."""
    estimate: float
    """At least the cost of every plan that begins like this."""
    holder: int
    """Type of the interval that holds the path's last sub-module so far."""
    senders: tuple[Sender, ...]
    last: tuple[int, int, int]
    """Type, first and end of the newest interval."""
    parent: Label | None

    def intervals(self) -> list[tuple[int, int, int]]:
        """(type, first, end) of all intervals, in order."""
        before = self.parent.intervals() if self.parent else []
        return [*before, self.last]


@dataclass(frozen=True)
class Found:
    """The end of a search."""

    best: Label | None
    """The best plan that was found."""
    bound: float
    """No plan costs less."""
    expanded: int
    """Labels that were extended; 0 where the bound alone was proof."""


class Search:
    """One search for the plan of least cost."""

    def __init__(
        self,
        tables: Tables,
        bound: Bound | PricedBound,
        budget: Budget | None = None,
        known: float = np.inf,
    ) -> None:
        """Nothing is computed before `run`.

        `known`: cost of a plan that is known; only better ones are looked for.
        """
        self._known_cost = known
        self.tables = tables
        self.bound = bound
        self.objective = bound.objective
        self.budget = budget or Budget()
        self.best: Label | None = None
        self._known: dict[object, list[tuple[float, ...]]] = {}

    def run(self, *, dive_only: bool = False) -> Found:
        """The best plan, or the best that the budget allowed with a bound on all others."""
        heap: list[tuple[float, int, int, Label]] = []
        number = itertools.count()
        for label in self._roots():
            if label.cut == self.tables.count:
                self._offer(label)
            else:
                heapq.heappush(heap, (label.estimate, -label.cut, next(number), label))
        lowest = heap[0][0] if heap else np.inf
        if heap:
            self._dive(heap[0][3])
        expanded = 0
        while not dive_only and heap and heap[0][0] < self._limit():
            if self.budget.is_spent:
                return Found(self.best, heap[0][0], expanded)
            label = heapq.heappop(heap)[3]
            expanded += 1
            for child in self._children(label):
                if child.cut == self.tables.count:
                    self._offer(child)
                elif self._is_new(child):
                    heapq.heappush(heap, (child.estimate, -child.cut, next(number), child))
            if expanded % _DIVE_EVERY == 0 and heap:
                self._dive(heap[0][3])
        proven = self.best.estimate if self.best else np.inf
        return Found(self.best, min(lowest, proven) if dive_only else proven, expanded)

    def _limit(self) -> float:
        """Only labels below this can lead to a plan that is better than the best one."""
        if self.best is None:
            return self._known_cost
        return self.best.estimate - max(self.objective.tolerance, abs(self.best.estimate) * 1e-14)

    def _offer(self, label: Label) -> None:
        if self.best is None or label.estimate < self._limit():
            self.best = label

    def _dive(self, label: Label) -> None:
        """Follows the best child of the best child to a complete plan or a dead end."""
        while label.cut < self.tables.count:
            children = list(self._children(label))
            if not children:
                return
            lowest = min(child.estimate for child in children)
            # Among equal ones the first: types in the order of the devices, then the longest interval.
            limit = lowest + max(self.objective.tolerance, abs(lowest) * 1e-14)
            label = next(child for child in children if child.estimate <= limit)
        self._offer(label)

    def _roots(self) -> list[Label]:
        """The intervals that the source may hold."""
        counting = self.objective.counts_devices
        base = np.zeros(self.tables.count + 1) if counting else self.tables.weighted_from(0, 0)
        seconds = [self.tables.seconds(0, p, 0) for p in range(len(self.tables.weights))]
        used = (0,) * len(self.tables.types)
        estimate = self.bound.start()
        # Off the path nothing has been counted yet; the bound takes over from a cost of zero.
        counted = self.tables.on_path[0] | (not self.objective.counts_waiting)
        labels = []
        for cut in range(self.tables.count, 0, -1):
            if np.isfinite(estimate[cut]):
                finish = tuple(float(times[cut]) for times in seconds)
                sender = self._sender(0, 0, cut, finish, cut)
                cost = float(base[cut]) if counted[cut] else 0.0
                senders = (sender,) if sender.pending else ()
                labels.append(Label(cut, used, cost, float(estimate[cut]), 0, senders, (0, 0, cut), None))
        return labels

    def _children(self, label: Label) -> Iterator[Label]:
        """Every extension that may still beat the best plan."""
        for kind, size in enumerate(self.tables.capacity):
            if label.used[kind] < size:
                yield from self._extensions(label, kind)

    def _extensions(self, label: Label, kind: int) -> Iterator[Label]:
        """The next interval on one more device of type `kind`, for every end at once."""
        tables, cut = self.tables, label.cut
        self.budget.spend(_EXTENSION)
        used = plus_one(label.used, kind)
        on_path = tables.on_path[cut]
        finish, largest_message = self._arrivals(label, kind)
        for p in range(len(finish)):
            finish[p] = finish[p] + tables.seconds(kind, p, cut)
        cost = self._costs(label, kind, finish, largest_message, on_path)
        to_go = self.bound.to_go(used)
        rest = np.where(on_path, to_go[kind], to_go[label.holder])
        estimate = np.where(tables.fits_from(kind, cut), self.objective.combine(cost, rest), np.inf)
        # A prefix costs at least what its parent did; rounding must not make it look better.
        estimate = np.maximum(estimate, label.estimate - self.objective.tolerance)
        for end in np.flatnonzero(estimate < self._limit())[::-1].tolist():
            times = tuple(float(phase[end]) for phase in finish)
            holder = kind if on_path[end] else label.holder
            senders = self._senders(label, self._sender(kind, cut, end, times, end), end)
            yield Label(
                end, used, float(cost[end]), float(estimate[end]), holder, senders, (kind, cut, end), label
            )

    def _arrivals(self, label: Label, kind: int) -> tuple[list[Array], Array]:
        """The arrival of the last message to [cut, c), for each phase; and their longest time, weighted."""
        tables = self.tables
        starts = [np.zeros(tables.count + 1) for _ in tables.weights]
        longest = np.zeros(tables.count + 1)
        for sender in label.senders:
            link, busy = tables.links[sender.kind][kind], np.zeros(tables.count + 1)
            latency_s, seconds_per_byte = link or (0.0, 0.0)
            for p, weight in enumerate(tables.weights):
                traffic = tables.traffic(p, sender.first, sender.end, label.cut)
                sending = seconds_per_byte * traffic.bytes
                seconds = latency_s + sending
                starts[p] = np.maximum(starts[p], np.where(traffic.exists, sender.finish_s[p] + seconds, 0.0))
                busy += np.where(traffic.exists, weight * seconds if link else np.inf, 0.0)
                busy[tables.sends_too_long(p, sending)] = np.inf
            longest = np.maximum(longest, busy)
        return starts, longest

    def _costs(self, label: Label, kind: int, finish: list[Array], longest: Array, on_path: Array) -> Array:
        """Cost of the prefix with the new interval, by its end; infinite where a link is missing."""
        tables, objective = self.tables, self.objective
        busy = np.maximum(longest, tables.weighted_from(kind, label.cut))
        match objective.kind:
            case "bottleneck":
                return np.asarray(np.maximum(label.cost, busy))
            case "devices":
                return np.where(busy <= objective.cap, label.cost + objective.per_device, np.inf)
            case "latency":
                devices = (sum(label.used) + 1) * objective.per_device
                total = np.full(len(longest), devices)
                for weight, finish_s in zip(tables.weights, finish, strict=True):
                    total += weight * finish_s
                reached = np.where(on_path, total, label.cost + objective.per_device)
                return np.asarray(np.where(np.isfinite(longest), reached, np.inf))
            case _:
                assert_never(objective.kind)

    def _sender(self, kind: int, first: int, end: int, finish_s: tuple[float, ...], cut: int) -> Sender:
        made = self.tables.made_before
        pending = made[end] & ~made[first] & self.tables.used_after[cut]
        return Sender(kind, first, end, finish_s, pending)

    def _senders(self, label: Label, newest: Sender, cut: int) -> tuple[Sender, ...]:
        """The intervals that have something to send after `cut`."""
        older = (self._sender(s.kind, s.first, s.end, s.finish_s, cut) for s in label.senders)
        return tuple(sender for sender in (*older, newest) if sender.pending)

    def _is_new(self, label: Label) -> bool:
        """Whether no label like this one is at least as early everywhere; remembers it."""
        key = label.cut, label.used, tuple((sender.kind, sender.pending) for sender in label.senders)
        finished = (t for sender in label.senders for t in sender.finish_s)
        times = (*finished, label.cost) if self.objective.counts_waiting else (label.cost,)
        known = self._known.setdefault(key, [])
        slack = self.objective.tolerance / 64
        if any(all(a <= b + slack for a, b in zip(other, times, strict=True)) for other in known):
            return False
        known[:] = [other for other in known if not all(b <= a for a, b in zip(other, times, strict=True))]
        known.append(times)
        return True
