"""What no chain takes less than: a bound for its groups and borders, whatever the shares and exchanges.

For the blocks of a group and any shares x (fractions of a kind's blocks, which sum to 1):

- a member is busy with its part, so long as all its parts take, and with what connects the blocks;
- a sum needs the parts of all members, and its result goes to all of them. So from a member's part of a block to its
  part of the next one a value goes around: through all links of the ring (`ring` and `tiles`, but for the member that
  adds the only tile last), or to the first member and back (`star`). With `ring` and `star` that begins when its part
  is done, with `tiles` when a part of it is;
- around the ring of D members a tile of a sum and then one of what is gathered take 2 (D - 1) links for each block (a
  tile of rows with `tiles`, a slice of columns with `ring`), and between them lies what a member computes for all rows.
  There are D such ways through all blocks, and the longest takes no less than their mean;
- the least of max_i (c_i + Σ_k x_ik · t_ik) over x is, for any weights m of the members that sum to 1, no less than
  Σ_i m_i c_i + Σ_k min_i m_i t_ik; taken are weights in proportion to speed, for which that is exact where members
  differ by one factor each.

The last block counts without its exchange, so that bounds of segments may be added where values go from each sub-module
to the next; elsewhere the greatest of them holds. O(sub-modules · devices) for a segment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import assert_never

from partc.format.dims import cut_sizes
from partc.format.plan import Exchange
from partc.planner.groups.chains import EXCHANGES, Chain, Group, Segment
from partc.planner.model.problem import Phase, Problem, Tiling


class ChainBounds:
    """Bounds of the chains of one problem, as costs: seconds of a latency, or of a bottleneck."""

    def __init__(self, problem: Problem) -> None:
        """Segments are looked at once."""
        self._problem = problem
        self._segment_s = cache(self._of_segment)
        self._chained = [
            all((j, j + 1) in pairs for j in range(len(problem.submodules) - 1))
            for pairs in ({(edge.sender, edge.receiver) for edge in phase.edges} for phase in problem.steps)
        ]

    def cost(self, segments: Chain) -> float:
        """No plan of this chain costs less; infinite where weights have no room, or a time that it needs is missing."""
        if any(not self._fits(segment) for segment in segments):
            return math.inf
        steps = list(enumerate(self._problem.steps))
        match self._problem.objective:
            case "latency":
                return sum(phase.weight * self._latency(segments, number) for number, phase in steps)
            case "throughput":
                return max(
                    sum(phase.weight * self._segment_s(segment, number, busy=True) for number, phase in steps)
                    for segment in segments
                )
            case _:
                assert_never(self._problem.objective)

    def _latency(self, segments: Chain, number: int) -> float:
        parts = [self._segment_s(segment, number) for segment in segments]
        if not self._chained[number]:
            return max(parts)
        return sum(parts) + sum(self._least_latency(a.group, b.group) for a, b in pairwise(segments))

    def _least_latency(self, senders: Group, receivers: Group) -> float:
        links = self._problem.link_of
        pairs = [links[a, b].latency_s for a in senders for b in receivers if (a, b) in links]
        return min(pairs, default=math.inf)

    def _fits(self, segment: Segment) -> bool:
        """Whether the weights and states of a segment may have room on all its devices together."""
        problem = self._problem
        if len(segment.group) == 1:
            needed = problem.interval_memory(segment.first, segment.last)
        else:
            needed = sum(problem.submodules[j].memory_bytes for j in segment.indices)
        room = sum(problem.device_of[name].room_bytes for name in segment.group)
        return needed <= room * (1 + 1e-12)

    def _of_segment(self, segment: Segment, number: int, *, busy: bool = False) -> float:
        """Seconds of a segment in a phase; with `busy` those of its busiest device."""
        phase, group = self._problem.steps[number], segment.group
        times = [[phase.time_s[j].get(name, math.inf) for j in segment.indices] for name in group]
        if len(group) == 1:
            return sum(times[0])
        shared = [j - segment.first for j in segment.indices if self._problem.submodules[j].block]
        if math.isinf(sum(times[0])) or any(math.isinf(mine[j]) for mine in times for j in shared):
            return math.inf
        work = _Work.of(self._problem, phase, segment, times)
        if busy:
            return work.least([work.alone[i] + work.tiled[i] for i in range(len(group))])
        return min(self._exchanged(work, group, exchange) for exchange in EXCHANGES)

    def _exchanged(self, work: _Work, group: Group, exchange: Exchange) -> float:
        around = [self._around(work.tilings[:-1], group, exchange, place) for place in range(len(group))]
        along = 0.0 if exchange == "star" else self._along(work, group, exchange)
        if exchange == "tiles":
            computed = work.least([work.alone[i] + work.tiled[i] for i in range(len(group))])
            return max(computed, along, *around)
        return max(along, work.least([work.alone[i] + work.whole[i] + around[i] for i in range(len(group))]))

    def _along(self, work: _Work, group: Group, exchange: Exchange) -> float:
        """The mean of the ways of tiles through all blocks but the last."""
        count, total = len(group), 0.0
        for tiling, least_s in zip(work.tilings[:-1], work.least_s, strict=False):
            tile = min(_tiles(tiling, count, exchange))
            if tile:
                sizes = tiling.summed_bytes, _before(tiling, exchange)
                links = sum(self._message_s(way, size * tile) for size in sizes for way in _ways(group))
                products = tiling.enter + tiling.leave
                rest = 1 - tiling.connect - products
                part = rest + products * (tile if exchange == "tiles" else 1.0)
                total += ((count - 1) * links + part * least_s) / count
        return total

    def _around(self, tilings: Sequence[Tiling], group: Group, exchange: Exchange, place: int) -> float:
        """Seconds of the messages from a member's parts of these blocks to its parts of the next ones."""
        if exchange == "star":
            if place == 0:
                return 0.0
            both = (group[0], group[place]), (group[place], group[0])
            return sum(self._message_s(way, tiling.summed_bytes) for tiling in tilings for way in both)
        return sum(
            self._message_s(way, _before(tiling, exchange) * tile)
            for tiling in tilings
            if (tile := _others_tile(_tiles(tiling, len(group), exchange), place))
            for way in _ways(group)
        )

    def _message_s(self, way: tuple[str, str], count: float) -> float:
        link = self._problem.link_of.get(way)
        return link.seconds(count) if link else math.inf


