"""One step of a phase through stages of one or several devices, in lanes.

A unit begins when its values are there, on each of its devices for itself. A block of several devices then goes
through these, by the exchange of its stage:

| exchange | before | behind |
| --- | --- | --- |
| `tiles` | gather, with the products that enter | products that leave, with the sum by tiles; connect on a tile |
| `ring` | gather, where rows lie in tiles | sum by tiles, and gather; connect on all rows |
| `star` | gather, where rows lie in tiles | sum through the first device; connect on all rows |
| shared by `sequence` | nothing; attention gathers keys, values and perhaps queries | connect on a tile |

Where a unit is entered all its devices have all rows. Seconds of a share are those of the whole block, times the
share, divided by the block's efficiency: a model in which kernels gain in proportion. The sums themselves are free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partc.format.dims import cut_sizes
from partc.format.plan import SharedStage, SharedStages, Timeline
from partc.planner.groups.collectives import (
    Ring,
    Times,
    all_reduce_ring,
    all_reduce_star,
    gather,
    reduce_scatter,
)
from partc.planner.groups.lanes import Lanes
from partc.planner.groups.timeline import timeline_of
from partc.planner.groups.units import Transfer, Unit, results_back, transfers, units_of
from partc.planner.model.problem import Block, Phase, Problem, Tiling


@dataclass(frozen=True)
class Part:
    """A block of several devices in a step."""

    block: Block
    tiling: Tiling
    shares: tuple[float, ...]
    """Fraction of the block on each device."""
    rows: tuple[int, ...]
    """Rows of each tile."""
    time_s: tuple[float, ...]
    """Seconds of the whole block on each device alone."""

    def seconds(self, fraction: float) -> list[float]:
        """Seconds that each device takes for its share of this fraction of the block."""
        return [
            whole * fraction * share / (self.block.efficiency if share < 1 else 1.0)
            for whole, share in zip(self.time_s, self.shares, strict=True)
        ]

    def connect_s(self, *, tiled: bool) -> list[float]:
        """Seconds of residual sums and normalisations on each device: of its tile, or of all rows."""
        total = sum(self.rows)
        return [
            whole * self.tiling.connect * (rows / total if tiled else 1.0)
            for whole, rows in zip(self.time_s, self.rows, strict=True)
        ]

    @property
    def inner(self) -> float:
        """Fraction of the time that is neither at the ends nor between blocks: attention itself, an activation."""
        return max(0.0, 1 - self.tiling.enter - self.tiling.leave - self.tiling.connect)


@dataclass(frozen=True)
class SharedStep:
    """The course of one step."""

    timeline: Timeline
    lanes: Lanes


class _Walk:
    """The state of a step between two stages."""

    def __init__(self, problem: Problem, phase: Phase, units: Sequence[Unit], overlap: bool) -> None:
        self.problem, self.phase, self.units, self.overlap = problem, phase, units, overlap
        self.lanes = Lanes(problem.link_of)
        self.ready: list[Times] = []
        """Unit → when each of its devices has finished it."""
        self.tiled: list[bool] = []
        """Unit → whether its devices end with a tile each, instead of all rows."""
        self.rows: list[tuple[int, ...]] = []
        """Unit → rows of the tile of each device."""

    def enter(self, number: int, incoming: Sequence[Transfer]) -> Times:
        """When each device of a unit has all that it reads of others."""
        unit = self.units[number]
        arrived = dict.fromkeys(unit.devices, 0.0)
        for transfer in incoming:
            arrived[transfer.device] = max(arrived[transfer.device], self.deliver(transfer))
        return list(arrived.values())

    def deliver(self, transfer: Transfer) -> float:
        """The arrival of the last message of a transfer."""
        self.lanes.units = transfer.maker, transfer.reader
        return max(
            (
                at
                if sender == transfer.device
                else self.lanes.send(sender, transfer.device, transfer.values, at, count)
                for sender, at, count in self.pieces(transfer)
            ),
            default=0.0,
        )

    def pieces(self, transfer: Transfer) -> Iterator[tuple[str, float, float]]:
        """(sender, when it has it, bytes) of the messages of a transfer; the receiver's own piece is among them."""
        maker = self.units[transfer.maker]
        rows, ready = self.rows[transfer.maker], self.ready[transfer.maker]
        if self.tiled[transfer.maker]:
            for name, at, part in zip(maker.devices, ready, rows, strict=True):
                if part:
                    yield name, at, transfer.bytes * part / sum(rows)
            return
        sender = maker.devices.index(transfer.device) if transfer.device in maker.devices else 0
        yield maker.devices[sender], ready[sender], transfer.bytes

    def compute(self, number: int, ready: Times) -> None:
        """Follow the stages of a unit."""
        unit = self.units[number]
        self.lanes.units = number, number
        tiled, rows = False, tuple(0 for _ in unit.devices)
        for stage in unit.stages:
            for j in stage.indices:
                if len(stage.devices) == 1:
                    seconds = self.phase.time_s[j][stage.device]
                    ready = [self.lanes.compute(stage.device, "alone", ready[0], seconds)]
                else:
                    part = part_of(self.problem, self.phase, stage, j)
                    rows = part.rows
                    ready = self.share(stage, part, ready, tiled=tiled)
                    tiled = stage.exchange == "tiles" or stage.share == "sequence"
        self.ready.append(ready)
        self.tiled.append(tiled)
        self.rows.append(rows)

    def share(self, stage: SharedStage, part: Part, ready: Times, *, tiled: bool) -> Times:
        """Follow one block of several devices."""
        if stage.share == "sequence":
            return self.by_rows(stage, part, ready)
        ring, sums = (
            Ring(stage.devices, self.lanes, part.rows, size, self.overlap)
            for size in (part.tiling.activation_bytes, part.tiling.summed_bytes)
        )
        enter = part.seconds(part.tiling.enter)
        tiles = stage.exchange == "tiles"
        if not tiled:
            ready = self.run(stage, "enter", ready, enter)
        elif tiles:
            ready = gather(ring, ready, enter)
        else:
            ready = self.run(stage, "enter", gather(ring, ready), enter)
        ready = self.run(stage, "inner", ready, part.seconds(part.inner))
        leave = part.seconds(part.tiling.leave)
        if tiles:
            ready = reduce_scatter(sums, ready, leave)
        else:
            ready = self.run(stage, "leave", ready, leave)
            reduce = all_reduce_ring if stage.exchange == "ring" else all_reduce_star
            ready = reduce(sums, ready)
        return self.run(stage, "connect", ready, part.connect_s(tiled=tiles))

    def by_rows(self, stage: SharedStage, part: Part, ready: Times) -> Times:
        """A block whose rows are divided; keys, values and perhaps queries are gathered in between."""
        tiling = part.tiling
        ready = self.run(stage, "enter", ready, part.seconds(tiling.enter))
        for size in (tiling.keys_bytes / 2, tiling.keys_bytes / 2, tiling.queries_bytes):
            if size:
                ready = gather(Ring(stage.devices, self.lanes, part.rows, size), ready)
        inner = (
            [part.inner * whole for whole in part.time_s]
            if tiling.queries_bytes
            else part.seconds(part.inner)
        )
        ready = self.run(stage, "inner", ready, inner)
        ready = self.run(stage, "leave", ready, part.seconds(part.tiling.leave))
        return self.run(stage, "connect", ready, part.connect_s(tiled=True))

    def run(self, stage: SharedStage, work: str, ready: Times, seconds: Sequence[float]) -> Times:
        """Some work of each device, without a message."""
        return [
            self.lanes.compute(name, work, at, taken) if taken else at
            for name, at, taken in zip(stage.devices, ready, seconds, strict=True)
        ]


