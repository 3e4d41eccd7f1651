"""Pieces: sub-modules that no placement of a build cuts, in one way of sharing them; and where placements have them.

A piece of one device is one graph and one call, whichever device has it. One that several devices share has a graph for
each rank, in sections. Where phases or placements share the same sub-modules alike, they have the same piece.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from partc.format.placement import Stages
from partc.format.plan import PlanFile, SharedStage, SharedStages, losses_of
from partc.format.program import piece_of

Phases = Mapping[str, SharedStages]
"""Phase → its stages: one placement."""

_Held = tuple[tuple[str, ...], str, tuple[int, ...]]
"""Devices, how they share a sub-module, and the units of each."""


@dataclass(frozen=True)
class Piece:
    """Consecutive sub-modules in one way of sharing them."""

    first: int
    shares: tuple[tuple[str, tuple[int, ...]], ...]
    """For each sub-module how it is shared, and the units of each device."""
    count: int = 1
    """Devices."""

    @property
    def indices(self) -> range:
        """All sub-modules."""
        return range(self.first, self.first + len(self.shares))

    @property
    def submodules(self) -> tuple[int, int]:
        """First and last, inclusive."""
        return self.first, self.indices[-1]


@dataclass(frozen=True)
class Placed:
    """A piece on its devices, by rank."""

    piece: Piece
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """One placement: its stages, and its pieces."""

    stages: Phases
    placed: Mapping[str, tuple[Placed, ...]]
    """Phase → pieces, in the order of a step."""


def part_name(number: int) -> str:
    """The name of a piece; of its graph and its file, where one device has it."""
    return f"part_{number}"


def section_name(number: int, section: int, rank: int) -> str:
    """The name of the graph of one device that shares a piece."""
    return f"{part_name(number)}_{section}_{rank}"


def piece_name(graph: str) -> str:
    """The name of the piece that a graph belongs to."""
    return "_".join(piece_of(graph).split("_")[:2])


def named_pieces(plan: PlanFile) -> dict[str, Piece]:
    """Name → piece of a build, in the order of a step."""
    planned, without = layouts_of(plan, ["prefill"])
    return {part_name(n): piece for n, piece in enumerate(pieces_of([planned, *without.values()]))}


def pieces_of(layouts: Sequence[Layout]) -> list[Piece]:
    """The pieces of all placements, in the order of a step."""
    found = dict.fromkeys(
        placed.piece for layout in layouts for some in layout.placed.values() for placed in some
    )
    return sorted(found, key=lambda piece: piece.first)


def layouts_of(plan: PlanFile, phases: Sequence[str]) -> tuple[Layout, dict[str, Layout]]:
    """The pieces of a plan, and lost device → those of the plan for its loss.

    Pieces end where the plan cuts, where one for a loss does, and where work can be moved.

    Args:
        plan: with stages.
        phases: of a plan whose stages have one device each, the same in all of them.
    """
    planned = plan.answer.phases or _alike(plan.stages, phases)
    after = {
        loss.device: loss.phases or _alike(loss.stages, phases) for loss in losses_of(plan) if loss.stages
    }
    further = plan.overlap.borders if plan.overlap else ()
    found, *others = cut_into_pieces([planned, *after.values()], further)
    return found, dict(zip(after, others, strict=True))


def _alike(stages: Stages, phases: Sequence[str]) -> Phases:
    """The same stages of one device each in all phases."""
    plain = tuple(SharedStage(stage.submodules, stage.devices, stage.share) for stage in stages)
    return dict.fromkeys(phases, plain)


def cut_into_pieces(placements: Sequence[Phases], further: Collection[int] = ()) -> list[Layout]:
    """The pieces of placements; O(placed sub-modules).

    They are cut where devices change in any of them, and where it changes which of them share sub-modules alike: these
    have the same pieces, and so the same graphs and weights.

    Args:
        placements: each has all sub-modules in every phase.
        further: sub-modules before which pieces begin besides.
    """
    held = [_held(phases) for phases in placements]
    ways = [
        [(share, units, len(devices)) for devices, share, units in row]
        for rows in held
        for row in rows.values()
    ]
    borders = {*further}.union(
        *map(_borders, placements), *(_unlike([*rows.values()]) for rows in held), _unlike(ways)
    )
    count = len(next(iter(held[0].values())))
    ends = [0, *sorted(j for j in borders if 0 < j < count), count]
    return [
        Layout(phases, {phase: tuple(_placed(row, ends)) for phase, row in rows.items()})
        for phases, rows in zip(placements, held, strict=True)
    ]


def _held(phases: Phases) -> dict[str, list[_Held]]:
    """Phase → who has each sub-module, and how; where two phases agree, it is the same."""
    rows = [
        [(stage.devices, stage.share, _units(stage)) for stage in stages for _ in stage.indices]
        for stages in phases.values()
    ]
    columns = [_common(column) for column in zip(*rows, strict=True)]
    return {phase: list(row) for phase, row in zip(phases, zip(*columns, strict=True), strict=True)}


def _units(stage: SharedStage) -> tuple[int, ...]:
    """The units of each device; none where rows are divided, which are others in each step."""
    return () if stage.share == "sequence" else stage.shares


def _common(column: Sequence[_Held]) -> list[_Held]:
    """A sub-module by phase, where one of the devices that have all of it may compute it alone."""
    whole = next((held for held in column if held[1] == "sequence"), None)
    return [whole if whole and held[1] == "one" and held[0][0] in whole[0] else held for held in column]


def _borders(phases: Phases) -> set[int]:
    """The sub-modules before which the devices change in some phase."""
    return {
        behind.first
        for stages in phases.values()
        for before, behind in pairwise(stages)
        if before.devices != behind.devices
    }


def _unlike(rows: Sequence[Sequence[object]]) -> set[int]:
    """The sub-modules before which it changes which rows agree."""
    columns = zip(*rows, strict=True)
    alike = [[column.index(held) for held in column] for column in columns]
    return {j for j in range(1, len(alike)) if alike[j] != alike[j - 1]}


def _placed(row: Sequence[_Held], ends: Sequence[int]) -> Iterator[Placed]:
    for first, end in pairwise(ends):
        devices = row[first][0]
        shares = tuple((share, units) for _, share, units in row[first:end])
        yield Placed(Piece(first, shares, len(devices)), devices)
