"""The sum over the devices of a group, written out as instructions: in a ring or through the first device.

Each device has a part of a value, cut into as many slices as there are devices. In a ring device i adds slice i last,
as `partc.plan.shared.collectives` prices it; through the first device all slices are added by rank. The sums are sent,
not added again, so that all devices have the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partc.format.program import Add, Instruction, Recv, Send
from partc.ir.plan import Exchange

Programs = dict[str, list[Instruction]]
"""Device → instructions."""


def part_name(value: str, rank: int, piece: int) -> str:
    """A slice of the part of one device."""
    return f"{value}.part{rank}.{piece}"


def sum_name(value: str, piece: int) -> str:
    """A slice of the sum."""
    return f"{value}.sum.{piece}"


def sum_programs(
    value: str, members: Sequence[str], shares: Sequence[int], exchange: Exchange
) -> Mapping[str, Sequence[Instruction]]:
    """The instructions by which every device gets all slices of the sum; O(devices²).

    Args:
        value: its name.
        members: the devices by rank.
        shares: units of each; one without any has no part, and then the sum goes through the first device.
        exchange: `ring` or `star`.
    """
    in_ring = exchange == "ring" and all(shares)
    return _ring(value, members) if in_ring else _star(value, members, shares)


def _ring(value: str, members: Sequence[str]) -> Programs:
    """Eq. 9-11 without their products: D - 1 steps that add, and D - 1 that hand on."""
    count = len(members)
    programs: Programs = {device: [] for device in members}
    for rank, device in enumerate(members):
        before, behind = members[rank - 1], members[(rank + 1) % count]
        for step in range(count):
            piece = (rank + count - 1 - step) % count
            own = part_name(value, rank, piece)
            total = _so_far(value, rank, piece, count)
            if step:
                came = _so_far(value, (rank - 1) % count, piece, count)
                programs[device] += [Recv((came,), before), Add((came, own), total)]
            if step < count - 1:
                programs[device].append(Send((total,), behind))
        for step in range(count - 1):
            sent, came = (sum_name(value, (rank - step - back) % count) for back in (0, 1))
            programs[device] += [Send((sent,), behind), Recv((came,), before)]
    return programs


def _so_far(value: str, rank: int, piece: int, count: int) -> str:
    """The sum of a slice up to a device of its ring, which begins behind device `piece` and ends there."""
    if rank == (piece + 1) % count:
        return part_name(value, rank, piece)
    return sum_name(value, piece) if rank == piece else f"{part_name(value, rank, piece)}.so.far"


def _star(value: str, members: Sequence[str], shares: Sequence[int]) -> Programs:
    root, *others = members
    pieces = range(len(members))
    parts = {rank: tuple(part_name(value, rank, piece) for piece in pieces) for rank, _ in enumerate(members)}
    sums = tuple(sum_name(value, piece) for piece in pieces)
    with_part = [rank for rank, units in enumerate(shares) if units]
    programs: Programs = {device: [] for device in members}
    for rank in with_part:
        if rank:
            programs[members[rank]].append(Send(parts[rank], root))
            programs[root].append(Recv(parts[rank], members[rank]))
    programs[root] += [Add(tuple(parts[rank][piece] for rank in with_part), sums[piece]) for piece in pieces]
    programs[root] += [Send(sums, device) for device in others]
    for device in others:
        programs[device].append(Recv(sums, root))
    return programs
