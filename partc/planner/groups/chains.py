"""Chains: plans in which one stage after the other has one device or a group of them, each device in one stage.

A group computes a run of neighbouring sub-modules: their blocks are shared by all its members, in the same shares of
every block of a kind, with one exchange in each phase; sub-modules without a block are its first member's alone. A
plan with one interval per device is a chain without groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from partc.format.plan import Exchange, SharedStage, SharedStages
from partc.planner.groups.make import merged
from partc.planner.model.problem import Problem

EXCHANGES: tuple[Exchange, ...] = ("tiles", "ring", "star")
Group = tuple[str, ...]
"""Devices in the order of their ring, the first of which has what is not shared; one of them is a stage as ever."""
Shares = Mapping[str, tuple[int, ...]]
"""`heads` and `columns` → units of each member."""


@dataclass(frozen=True)
class Segment:
    """Neighbouring sub-modules and the devices that compute them."""

    group: Group
    first: int
    last: int
    """Inclusive."""

    @property
    def indices(self) -> range:
        """All sub-modules."""
        return range(self.first, self.last + 1)


Chain = tuple[Segment, ...]


def chains(problem: Problem) -> Iterator[Chain]:
    """All chains that have a group; every group shares at least one block.

    With D devices and n sub-modules there are no more than D! · 2^D · n^(D - 2).
    """
    count = len(problem.submodules)
    for groups in _orders(problem.source, [name for name in problem.device_of if name in problem.able]):
        for ends in combinations(range(1, count), len(groups) - 1):
            begins = (0, *ends)
            found = tuple(
                Segment(group, first, end - 1)
                for group, first, end in zip(groups, begins, (*ends, count), strict=True)
            )
            if all(len(segment.group) == 1 or kinds_of(problem, segment) for segment in found):
                yield found


def _orders(source: str, names: Sequence[str]) -> Iterator[tuple[Group, ...]]:
    """Disjoint groups in every order, the source's first; one of them has several devices."""
    others = [name for name in names if name != source]

    def behind(free: Sequence[str]) -> Iterator[tuple[Group, ...]]:
        yield ()
        for group in _subsets(free):
            left = [name for name in free if name not in group]
            yield from ((group, *rest) for rest in behind(left))

    for members in chain([()], _subsets(others)):
        left = [name for name in others if name not in members]
        for rest in behind(left):
            groups = ((source, *members), *rest)
            if any(len(group) > 1 for group in groups):
                yield groups


def _subsets(names: Sequence[str]) -> Iterator[Group]:
    """All but the empty one."""
    return chain.from_iterable(combinations(names, size) for size in range(1, len(names) + 1))


def kinds_of(problem: Problem, segment: Segment) -> dict[str, int]:
    """Kind of its blocks → their units; empty where nothing can be shared.

    A segment has one share of each kind, so blocks of unlike units (the layers of a picture's tower and of the text
    behind it) are no segment.
    """
    kinds: dict[str, int] = {}
    for j in segment.indices:
        if (block := problem.submodules[j].block) is not None and (
            kinds.setdefault(block.share, block.units) != block.units
        ):
            return {}
    return kinds


def stages_of_chain(
    problem: Problem, segments: Chain, shares: Sequence[Shares], exchanges: Sequence[Exchange]
) -> SharedStages:
    """The stages of a chain in one phase; `shares` and `exchanges` of its segments count where these are groups."""
    return merged(
        _stage(problem, segment.group, mine, exchange, j)
        for segment, mine, exchange in zip(segments, shares, exchanges, strict=True)
        for j in segment.indices
    )


def _stage(problem: Problem, group: Group, shares: Shares, exchange: Exchange, j: int) -> SharedStage:
    block = problem.submodules[j].block
    if len(group) == 1 or block is None:
        return SharedStage((j, j), group[:1])
    return SharedStage((j, j), group, block.share, shares[block.share], exchange)