@dataclass(frozen=True)
class _Work:
    """The seconds of the members of a group."""

    alone: list[float]
    """Sub-modules without a block."""
    whole: list[float]
    """What connects the blocks, for all rows, but for the last block."""
    tiled: list[float]
    """The same for the rows of the own tile."""
    blocks: dict[str, list[float]]
    """Kind → all blocks of that kind, without what connects them; as if parts were as efficient as the whole."""
    tilings: list[Tiling]
    """Of the blocks, in their order."""
    least_s: list[float]
    """Seconds of each block on its fastest member."""

    @classmethod
    def of(cls, problem: Problem, phase: Phase, segment: Segment, times: Sequence[Sequence[float]]) -> _Work:
        """`times`: member → seconds of each sub-module of the segment."""
        count = len(segment.group)
        pairs = [(j, problem.submodules[j].block, phase.tilings[j]) for j in segment.indices]
        shared = [(j - segment.first, block, tiling) for j, block, tiling in pairs if block and tiling]
        others = [j - segment.first for j, block, _ in pairs if block is None]
        kinds: dict[str, list[tuple[int, Tiling]]] = {}
        for j, block, tiling in shared:
            kinds.setdefault(block.share, []).append((j, tiling))
        return cls(
            alone=[sum(times[i][j] for j in others) if i == 0 else 0.0 for i in range(count)],
            whole=[sum(mine[j] * tiling.connect for j, _, tiling in shared[:-1]) for mine in times],
            tiled=[
                sum(
                    times[i][j] * tiling.connect * cut_sizes(tiling.rows, count)[i] / tiling.rows
                    for j, _, tiling in shared[:-1]
                )
                for i in range(count)
            ],
            blocks={
                kind: [sum(mine[j] * (1 - tiling.connect) for j, tiling in items) for mine in times]
                for kind, items in kinds.items()
            },
            tilings=[tiling for _, _, tiling in shared],
            least_s=[min(mine[j] for mine in times) for j, _, _ in shared],
        )

    def least(self, constant: Sequence[float]) -> float:
        """The least of the greatest `constant` + part of the blocks, over all shares."""
        totals = [sum(mine[i] for mine in self.blocks.values()) for i in range(len(constant))]
        if math.isinf(max(constant)) or min(totals) <= 0:
            return max(constant)
        speeds = [1 / total for total in totals]
        weights = [speed / sum(speeds) for speed in speeds]
        shared = sum(min(w * t for w, t in zip(weights, mine, strict=True)) for mine in self.blocks.values())
        return max(*constant, sum(w * c for w, c in zip(weights, constant, strict=True)) + shared)


def _ways(group: Group) -> list[tuple[str, str]]:
    """The links of the ring."""
    return list(zip(group, (*group[1:], group[0]), strict=True))


def _tiles(tiling: Tiling, count: int, exchange: Exchange) -> list[float]:
    """The fractions of a sum that go around a ring: tiles of rows, or equal slices of columns."""
    if exchange == "ring":
        return [1 / count] * count
    return [rows / tiling.rows for rows in cut_sizes(tiling.rows, count)]


def _before(tiling: Tiling, exchange: Exchange) -> float:
    """Bytes of all rows that the devices gather for the next block."""
    return tiling.activation_bytes if exchange == "tiles" else tiling.summed_bytes


def _others_tile(tiles: Sequence[float], place: int) -> float:
    """The largest tile that another member than this one adds last."""
    return max(tile for number, tile in enumerate(tiles) if number != place)