def part_of(problem: Problem, phase: Phase, stage: SharedStage, j: int) -> Part:
    """Sub-module `j` of a stage of several devices."""
    block, tiling = problem.submodules[j].block, phase.tilings[j]
    assert block is not None
    assert tiling is not None
    rows = tuple(cut_sizes(tiling.rows, len(stage.devices)))
    units = rows if stage.share == "sequence" else stage.shares
    shares = tuple(unit / sum(units) for unit in units)
    times = tuple(phase.time_s[j][name] for name in stage.devices)
    return Part(block, tiling, shares, rows, times)


def follow_shared(
    problem: Problem, phase: Phase, stages: SharedStages, *, overlap: bool = True
) -> SharedStep:
    """One step; every time that it needs must be there. O(sub-modules · devices²).

    Links that are not there are in `Lanes.missing`.

    `overlap`: messages of tiles travel while products are computed.
    """
    units = units_of(stages)
    walk = _Walk(problem, phase, units, overlap)
    between = transfers(phase.edges, units)
    for number in range(len(units)):
        incoming = [transfer for transfer in between if transfer.reader == number]
        walk.compute(number, walk.enter(number, incoming))
    end = max(walk.deliver(transfer) for transfer in results_back(phase, units, problem.source))
    return SharedStep(timeline_of(phase, units, walk.lanes, end), walk.lanes)
