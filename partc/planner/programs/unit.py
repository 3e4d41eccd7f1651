"""The programs of one unit: the rows of values that its devices have, and the exchanges that follow from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from partc.errors import PlanError
from partc.format.program import Cut, Instruction, Join, Recv, Run, Send
from partc.planner.programs.exchanges import Group, tile_name
from partc.planner.programs.work import Call, Calls, Compute, Item, Sum, UnitWork, Values


class Rows(Enum):
    """The rows of a value that the devices of a unit have."""

    ALL = auto()
    OWN = auto()
    """Device i the tile i."""
    TILES = auto()
    """All devices all tiles, which have not been joined."""


@dataclass
class Unit:
    """A unit whose programs are being written."""

    work: UnitWork
    group: Group
    values: Values
    readers: Mapping[str, Collection[str]]
    """Value → the devices that read it in later units."""
    _rows: dict[str, Rows] = field(default_factory=dict)
    """What is known of values; all rows of the others are there."""
    _cut: set[str] = field(default_factory=set)
    """Values that are there whole and in tiles."""
    alone: dict[str, int] = field(default_factory=dict)
    """Value that only one device has whole → its rank."""

    def write(self) -> None:
        """Go through the items; what they make and send is in `group`."""
        for place, item in enumerate(self.work.items):
            if isinstance(item, Sum):
                self._sum(item)
            elif item.by_tiles and self._lie_apart(item.calls):
                self._enter(item.calls)
            elif self._is_on_own_rows(item):
                self._run_own_rows(item.calls)
            else:
                self._run_all_rows(item.calls, self._needed_by(item, self.work.items[place + 1 :]))

    def rows(self, name: str) -> Rows:
        """The rows of a value that the devices have."""
        return self._rows.get(name, Rows.ALL)

    def tile(self, name: str, tile: int) -> str:
        """The name of a tile."""
        return tile_name(name, tile, self.group.count)

    def join(self, name: str) -> Join:
        """What makes a value of its tiles."""
        return Join(self._tiles(name), name, self._axis(name))

    # -- calls

    def _tiled(self, calls: Calls) -> list[str]:
        """The inputs that are tiles when these calls are for tiles."""
        names = dict.fromkeys(name for call in calls if call for name in call.run.inputs)
        return [name for name in names if self._has_tiles(name)]

    def _has_tiles(self, name: str) -> bool:
        return self.group.count > 1 and name not in self.values.on_devices and self.values.has_rows(name)

    def _lie_apart(self, calls: Calls) -> bool:
        """Whether the inputs have to be gathered."""
        return any(self.rows(name) is Rows.OWN for name in self._tiled(calls))

    def _is_on_own_rows(self, item: Compute) -> bool:
        if not any(item.calls) or not all(call.by_rows for call in item.calls if call):
            return False
        has_tiles = any(self.rows(name) is not Rows.ALL for name in self._tiled(item.calls))
        return item.own_rows or (item.kind == "connect" and has_tiles)

    def _needed_by(self, item: Compute, following: Sequence[Item]) -> Collection[int]:
        """The ranks at which somebody reads what these calls make; the first device sends to others."""
        ranks = set()
        for rank, call in enumerate(item.calls):
            made = {*call.run.outputs} if call else set()
            within = UnitWork(self.work.devices, tuple(following)).calls(rank)
            devices = {device for name in made for device in self.readers.get(name, ())}
            is_sent = rank == 0 and not devices <= {*self.work.devices}
            if (
                (call and call.is_kept)
                or self.work.devices[rank] in devices
                or is_sent
                or any(not made.isdisjoint(other.run.inputs) for other in within)
                or any(
                    isinstance(other, Sum) and not made.isdisjoint(filter(None, other.parts))
                    for other in following
                )
            ):
                ranks.add(rank)
        return ranks

    def _run_all_rows(self, calls: Calls, ranks: Collection[int]) -> None:
        """Call with all rows, on the devices where the result is needed."""
        names = self._tiled(calls)
        if len(ranks) == 1 and any(self.rows(name) is Rows.OWN for name in names):
            self._collect(names, *ranks)
            self.alone |= {name: rank for rank in ranks if (call := calls[rank]) for name in call.run.outputs}
        else:
            self._make_whole(names)
        for rank, call in enumerate(calls):
            if call and rank in ranks:
                self.group.write(rank, call.run)

    def _run_own_rows(self, calls: Calls) -> None:
        self._make_own(self._tiled(calls))
        for rank, call in enumerate(calls):
            if call:
                self.group.write(rank, self._for_tile(call, rank))
                self._rows.update(dict.fromkeys(call.run.outputs, Rows.OWN))

    def _for_tile(self, call: Call, tile: int) -> Run:
        given = [self.tile(name, tile) if self._has_tiles(name) else name for name in call.run.inputs]
        return Run(
            call.run.submodule, tuple(given), tuple(self.tile(name, tile) for name in call.run.outputs)
        )

    def _enter(self, calls: Calls) -> None:
        """Gather the tiles of what the products read, and multiply each while the next one travels."""
        inputs = self._tiled(calls)
        self._make_own([name for name in inputs if self.rows(name) is Rows.ALL])

        def call(rank: int, tile: int) -> list[Instruction]:
            mine = calls[rank]
            return [self._for_tile(mine, tile)] if mine else []

        travelling = [name for name in inputs if self.rows(name) is Rows.OWN]
        self.group.gather(lambda tile: tuple(self.tile(name, tile) for name in travelling), call)
        self._rows.update(dict.fromkeys(travelling, Rows.TILES))
        for rank, mine in enumerate(calls):
            for name in mine.run.outputs if mine else ():
                self.group.write(rank, self.join(name))

    # -- sums

    def _sum(self, item: Sum) -> None:
        """The parts of all devices, and what follows from them."""
        everyone = range(self.group.count)
        if item.exchange == "tiles":
            self._sum_tiles(item)
            return
        if item.leave:
            self._run_all_rows(item.leave, everyone)
        if item.exchange == "star":
            self.group.all_reduce_star(item.total, item.parts)
        else:
            self.group.all_reduce_ring(item.total, item.parts, len(self.values.shapes[item.total]) - 1)

    def _sum_tiles(self, item: Sum) -> None:
        by_tiles = all(call.by_rows for call in item.leave if call)
        if by_tiles:
            self._make_own(self._tiled(item.leave))
        else:
            self._run_all_rows(item.leave, range(self.group.count))
            self._make_own([name for name in item.parts if name])

        def call(rank: int, tile: int) -> list[Instruction]:
            mine = item.leave[rank]
            return [self._for_tile(mine, tile)] if mine and by_tiles else []

        def part(rank: int, tile: int) -> str | None:
            name = item.parts[rank]
            return self.tile(name, tile) if name else None

        self.group.reduce_scatter(lambda tile: self.tile(item.total, tile), part, call)
        self._rows[item.total] = Rows.OWN

    # -- rows

    def _tiles(self, name: str) -> tuple[str, ...]:
        return tuple(self.tile(name, tile) for tile in range(self.group.count))

    def _make_own(self, names: Sequence[str]) -> None:
        """Each device has its tile, and if it has all rows, the other tiles as well."""
        for name in names:
            if self.rows(name) is Rows.ALL and name not in self._cut:
                self._cut.add(name)
                for rank in range(self.group.count):
                    if any(name in (*call.run.inputs, *call.run.outputs) for call in self.work.calls(rank)):
                        self.group.write(rank, Cut(name, self._tiles(name), self._axis(name)))

    def _make_whole(self, names: Sequence[str]) -> None:
        """All devices have all rows."""
        parted = [name for name in names if self.rows(name) is Rows.OWN]
        if parted:
            self.group.gather(lambda tile: tuple(self.tile(name, tile) for name in parted))
        for name in names:
            if self.rows(name) is not Rows.ALL:
                for rank in range(self.group.count):
                    self.group.write(rank, self.join(name))
                self._rows[name] = Rows.ALL

    def _collect(self, names: Sequence[str], rank: int) -> None:
        """One device has all rows; the others keep their tiles."""
        members = self.group.members
        parted = [name for name in names if self.rows(name) is Rows.OWN]
        for other, device in enumerate(members):
            sent = tuple(self.tile(name, other) for name in parted)
            if other != rank:
                self.group.write(other, Send(sent, members[rank]))
                self.group.write(rank, Recv(sent, device))
        for name in names:
            if self.rows(name) is not Rows.ALL:
                self.group.write(rank, self.join(name))
        self.alone |= dict.fromkeys(parted, rank)

    def _axis(self, name: str) -> int:
        axis = self.values.axis(name)
        if axis is None:
            raise PlanError(
                f"{name} has its rows in one axis with the batch: devices cannot divide them",
                hint="--strategy megatron shares this model, by heads and columns alone",
            )
        return axis
