"""Further borders, at which work can be moved to a neighbour later: its pieces then lie on both disks.

What may be moved is what `overlap-submodules` found room for. A device gets at most as many further borders as asked
for, evenly over what may leave it, so that a balancer can move a part of it, or all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from partc.config.units import format_bytes
from partc.format.placement import Stage, Stages
from partc.format.plan import Overlap
from partc.planner.model.problem import Problem
from partc.planner.model.stages import held

Disks = Mapping[str, Collection[int]]
"""Device → sub-modules."""


@dataclass(frozen=True)
class _Side:
    """One end of a stage: what may leave over it."""

    stage: Stage
    neighbour: str
    is_left: bool
    count: int
    """Sub-modules that may leave, from the border on."""

    def leaving(self, count: int) -> range:
        """The first `count` sub-modules that may leave."""
        first, last = self.stage.submodules
        return range(first, first + count) if self.is_left else range(last + 1 - count, last + 1)

    def border(self, count: int) -> int:
        """The sub-module before which to cut so that `count` may leave."""
        leaving = self.leaving(count)
        return leaving.stop if self.is_left else leaving.start


def with_borders(problem: Problem, stages: Stages, overlap: Overlap, most: int, on_disk: Disks) -> Overlap:
    """The overlap with at most `most` further borders a device, and the copies that lie on neighbours' disks for them.

    Args:
        problem: says what storage there is.
        stages: the plan.
        overlap: what may be moved where, all of it in memory at once.
        most: further borders a device.
        on_disk: copies that lie on disks for other reasons.
    """
    own = held(stages)
    disks = {name: {*own.get(name, ()), *on_disk.get(name, ())} for name in {**own, **on_disk}}
    copies: dict[str, set[int]] = {}
    borders: set[int] = set()
    texts: list[str] = []
    for name in own:
        sides = [side for side in _sides(stages, overlap) if side.stage.device == name]
        for side, numbers in zip(sides, _spread([side.count for side in sides], most), strict=True):
            before, taken = disks[side.neighbour], [0]
            for count in numbers:
                disk = disks[side.neighbour] | {*side.leaving(count)}
                storage = problem.device_of[side.neighbour].storage_bytes
                if storage is None or problem.disk_of(disk) <= storage:
                    disks[side.neighbour] = disk
                    borders.add(side.border(count))
                    copies.setdefault(side.neighbour, set()).update(side.leaving(count))
                    taken.append(count)
            if len(taken) > 1:
                more = problem.disk_of(disks[side.neighbour]) - problem.disk_of(before)
                texts.append(_text(side, taken, more))
    found = {name: tuple(sorted(more)) for name, more in copies.items()}
    said = tuple(texts or [_why_nothing(overlap)])
    return replace(overlap, borders=tuple(sorted(borders)), copies=found, texts=said)


def _text(side: _Side, taken: Sequence[int], disk_bytes: float) -> str:
    """`sub-modules 1-2, 3-6 may move from phone to board: 40.3 KiB more disk on board`: what moves as one is a range.

    Args:
        side: the end of the stage.
        taken: sizes of moves, from 0 on.
        disk_bytes: what they take on the neighbour's disk.
    """
    pieces = sorted(sorted({*side.leaving(more)} - {*side.leaving(fewer)}) for fewer, more in pairwise(taken))
    ranges = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in pieces)
    name = "sub-module" if taken[-1] == 1 else "sub-modules"
    where = f"from {side.stage.device} to {side.neighbour}"
    size = format_bytes(disk_bytes) if disk_bytes else "no"
    return f"{name} {ranges} may move {where}: {size} more disk on {side.neighbour}"


def _why_nothing(overlap: Overlap) -> str:
    if len(overlap.devices) == 1:
        return f"nothing may move: all sub-modules are on {next(iter(overlap.devices))}"
    if overlap.shared:
        return "nothing may move: no disk of a neighbour has room for copies (`storage`)"
    return (
        "nothing may move: each device keeps a sub-module, and what else it has fits no neighbour's memory, or may "
        "not be there"
    )


def _sides(stages: Stages, overlap: Overlap) -> Iterator[_Side]:
    """The ends of all stages over which something may leave, in the order of a step."""
    copied = {(copy.submodule, copy.devices) for copy in overlap.shared}
    for place, stage in enumerate(stages):
        for other, is_left in ((place - 1, True), (place + 1, False)):
            if 0 <= other < len(stages):
                neighbour = stages[other].device
                order = stage.indices if is_left else stage.indices[::-1]
                count = _leading(order, {j for j, ends in copied if ends == (stage.device, neighbour)})
                if count:
                    yield _Side(stage, neighbour, is_left, count)


def _leading(order: Sequence[int], wanted: Collection[int]) -> int:
    """How many of the first ones are wanted."""
    return next((count for count, j in enumerate(order) if j not in wanted), len(order))


def _spread(counts: Sequence[int], most: int) -> list[list[int]]:
    """Sizes of moves over each side: at most `most` in all, evenly spaced, the last of each side all that may leave."""
    numbers = [0] * len(counts)
    for _ in range(min(most, sum(counts))):
        place = max(range(len(counts)), key=lambda i: counts[i] / (numbers[i] + 1) * (numbers[i] < counts[i]))
        numbers[place] += 1
    return [
        [-(-count * step // number) for step in range(1, number + 1)]
        for count, number in zip(counts, numbers, strict=True)
    ]
