"""The strategy `optimal-groups`: the best plan whose stages have one device or several, and the proof that it is.

Chains are taken in the order of their bounds (`chain_bounds`), until the next bound is no better than the best value
found. Of each chain the best shares and exchanges are looked for by the value of the whole plan (`evaluate_shared`), in
which links, tiles, memory and buffers are:

- few shares (`MOST_SHARES`) are all tried, so that the value is the chain's best;
- of many, those in proportion to speed, as far as memory has room, are improved by moving units from a member to
  another: fewer and fewer, as long as that helps. The bound of the chain then stands for what this may have missed.

The plan with one interval per device is `optimal`'s. Where none with a group is better, that is the answer, and the
explanation says what the best group would cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, product
from typing import Final

from msgspec import structs

from partc.errors import InternalError
from partc.format.plan import Exchange, Plan
from partc.planner.exact.optimal import plan_optimal
from partc.planner.exact.solution import bound_of, cost_of
from partc.planner.groups.algorithm1 import apportion
from partc.planner.groups.chain_bounds import ChainBounds
from partc.planner.groups.chains import EXCHANGES, Chain, Segment, Shares, chains, kinds_of, stages_of_chain
from partc.planner.groups.evaluate import evaluate_shared
from partc.planner.model.objective_values import SAME, compare, is_better
from partc.planner.model.objectives import by_objective
from partc.planner.model.problem import Problem

METHOD: Final = "chains with groups by their bounds"
MOST_SHARES: Final = 2500
"""Shares of a chain that are all tried."""
MOST_DEVICES: Final = 6
"""Devices among which groups are looked for: 6 have some 2,000 orders of groups, and each of them its borders."""
MOST_STEPS: Final = 200_000
"""Steps of sub-modules that are followed for chains whose shares are too many to try: half a minute of a core."""


def plan_groups(problem: Problem) -> Plan:
    """The best plan with groups or without, and a bound of both.

    Raises:
        PlanError: there may be a plan with one device a stage, but none was found.
    """
    alone = plan_optimal(problem)
    if not any(part.block for part in problem.submodules):
        return alone
    if len(problem.able) > MOST_DEVICES:
        text = f"groups are looked for among up to {MOST_DEVICES} devices, and not among {len(problem.able)}"
        return _noted(structs.replace(alone, bound=None, gap=None), text)
    most = cost_of(problem, alone.value) if alone.value is not None else math.inf
    search = ChainSearch(problem)
    search.run(most)
    least = min(search.bound_s, most if alone.bound is None else cost_of(problem, alone.bound))
    if search.best is None:
        return (
            alone
            if alone.value is None
            else _noted(_bounded(problem, alone, least), "no group was found that fits")
        )
    best = search.best.plan(problem)
    if alone.value is None or is_better(problem, best.value or 0.0, alone.value):
        return _bounded(problem, best, least)
    cost = compare(problem, best.value or 0.0, alone.value)
    text = f"the best plan found with a group ({search.best.in_words}) {cost}"
    return _noted(_bounded(problem, alone, least), text)


def _noted(plan: Plan, text: str) -> Plan:
    """The plan with one device a stage, and what there is to say of groups."""
    return structs.replace(plan, explain={**plan.explain, "shared": [text]})


def _bounded(problem: Problem, plan: Plan, least: float) -> Plan:
    """The plan with its bound, and the gap to that."""
    value = plan.value or 0.0
    bound = bound_of(problem, value, least)
    gap = None if bound is None else abs(value - bound) / value if value else 0.0
    return structs.replace(plan, bound=bound, gap=gap)


@dataclass(frozen=True)
class Found:
    """A chain with its best shares and exchanges, as far as these were found."""

    cost: float
    segments: Chain
    shares: tuple[Shares, ...]
    exchanges: tuple[tuple[Exchange, ...], ...]
    """Phase → the exchange of each segment."""

    def plan(self, problem: Problem) -> Plan:
        """The plan, with its value; the bound is not known here."""
        phases = {
            phase.name: stages_of_chain(problem, self.segments, self.shares, chosen)
            for phase, chosen in zip(problem.steps, self.exchanges, strict=True)
        }
        value = evaluate_shared(problem, phases).value
        if value is None:
            raise InternalError("the plan of a chain breaks a constraint")
        return Plan(stages=phases[problem.steps[0].name], phases=phases, value=value, method=METHOD)

    @property
    def in_words(self) -> str:
        """`a, b; then c`."""
        return "; then ".join(", ".join(segment.group) for segment in self.segments)


class ChainSearch:
    """The best chain with a group."""

    def __init__(self, problem: Problem) -> None:
        """Nothing is looked for yet."""
        self._problem = problem
        self._bounds = ChainBounds(problem)
        self._followed = 0
        self.best: Found | None = None
        self.bound_s = math.inf
        """No chain costs less."""

    def run(self, most: float) -> None:
        """Look for chains that cost less than `most`, and in any case at the most promising one."""
        priced = ((self._bounds.cost(segments), segments) for segments in chains(self._problem))
        possible = [(cost, segments) for cost, segments in priced if cost < math.inf]
        for number, (bound, segments) in enumerate(sorted(possible, key=lambda pair: pair[0])):
            target = min(most, self.best.cost if self.best else math.inf)
            if number and bound >= target * (1 - SAME):
                self.bound_s = min(self.bound_s, target)
                return
            if self._followed >= MOST_STEPS:
                self.bound_s = min(self.bound_s, bound)
                return
            found, exact = self._best_of(segments)
            if found is not None and (self.best is None or found.cost < self.best.cost):
                self.best = found
            self.bound_s = min(self.bound_s, (found.cost if found else math.inf) if exact else bound)

    def _best_of(self, segments: Chain) -> tuple[Found | None, bool]:
        """A chain with the best shares that are found, if any fits, and whether no others are better."""
        space = ShareSpace(self._problem, segments)
        if space.count <= MOST_SHARES:
            tried = [self._valued_at(segments, shares) for shares in space.all()]
            return min((one for one in tried if one), key=lambda one: one.cost, default=None), True
        start = space.start()
        found = start and self._valued_at(segments, start)
        return (found and self._improved(space, found)) or None, False

    def _improved(self, space: ShareSpace, found: Found) -> Found:
        """Units moved between members, a fourth as many after each round that brings nothing; exchanges stay."""
        part, segments, shares, cost = 16, found.segments, found.shares, found.cost
        while part <= 2 * space.most_units and self._followed < MOST_STEPS:
            for moved in space.beside(shares, part):
                lower = self._cost(segments, moved, found.exchanges)
                if lower < cost * (1 - SAME):
                    shares, cost = moved, lower
                    break
            else:
                part *= 4
        return self._valued_at(segments, shares) or found

    def _valued_at(self, segments: Chain, shares: tuple[Shares, ...]) -> Found | None:
        """The chain with these shares and the best exchanges; None where it does not fit."""
        choices = [EXCHANGES if len(segment.group) > 1 else ("none",) for segment in segments]
        each: list[tuple[Exchange, ...]] = list(product(*choices))
        options: Iterator[tuple[tuple[Exchange, ...], ...]] = product(each, repeat=len(self._problem.steps))
        # A phase takes its time whatever the other one does, and both wait for the busiest device.
        if by_objective(self._problem.objective, latency=True, throughput=False):
            best = [
                self._best_exchanges(segments, shares, number, each)
                for number in range(len(self._problem.steps))
            ]
            if any(one is None for one in best):
                return None
            options = iter([tuple(one for one in best if one)])
        priced = [(self._cost(segments, shares, chosen), chosen) for chosen in options]
        cost, chosen = min(priced, key=lambda pair: pair[0])
        return Found(cost, segments, shares, tuple(chosen)) if cost < math.inf else None

    def _best_exchanges(
        self, segments: Chain, shares: tuple[Shares, ...], number: int, each: Sequence[tuple[Exchange, ...]]
    ) -> tuple[Exchange, ...] | None:
        """The exchange of each segment by which a phase is fastest."""
        alone = self._alone[number]
        priced = [(self._value(alone, segments, shares, [chosen]), chosen) for chosen in each]
        possible = [(value, chosen) for value, chosen in priced if value is not None]
        return min(possible, key=lambda pair: pair[0])[1] if possible else None

    def _cost(
        self, segments: Chain, shares: tuple[Shares, ...], chosen: Sequence[tuple[Exchange, ...]]
    ) -> float:
        value = self._value(self._problem, segments, shares, chosen)
        return math.inf if value is None else cost_of(self._problem, value)

    def _value(
        self,
        problem: Problem,
        segments: Chain,
        shares: tuple[Shares, ...],
        chosen: Sequence[tuple[Exchange, ...]],
    ) -> float | None:
        """The value of a plan of a chain for `problem`, which has some of the phases."""
        self._followed += len(problem.submodules) * len(problem.steps)
        phases = {
            phase.name: stages_of_chain(problem, segments, shares, one)
            for phase, one in zip(problem.steps, chosen, strict=True)
        }
        return evaluate_shared(problem, phases).value

    @cached_property
    def _alone(self) -> list[Problem]:
        """The problem with each of its phases alone."""
        return [replace(self._problem, phases=(phase,)) for phase in self._problem.steps]


class ShareSpace:
    """The shares of the groups of a chain."""

    def __init__(self, problem: Problem, segments: Chain) -> None:
        """`segments`: some of them groups."""
        self._problem, self._segments = problem, segments
        self._kinds = [kinds_of(problem, one) if len(one.group) > 1 else {} for one in segments]

    @property
    def count(self) -> int:
        """All shares of all groups."""
        return math.prod(
            math.comb(units + len(segment.group) - 1, len(segment.group) - 1)
            for segment, kinds in zip(self._segments, self._kinds, strict=True)
            for units in kinds.values()
        )

    @property
    def most_units(self) -> int:
        """Units of the kind that has most."""
        return max(units for kinds in self._kinds for units in kinds.values())

    def all(self) -> Iterator[tuple[Shares, ...]]:
        """Every one of them."""
        return product(
            *(
                [
                    dict(zip(kinds, parts, strict=True))
                    for parts in product(
                        *(list(_divided(units, len(segment.group))) for units in kinds.values())
                    )
                ]
                for segment, kinds in zip(self._segments, self._kinds, strict=True)
            )
        )

    def start(self) -> tuple[Shares, ...] | None:
        """In proportion to speed, as far as memory has room; None where it has none for all."""
        found = []
        for segment, kinds in zip(self._segments, self._kinds, strict=True):
            parts = _parts(self._problem, segment) if kinds else []
            if parts is None:
                return None
            found.append({kind: tuple(apportion(units, parts)) for kind, units in kinds.items()})
        return tuple(found)

    def beside(self, shares: tuple[Shares, ...], part: int) -> Iterator[tuple[Shares, ...]]:
        """Shares in which a member gives a part of a kind's units, one at least, to another one."""
        for place, kinds in enumerate(self._kinds):
            for kind, units in kinds.items():
                if part > 2 * units:
                    continue
                mine, amount = shares[place][kind], max(1, units // part)
                for giver, taker in permutations(range(len(mine)), 2):
                    if moved := min(amount, mine[giver]):
                        changed = list(mine)
                        changed[giver] -= moved
                        changed[taker] += moved
                        yield (*shares[:place], {**shares[place], kind: tuple(changed)}, *shares[place + 1 :])


def _divided(units: int, count: int) -> Iterator[tuple[int, ...]]:
    """All ways of giving units to `count` members."""
    if count == 1:
        yield (units,)
        return
    for first in range(units + 1):
        for rest in _divided(units - first, count - 1):
            yield (first, *rest)


def _parts(problem: Problem, segment: Segment) -> list[float] | None:
    """The fraction of all blocks for each member: in proportion to speed, no more than it has room for."""
    blocks = [j for j in segment.indices if problem.submodules[j].block]
    divided = sum(block.memory_bytes for j in blocks if (block := problem.submodules[j].block))
    speeds, rooms = [], []
    for place, name in enumerate(segment.group):
        seconds = sum(phase.weight * phase.time_s[j][name] for phase in problem.steps for j in blocks)
        held = segment.indices if place == 0 else blocks
        room = problem.device_of[name].room_bytes - (problem.memory_of(held) - divided)
        speeds.append(1 / max(seconds, 1e-12))
        rooms.append(max(0.0, 0.98 * room / divided) if divided else 1.0)
    if sum(rooms) < 1:
        return None
    full: set[int] = set()
    while True:
        left = 1 - sum(rooms[i] for i in full)
        total = sum(speed for i, speed in enumerate(speeds) if i not in full)
        parts = [rooms[i] if i in full else left * speed / total for i, speed in enumerate(speeds)]
        over = {i for i, part in enumerate(parts) if part > rooms[i] * (1 + 1e-12)}
        if not over:
            return parts
        full |= over
