"""Gathers and sums among the devices of a stage: Galaxy, section III-D, Eq. 7-11, and the exchanges of decode.

D devices hold one tile each: device i has rows rows·i//D to rows·(i+1)//D (`partc.format.dims.cut_sizes`). All
functions take and return the time at which each device is ready, in seconds from the start of the step. O(D²).

A gather in a ring: device i hands every tile on to device i+1 as soon as it has it. With a product (Eq. 7, 8) it
multiplies, in its step k = 0 … D-1, tile (i-k) mod D, while the next one arrives; the last step has no traffic.
A sum in a ring (Eq. 9-11) is the mirror image: in its step k device i multiplies tile (i+D-1-k) mod D, adds what
device i-1 made of it, and hands the sum on to i+1, or keeps it in the last step, where it is tile i. So every tile is
summed in the order of the ring, whatever arrives first. A tile without rows (fewer rows than devices) is neither sent
nor computed. Where all devices get all rows of a sum, its tiles are slices of columns: of one row, too, each has some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from partc.format.plan import TILES
from partc.planner.groups.lanes import Lanes

Times = list[float]
"""A time for each device of a group, in the order of the ring."""


@dataclass(frozen=True)
class Ring:
    """The devices of a stage, and a value that is divided among them by rows."""

    members: tuple[str, ...]
    lanes: Lanes
    rows: tuple[int, ...]
    """Rows of each tile."""
    bytes: float
    """Size of all rows."""
    overlap: bool = True
    """Whether messages travel while products are computed."""

    def tile_bytes(self, tile: int) -> float:
        """Bytes of one tile."""
        return self.bytes * self.rows[tile] / sum(self.rows)

    def send(self, i: int, tile: int, ready_s: float) -> float:
        """The arrival of a tile at the device behind device i."""
        if not self.rows[tile]:
            return ready_s
        following = self.members[(i + 1) % len(self.members)]
        return self.lanes.send(self.members[i], following, (TILES,), ready_s, self.tile_bytes(tile))

    def product(self, i: int, work: str, ready_s: float, seconds: float) -> float:
        """The end of some work on device i; none takes no time."""
        return self.lanes.compute(self.members[i], work, ready_s, seconds) if seconds else ready_s


def gather(ring: Ring, ready: Sequence[float], seconds: Sequence[float] = ()) -> Times:
    """All tiles on all devices, multiplied: when the last product of each device is done.

    Args:
        ring: the tiles.
        ready: when each device has its own tile.
        seconds: of the product of all rows on each device; empty: nothing is computed.
    """
    count, total = len(ring.members), sum(ring.rows)
    work = list(seconds) or [0.0] * count
    here, done = list(ready), list(ready)
    for k in range(count):
        tiles = [(i - k) % count for i in range(count)]
        # A tile that comes while the one before is multiplied is sent on behind that, as programs have it.
        done = [
            max(at, came) if ring.rows[tile] else at for at, came, tile in zip(done, here, tiles, strict=True)
        ]
        if k < count - 1:
            arrivals = [ring.send(i, tile, done[i]) for i, tile in enumerate(tiles)]
            here = [arrivals[i - 1] for i in range(count)]
        for i, tile in enumerate(tiles):
            part = work[i] * ring.rows[tile] / total if ring.overlap else 0.0
            done[i] = ring.product(i, "enter", done[i], part)
    if ring.overlap:
        return done
    return [ring.product(i, "enter", done[i], work[i]) for i in range(count)]


def reduce_scatter(ring: Ring, ready: Sequence[float], seconds: Sequence[float] = ()) -> Times:
    """Products, summed over all devices: when device i has tile i of the sum.

    Args:
        ring: the tiles.
        ready: when each device can begin its product.
        seconds: of the product of all rows on each device; empty: it is done already.
    """
    count, total = len(ring.members), sum(ring.rows)
    work = list(seconds) or [0.0] * count
    done = list(ready)
    if not ring.overlap:
        done = [ring.product(i, "leave", done[i], work[i]) for i in range(count)]
        work = [0.0] * count
    arrivals = [0.0] * count
    for k in range(count):
        tiles = [(i + count - 1 - k) % count for i in range(count)]
        for i, tile in enumerate(tiles):
            if ring.rows[tile]:
                part = work[i] * ring.rows[tile] / total
                done[i] = max(ring.product(i, "leave", done[i], part), arrivals[i])
        if k < count - 1:
            sent = [ring.send(i, tile, done[i]) for i, tile in enumerate(tiles)]
            arrivals = [sent[i - 1] for i in range(count)]
    return done


def all_reduce_ring(ring: Ring, ready: Sequence[float]) -> Times:
    """The sum of all rows on all devices: a sum by slices of columns, as many as devices, then a gather of them."""
    slices = replace(ring, rows=(1,) * len(ring.members))
    return gather(slices, reduce_scatter(slices, ready))


def all_reduce_star(ring: Ring, ready: Sequence[float]) -> Times:
    """The same through the first device, which adds by rank and sends the sum to all others."""
    root, *others = ring.members
    sent = [
        ring.lanes.send(name, root, (TILES,), at, ring.bytes)
        for name, at in zip(others, ready[1:], strict=True)
    ]
    summed = max(ready[0], *sent)
    return [summed, *(ring.lanes.send(root, name, (TILES,), summed, ring.bytes) for name in others)]
