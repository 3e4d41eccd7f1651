"""Gathers and sums among the devices of a group, written out as instructions.

They are those that `partc.planner.groups.collectives` prices: in a ring tile by tile, with the calls that compute in
between (Eq. 7-11), or through the first device. What is added is added in an order that is known beforehand: in the
ring from the device behind the owner of a tile to the owner, through the first device by rank. Sums are sent, not added
again, so all devices have the same bits. All of it is O(devices²) instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from partc.format.program import Add, Cut, Instruction, Join, Recv, Send

Calls = Callable[[int, int], Sequence[Instruction]]
"""(rank, tile) → what the device computes before it goes on."""


def tile_name(value: str, tile: int, count: int) -> str:
    """The rows of a value that are one of `count` tiles."""
    return f"{value}.rows{tile}of{count}"


def sum_name(value: str) -> str:
    """The sum of all shares of a product, before its bias; a whole model has no such value."""
    return f"{value}.sum"


def columns_name(value: str, piece: int, count: int) -> str:
    """One of `count` slices of the columns of a value."""
    return f"{value}.columns{piece}of{count}"


def nothing(rank: int, tile: int) -> Sequence[Instruction]:
    """No calls."""
    return ()


@dataclass(frozen=True)
class Group:
    """The devices of a stage, by rank, and their programs so far."""

    members: tuple[str, ...]
    programs: tuple[list[Instruction], ...] = field(default=())

    @classmethod
    def of(cls, members: Sequence[str]) -> Group:
        """Devices that have done nothing."""
        return cls(tuple(members), tuple([] for _ in members))

    @property
    def count(self) -> int:
        """Devices."""
        return len(self.members)

    def write(self, rank: int, *items: Instruction) -> None:
        """Go on with the program of a device."""
        self.programs[rank].extend(items)

    def gather(self, names: Callable[[int], tuple[str, ...]], calls: Calls = nothing) -> None:
        """All tiles on all devices (Eq. 7, 8): each is sent on before the device computes with it.

        Args:
            names: tile → the values that travel together.
            calls: what is computed with a tile.
        """
        for rank in range(self.count):
            for step in range(self.count):
                tile, following = (rank - step) % self.count, (rank - step - 1) % self.count
                travels = step < self.count - 1
                if travels:
                    self.write(rank, Send(names(tile), self._behind(rank)))
                self.write(rank, *calls(rank, tile))
                if travels:
                    self.write(rank, Recv(names(following), self._before(rank)))

    def reduce_scatter(
        self, total: Callable[[int], str], part: Callable[[int, int], str | None], calls: Calls = nothing
    ) -> None:
        """Tile i of a sum on device i (Eq. 9-11): each tile comes past all devices, and to its owner last.

        Args:
            total: tile → its sum.
            part: (rank, tile) → what the device adds; None where it has no share.
            calls: what makes that part, while what the device before has is on its way.
        """

        def carried(rank: int, tile: int) -> str | None:
            """The name of the sum so far that leaves a device, or stays there."""
            own = part(rank, tile)
            came = None if rank == (tile + 1) % self.count else carried((rank - 1) % self.count, tile)
            if rank == tile:
                return total(tile)
            return f"{total(tile)}.to{rank}" if own and came else own or came

        for rank in range(self.count):
            for step in range(self.count):
                tile = (rank + self.count - 1 - step) % self.count
                self.write(rank, *calls(rank, tile))
                came = carried((rank - 1) % self.count, tile) if step else None
                if came:
                    self.write(rank, Recv((came,), self._before(rank)))
                terms, result = tuple(filter(None, (came, part(rank, tile)))), carried(rank, tile)
                if result and terms and terms != (result,):
                    self.write(rank, Add(terms, result))
                if result and step < self.count - 1:
                    self.write(rank, Send((result,), self._behind(rank)))

    def all_reduce_ring(self, total: str, parts: Sequence[str | None], axis: int) -> None:
        """A sum on all devices: a sum by slices of columns in the ring, then a gather of them.

        Args:
            total: the sum.
            parts: by rank.
            axis: of the columns.
        """
        pieces = range(self.count)
        for rank, name in enumerate(parts):
            if name:
                self.write(rank, Cut(name, tuple(columns_name(name, at, self.count) for at in pieces), axis))
        slices = tuple(columns_name(total, piece, self.count) for piece in pieces)

        def part(rank: int, piece: int) -> str | None:
            name = parts[rank]
            return columns_name(name, piece, self.count) if name else None

        self.reduce_scatter(lambda piece: slices[piece], part)
        self.gather(lambda piece: (slices[piece],))
        for rank in pieces:
            self.write(rank, Join(slices, total, axis))

    def all_reduce_star(self, total: str, parts: Sequence[str | None]) -> None:
        """A sum on all devices, through the first."""
        root, *others = self.members
        for rank, name in enumerate(parts):
            if rank and name:
                self.write(rank, Send((name,), root))
                self.write(0, Recv((name,), self.members[rank]))
        self.write(0, Add(tuple(filter(None, parts)), total))
        for rank, device in enumerate(others, 1):
            self.write(0, Send((total,), device))
            self.write(rank, Recv((total,), root))

    def _before(self, rank: int) -> str:
        return self.members[rank - 1]

    def _behind(self, rank: int) -> str:
        return self.members[(rank + 1) % self.count]
