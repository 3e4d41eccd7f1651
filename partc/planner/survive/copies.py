"""The choice of copies: one option for each loss, so that all copies together take the least disk.

Branch and bound over the losses: copies made for one loss cost another one nothing. Every sub-module of a device that
may be lost needs a copy somewhere, which bounds the copies that are still to be made. Nearly always the options that
copy no more than this fit together, and the first one found is the least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from partc.planner.model.infeasible import without_storage_limits
from partc.planner.model.problem import Problem
from partc.planner.survive.options import Holding, Option, Options, has_room, options_without

MOST_TRIED = 20_000
"""Options that are tried in all: a second or two."""


@dataclass(frozen=True)
class Choice:
    """One option for each loss."""

    options: tuple[Option, ...]
    """The options, in the order of the losses."""
    disks: Holding
    """Device → what lies on its disk, its own and copies."""
    bytes: float
    """Weights of all copies."""
    bound_bytes: float
    """No choice has fewer."""


def choose_copies(problem: Problem, own: Holding, losses: Sequence[Options]) -> Choice | None:
    """The choice with the least bytes of copies, the faster of equal ones as far as it is seen; None: none was found.

    Args:
        problem: of all devices.
        own: what each has in the plan.
        losses: their options, at least one each.
    """
    search = _Search(problem, own, losses)
    search.run(0, own, ())
    if search.best is None:
        return None
    count, options, disks = search.best
    is_proven = search.tried < MOST_TRIED and all(loss.are_all for loss in losses)
    least = count if is_proven else min(count, search.to_come(0, own))
    return Choice(options, disks, count, least)


def missing_storage(problem: Problem, own: Holding) -> dict[str, float]:
    """Device → bytes of storage that it lacks for every loss to be survived; enough, and little: not proven the least.

    Loss by loss, the plan that lacks the least beside the copies made so far. O(plans) for each.
    """
    unlimited, disks = without_storage_limits(problem), dict(own)
    for lost in own:
        if lost != problem.source and (plans := options_without(unlimited, lost, own).plans):
            ways = [_joined(disks, option) for option in plans]
            disks = min(ways, key=lambda way: sum(_lacks(problem, way).values()))
    return _lacks(problem, disks)


def _lacks(problem: Problem, disks: Holding) -> dict[str, float]:
    """Device → bytes that are on its disk beyond what that holds."""
    sizes = ((name, device.storage_bytes) for name, device in problem.device_of.items())
    limits = {name: size for name, size in sizes if size is not None}
    over = {name: problem.disk_of(have) - limits[name] for name, have in disks.items() if name in limits}
    return {name: count for name, count in over.items() if count > 0}


@dataclass
class _Search:
    problem: Problem
    own: Holding
    losses: Sequence[Options]
    best: tuple[float, tuple[Option, ...], Holding] | None = None
    tried: int = 0
    _bytes: dict[tuple[str, frozenset[int]], float] = field(default_factory=dict)

    def run(self, place: int, disks: Holding, chosen: tuple[Option, ...]) -> None:
        """Try the options of the losses from `place` on, the cheapest first."""
        made = self._made(disks)
        if self.best is not None and made + self.to_come(place, disks) >= self.best[0]:
            return
        if place == len(self.losses):
            self.best = made, chosen, disks
            return
        plans = [(option, _joined(disks, option)) for option in self.losses[place].plans]
        plans.sort(key=lambda item: (self._made(item[1]), item[0].cost_s))
        for option, more in plans:
            if self.tried >= MOST_TRIED and self.best is not None:
                return
            self.tried += 1
            if has_room(self.problem, disks, option):
                self.run(place + 1, more, (*chosen, option))

    def to_come(self, place: int, disks: Holding) -> float:
        """Bytes that the losses from `place` on need at least, beside the copies that are made."""
        return sum(self._missing(loss.lost, disks) for loss in self.losses[place:])

    def _missing(self, lost: str, disks: Holding) -> float:
        there = frozenset[int]().union(*(have for name, have in disks.items() if name != lost))
        return sum(self.problem.submodules[j].disk_bytes for j in self.own[lost] - there)

    def _made(self, disks: Holding) -> float:
        return sum(
            self._size(name, have) - self._size(name, self.own.get(name, frozenset()))
            for name, have in disks.items()
        )

    def _size(self, name: str, have: frozenset[int]) -> float:
        key = name, have
        if key not in self._bytes:
            self._bytes[key] = self.problem.disk_of(have)
        return self._bytes[key]


def _joined(disks: Holding, option: Option) -> dict[str, frozenset[int]]:
    more = {name: disks.get(name, frozenset()) | indices for name, indices in option.holding.items()}
    return {**disks, **more}
