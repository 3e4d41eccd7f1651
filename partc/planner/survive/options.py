"""Options after the loss of a device: plans of the survivors, and what each has to have on its disk for them.

A small problem has all with one interval per device; of a large one only a few good ones are looked at, and then the
choice of copies is no proof. Plans that return to a device are looked for where no other is possible.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from partc.format.placement import Stage, Stages
from partc.planner.exact.optimal import seek_best, without_returns
from partc.planner.exact.solution import cost_of
from partc.planner.exact.tables import Tables
from partc.planner.model.change import Times, with_devices, with_times
from partc.planner.model.effort import QUESTION
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Problem
from partc.planner.model.stages import held

MOST_PLANS = 5_000
"""Plans after one loss that are looked at one by one: a second; four devices and 70 sub-modules have as many."""

Holding = Mapping[str, frozenset[int]]
"""Device → sub-modules."""


@dataclass(frozen=True)
class Option:
    """One plan of the survivors."""

    stages: Stages
    cost_s: float
    """Seconds that are minimised: a latency or a bottleneck."""
    holding: Holding
    """The sub-modules that each survivor runs."""


@dataclass(frozen=True)
class Options:
    """The plans that could follow the loss of one device."""

    lost: str
    problem: Problem
    """The planning problem of the survivors."""
    plans: tuple[Option, ...]
    are_all: bool
    """Whether no other plan with one interval per device is possible."""


def holding_of(stages: Stages) -> dict[str, frozenset[int]]:
    """Device → its sub-modules."""
    return {name: frozenset(indices) for name, indices in held(stages).items()}


def options_without(problem: Problem, lost: str, own: Holding) -> Options:
    """The options after the loss of `lost`; none where no device can take its part.

    O(plans x edges), or a few solves where there are more than `MOST_PLANS` plans. Storage holds what a device has
    in the plan (`own`) besides; what other losses ask for is not reckoned here.
    """
    left = with_devices(problem, [name for name in problem.device_of if name != lost])
    are_all = _count(left) <= MOST_PLANS
    found = _all_plans(left) if are_all else _good_plans(without_returns(left), own)
    if plans := _options(left, own, found):
        return Options(lost, left, plans, are_all)
    plans = () if left.returns == 0 else _options(left, own, _good_plans(left, own))
    return Options(lost, left, plans, are_all and not plans)


def _options(problem: Problem, own: Holding, found: Iterable[Stages]) -> tuple[Option, ...]:
    """The plans of these that are possible."""
    options = (_option(problem, stages) for stages in found)
    return tuple(option for option in options if option and has_room(problem, own, option))


def has_room(problem: Problem, own: Holding, option: Option) -> bool:
    """Whether each disk holds what is on it and what the option runs there."""
    return all(
        problem.disk_of(own.get(name, frozenset()) | indices) <= _storage(problem, name)
        for name, indices in option.holding.items()
    )


def within(problem: Problem, disks: Holding) -> Problem:
    """The problem in which devices have times for what lies on their disks alone."""

    def there(index: int, times: Times) -> Times:
        return {name: seconds for name, seconds in times.items() if index in disks.get(name, ())}

    return with_times(problem, there)


def _storage(problem: Problem, name: str) -> float:
    storage = problem.device_of[name].storage_bytes
    return math.inf if storage is None else storage


def _option(problem: Problem, stages: Stages) -> Option | None:
    value = evaluate(problem, stages).value
    return None if value is None else Option(stages, cost_of(problem, value), holding_of(stages))


def _count(problem: Problem) -> int:
    """The number of ways to give intervals to devices, the source first."""
    others, cuts = len(problem.devices) - 1, len(problem.submodules) - 1
    return sum(math.perm(others, k) * math.comb(cuts, k) for k in range(min(others, cuts) + 1))


def _all_plans(problem: Problem) -> Iterator[Stages]:
    """Every way to give intervals to devices that have the memory, the times and the storage for them."""
    tables = Tables(problem)
    reach = {name: tables.reach[kind] for kind, names in enumerate(tables.types) for name in names}
    count = len(problem.submodules)
    others = [name for name in problem.device_of if name != problem.source]
    for extra in range(min(len(others), count - 1) + 1):
        for chosen in itertools.permutations(others, extra):
            names = (problem.source, *chosen)
            for cuts in itertools.combinations(range(1, count), extra):
                ends = zip((0, *cuts), (*cuts, count), names, strict=True)
                if all(end <= reach[name][begin] for begin, end, name in ends):
                    yield _stages((0, *cuts, count), names)


def _stages(cuts: tuple[int, ...], names: tuple[str, ...]) -> Stages:
    spans = zip(itertools.pairwise(cuts), names, strict=True)
    return tuple(Stage((begin, end - 1), (name,)) for (begin, end), name in spans)


def _good_plans(problem: Problem, own: Holding) -> Iterator[Stages]:
    """The best plan in which survivors keep what they have, which takes the fewest copies, and the best of all."""
    everything = frozenset(range(len(problem.submodules)))
    kept = frozenset[int]().union(*(own.get(name, frozenset()) for name in problem.device_of))
    disks = {name: own.get(name, frozenset()) | (everything - kept) for name in problem.device_of}
    for changed in (within(problem, disks), problem):
        if solution := seek_best(changed, effort=QUESTION).solution:
            yield solution.stages
