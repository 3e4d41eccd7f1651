"""Pieces: the parts of the graph that can be placed, and the planning problem over them.

A piece is consecutive sub-modules of the plan in one file. A graph is cut into pieces once, at compile time; a
placement gives each piece to one of the devices on whose disks it lies. So a re-plan is an ordinary planning problem
with pieces for sub-modules, in which a device has no time for what it does not hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from partc.errors import PlanError
from partc.format.placement import Stage, Stages
from partc.planner.model.problem import Edge, Phase, Problem, Shared, Submodule


@dataclass(frozen=True)
class Piece:
    """Consecutive sub-modules that are compiled together."""

    first: int
    """The first sub-module of the plan."""
    last: int
    """The last one, inclusive."""
    holders: frozenset[str]
    """Devices on whose disks it lies."""

    @property
    def indices(self) -> range:
        """All sub-modules."""
        return range(self.first, self.last + 1)

    @property
    def span(self) -> str:
        """Their numbers: `8-11`."""
        return f"{self.first}-{self.last}" if self.last > self.first else f"{self.first}"


Pieces = tuple[Piece, ...]
"""Pieces in the order of a step; together they hold every sub-module once."""


def piece_problem(problem: Problem, pieces: Pieces) -> Problem:
    """The problem whose sub-modules are the pieces; O(sub-modules x devices + edges).

    Values, times, messages and memory of its plans are those of `problem`, but for one case: where a piece has several
    shared groups, all but the first count as its own memory, so that no plan needs more than it says.
    """
    home = [place for place, piece in enumerate(pieces) for _ in piece.indices]
    submodules = tuple(_submodule(problem, piece) for piece in pieces)
    phases = tuple(_phase(phase, pieces, home) for phase in problem.phases)
    return replace(problem, submodules=submodules, phases=phases, edges=_edges(problem.edges, home))


def to_pieces(stages: Stages, pieces: Pieces) -> Stages:
    """Stages of sub-modules as stages of pieces.

    Raises:
        PlanError: a stage ends inside a piece.
    """
    firsts = [piece.first for piece in pieces]

    def place(index: int, is_end: bool) -> int:
        found = bisect_right(firsts, index) - 1
        if index != (pieces[found].last if is_end else pieces[found].first):
            spans = ", ".join(piece.span for piece in pieces)
            raise PlanError(
                f"sub-modules {pieces[found].span} are one piece: no stage can end inside it",
                hint=f"the pieces are {spans}; `overlap:` in devices.yaml makes more",
            )
        return found

    return tuple(
        replace_span(stage, place(stage.first, is_end=False), place(stage.last, is_end=True))
        for stage in stages
    )


def to_submodules(stages: Stages, pieces: Pieces) -> Stages:
    """Stages of pieces as stages of sub-modules of the plan."""
    return tuple(replace_span(stage, pieces[stage.first].first, pieces[stage.last].last) for stage in stages)


def replace_span(stage: Stage, first: int, last: int) -> Stage:
    """The same devices with other sub-modules."""
    return Stage((first, last), stage.devices, stage.share)


def _submodule(problem: Problem, piece: Piece) -> Submodule:
    parts = [problem.submodules[j] for j in piece.indices]
    groups = {part.shared.name: part.shared for part in parts if part.shared}
    kept: Shared | None = next(iter(groups.values()), None)
    others = sum(group.bytes for group in groups.values()) - (kept.bytes if kept else 0)
    return Submodule(
        memory_bytes=sum(part.memory_bytes for part in parts) + others,
        time_s=_times([part.time_s for part in parts], piece.holders),
        peak_bytes=max(part.peak_bytes for part in parts),
        shared=kept,
    )


def _phase(phase: Phase, pieces: Pieces, home: Sequence[int]) -> Phase:
    times = tuple(_times([phase.time_s[j] for j in piece.indices], piece.holders) for piece in pieces)
    return replace(phase, time_s=times, edges=_edges(phase.edges, home))


def _times(parts: Sequence[Mapping[str, float]], holders: frozenset[str]) -> dict[str, float]:
    """Device → seconds of all parts, for those that hold them and can run each."""
    able = [name for name in parts[0] if name in holders and all(name in part for part in parts)]
    return {name: sum(part[name] for part in parts) for name in able}


def _edges(edges: Sequence[Edge], home: Sequence[int]) -> tuple[Edge, ...]:
    """The edges between pieces; a value that has a name is told from others by the sub-module that makes it."""
    return tuple(
        Edge(home[edge.sender], home[edge.receiver], edge.bytes, edge.value and f"{edge.sender}:{edge.value}")
        for edge in edges
        if home[edge.sender] != home[edge.receiver]
    )
