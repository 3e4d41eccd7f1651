"""Kinds of rings: what each would answer of a demand, and how soon.

A kind of ring is the kind of its source and how many devices of each kind it has. It is planned twice by the exact
planner, once for latency and once for throughput. Of the plans that are as quick as wished for, the one counts that
answers more requests.

A ring that is never idle answers a request every `answer · b` seconds, b being the time for which a token occupies
the busiest device or link (`Workflow.limit`); and no more than `max_requests` are in it at once, each for as long as
its tokens take: min(1 / (answer · b), max_requests / (first + (answer - 1) · further)).
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb

from partc.config.demand import Wish
from partc.format.placement import Stages
from partc.format.plan import OBJECTIVES
from partc.planner.exact.optimal import seek_best, without_returns
from partc.planner.exact.solution import Solution
from partc.planner.model.effort import QUESTION, Budget
from partc.planner.model.problem import Problem
from partc.planner.rings.kinds import Kind
from partc.planner.simulate.script import workflow_of

MOST_RINGS = 400
"""Kinds of rings that are planned where nobody says how many devices a ring may have; each takes some 10 ms."""
LARGEST = 8
"""Devices of a ring, where nobody says how many."""
ALL_RINGS = 1e10
"""Operations for the plans of all rings together: some forty seconds."""

Problems = Callable[[Wish, str], Problem]
"""The planning problem of a wish, with this device as the source, on devices that stand for their kinds."""


@dataclass(frozen=True)
class RingKind:
    """A kind of ring that answers one wish as it is wished for."""

    wish: int
    """Index of the wish."""
    uses: tuple[int, ...]
    """Devices of each kind."""
    problem: Problem
    stages: Stages
    capacity_per_s: float
    """Requests per second, if it is never idle."""
    first_token_s: float
    """Seconds to the first token of a request that is alone."""
    per_token_s: float | None
    """Seconds between two tokens of a request that is alone; None where it has no state."""
    proven: bool
    """Whether both plans are proven to be the best."""

    @property
    def size(self) -> int:
        """Devices of a ring."""
        return sum(self.uses)


@dataclass(frozen=True)
class Closest:
    """The best that any ring comes to, where none is as quick as wished for."""

    first_token_s: float
    per_token_s: float | None


def most_devices(kinds: Sequence[Kind]) -> int:
    """The most devices of a ring for which there are no more than `MOST_RINGS` kinds of rings."""
    sizes = (size for size in range(LARGEST, 1, -1) if _count(len(kinds), size) <= MOST_RINGS)
    return min(next(sizes, 1), sum(len(kind.members) for kind in kinds))


def _count(kinds: int, size: int) -> int:
    """Kinds of rings of up to so many devices, any of them the source."""
    return kinds * comb(kinds + size - 1, size - 1)


def ring_kinds(kinds: Sequence[Kind], most: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(kind of the source, devices of each kind) of every ring of at most so many devices, small ones first."""
    for size in range(1, most + 1):
        for chosen in itertools.combinations_with_replacement(range(len(kinds)), size):
            count = Counter(chosen)
            uses = tuple(count[k] for k in range(len(kinds)))
            if all(used <= len(kind.members) for used, kind in zip(uses, kinds, strict=True)):
                yield from ((source, uses) for source in sorted(count))


def plan_rings(
    kinds: Sequence[Kind], most: int, index: int, wish: Wish, problems: Problems, slots: int, budget: Budget
) -> tuple[list[RingKind], Closest | None]:
    """The kinds of rings for one wish, without those that no ring needs; and the closest where there are none.

    A ring with a device that has nothing to do is left out: the same ring without it is among the others. So is one
    that answers no more than another of a part of its devices.
    """
    found: list[RingKind] = []
    best: list[Closest] = []
    whole: dict[str, Problem] = {}
    for source, uses in ring_kinds(kinds, most):
        name = kinds[source].name
        if name not in whole:
            whole[name] = problems(wish, name)
        problem = _only(whole[name], kinds, uses)
        plans = [ring for ring in _planned(problem, index, uses, wish, slots, budget) if ring is not None]
        quick = [ring for ring in plans if _is_quick(ring, wish)]
        best += [Closest(ring.first_token_s, ring.per_token_s) for ring in plans]
        if quick:
            found.append(max(quick, key=lambda ring: ring.capacity_per_s))
    return _undominated(found), min(best, key=lambda close: _excess(close, wish), default=None)


def _only(problem: Problem, kinds: Sequence[Kind], uses: Sequence[int]) -> Problem:
    """The problem of one ring."""
    groups = ((kind.members[:used], problem.source) for kind, used in zip(kinds, uses, strict=True))
    names = {name for members, _ in groups for name in members}
    return replace(
        problem,
        devices=tuple(device for device in problem.devices if device.name in names),
        links=tuple(link for link in problem.links if link.sender in names and link.receiver in names),
    )


def _planned(
    problem: Problem, index: int, uses: tuple[int, ...], wish: Wish, slots: int, budget: Budget
) -> Iterator[RingKind | None]:
    """The ring as the planner makes it for either objective; None where it needs fewer devices, or cannot be."""
    room = sum(device.room_bytes for device in problem.devices)
    if sum(part.memory_bytes for part in problem.submodules) > room:
        return
    for objective in reversed(OBJECTIVES):
        best = seek_best(
            without_returns(replace(problem, objective=objective)), effort=QUESTION, within=budget
        )
        if best.solution is not None:
            yield _ring(problem, best.solution, index, uses, wish, slots, best.proven)


def _ring(
    problem: Problem,
    solution: Solution,
    index: int,
    uses: tuple[int, ...],
    wish: Wish,
    slots: int,
    proven: bool,
) -> RingKind | None:
    if len(solution.stages) < len(problem.devices):
        return None
    first, *later = (timeline.latency_s for timeline in solution.evaluation.phases)
    busy = workflow_of(problem, solution.stages).limit(wish.answer).s_per_token * wish.answer
    lasts = first + (wish.answer - 1) * (later[0] if later else 0.0)
    capacity = min(1 / max(busy, sys.float_info.min), slots / max(lasts, sys.float_info.min))
    return RingKind(
        index, uses, problem, solution.stages, capacity, first, later[0] if later else None, proven
    )


def _is_quick(ring: RingKind, wish: Wish) -> bool:
    return _excess(Closest(ring.first_token_s, ring.per_token_s), wish) <= 1


def _excess(close: Closest, wish: Wish) -> float:
    """How much longer it takes than is wished for: the larger factor; below 1 where it is quick enough."""
    pairs = ((close.first_token_s, wish.first_token_s), (close.per_token_s, wish.per_token_s))
    return max((took / wished for took, wished in pairs if took is not None and wished), default=0.0)


def _undominated(rings: Sequence[RingKind]) -> list[RingKind]:
    """The rings of which no other has as much capacity with no more devices of any kind."""
    kept: list[RingKind] = []
    for ring in sorted(rings, key=lambda ring: (ring.size, -ring.capacity_per_s)):
        better = (
            other
            for other in kept
            if other.capacity_per_s >= ring.capacity_per_s
            and all(a <= b for a, b in zip(other.uses, ring.uses, strict=True))
        )
        if next(better, None) is None:
            kept.append(ring)
    return kept
