"""Programs of stages of one or several devices: who computes, cuts, sends, adds and joins what, in which order.

`group_programs` is to stages of several devices what `partc.plan.stages.programs_of` is to those of one, and what it
writes is what `partc.plan.shared.step` prices. A step goes through *units*, the stages that the same devices compute
one after the other. The devices of a unit begin with all rows of all that they read; then

| item | calls | rows |
| --- | --- | --- |
| `connect` | what stands before and behind blocks: norms, residual sums | those that its values have |
| `enter` | the products that begin a block | by tiles, while the tiles are gathered; else all |
| `inner` | attention, or an activation | all |
| `leave` | the product that ends a block | by tiles, each summed over the devices; else all, and then the sum |
| `alone` | everything between | all |

A value has all its rows on every device of the unit, or device i has the i-th tile of them (`Rows`). Between units
values go to whoever reads them first: whole from the first device that has them, or a tile from each.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal

from partc.format.dims import Shape, symbols
from partc.format.program import Add, Cut, Emit, Instruction, Join, Program, Recv, Run, Sample, Send
from partc.ir.plan import Exchange
from partc.plan.shared.exchanges import Group, tile_name

ROWS = "sequence"
"""The symbol of the axis that tiles divide."""


@dataclass(frozen=True)
class Call:
    """A piece of work of one device: one graph."""

    run: Run
    """With the values of the whole graph."""
    by_rows: bool = False
    """Whether it computes each row by itself, so that it can be called for some of them."""
    has_states: bool = False


Calls = tuple[Call | None, ...]
"""By rank; None where a device has no share."""


@dataclass(frozen=True)
class Compute:
    """A piece of work of all devices of a unit."""

    kind: Literal["alone", "connect", "enter", "inner", "leave"]
    calls: Calls
    by_tiles: bool = False
    """`enter`: while tiles are gathered, if its values lie in tiles."""
    own_rows: bool = False
    """Each device computes its rows, whatever it has; `inner` work only where rows do not look at each other."""


@dataclass(frozen=True)
class Sum:
    """The sum of what the shares of a block make."""

    total: str
    parts: tuple[str | None, ...]
    """By rank; None where a device has no share."""
    exchange: Exchange
    leave: Calls = ()
    """What makes the parts; empty where it was done before."""


Item = Compute | Sum


@dataclass(frozen=True)
class UnitWork:
    """The work of the devices of a unit, in its order."""

    devices: tuple[str, ...]
    items: tuple[Item, ...]

    def calls(self, rank: int) -> Iterator[Call]:
        """Those of a device."""
        for item in self.items:
            calls = item.calls if isinstance(item, Compute) else item.leave
            if calls and (call := calls[rank]):
                yield call

    def reads(self, rank: int) -> list[str]:
        """The values that a device reads and the unit does not make."""
        made = {name for call in self.calls(rank) for name in call.run.outputs}
        made |= {item.total for item in self.items if isinstance(item, Sum)}
        return [name for call in self.calls(rank) for name in call.run.inputs if name not in made]


@dataclass(frozen=True)
class Values:
    """What programs must know of values."""

    shapes: Mapping[str, Shape]
    """Of all that graphs read and make."""
    given: frozenset[str]
    """Values that every device has: the step inputs."""
    inputs: tuple[str, ...]
    """Values that a request brings to the source."""
    results: tuple[str, ...]
    """Values that the client gets, or the logits."""
    token: str | None = None
    """Sampled from the logits, and then the only value that the client gets."""

    def has_rows(self, name: str) -> bool:
        """Whether its size depends on the rows of a step."""
        return any(ROWS in symbols(dim) for dim in self.shapes[name])

    def axis(self, name: str) -> int | None:
        """The axis of its rows, where they have one to themselves."""
        shape = self.shapes[name]
        return shape.index(ROWS) if ROWS in shape else None


class Rows(Enum):
    """The rows of a value that the devices of a unit have."""

    ALL = auto()
    OWN = auto()
    """Device i the tile i."""
    TILES = auto()
    """All devices all tiles, which have not been joined."""


@dataclass
class _Unit:
    """A unit whose programs are being written."""

    work: UnitWork
    group: Group
    values: Values
    rows: dict[str, Rows] = field(default_factory=dict)
    """What is known of values; all rows of the others are there."""
    cut: set[str] = field(default_factory=set)
    """Values that are there whole and in tiles."""

    def write(self) -> None:
        for item in self.work.items:
            if isinstance(item, Sum):
                self.sum(item)
            elif item.by_tiles and self.lies_in_tiles(item.calls):
                self.enter(item.calls)
            elif self.is_on_own_rows(item):
                self.run_own_rows(item.calls)
            else:
                self.run_all_rows(item.calls)

    # -- calls

    def tiled(self, calls: Calls) -> list[str]:
        """The inputs that are tiles when these calls are for tiles."""
        names = (name for call in calls if call for name in call.run.inputs)
        return [
            name
            for name in dict.fromkeys(names)
            if name not in self.values.given and self.values.has_rows(name)
        ]

    def lies_in_tiles(self, calls: Calls) -> bool:
        """Whether the inputs have to be gathered."""
        return any(self.rows.get(name, Rows.ALL) is Rows.OWN for name in self.tiled(calls))

    def is_on_own_rows(self, item: Compute) -> bool:
        if not all(call.by_rows for call in item.calls if call) or not any(item.calls):
            return False
        inputs = self.tiled(item.calls)
        return item.own_rows or (
            item.kind == "connect" and any(self.rows.get(name, Rows.ALL) is not Rows.ALL for name in inputs)
        )

    def run_all_rows(self, calls: Calls) -> None:
        self.make_whole(self.tiled(calls))
        for rank, call in enumerate(calls):
            if call:
                self.group.write(rank, call.run)
                self.rows.update(dict.fromkeys(call.run.outputs, Rows.ALL))

    def run_own_rows(self, calls: Calls) -> None:
        self.make_own(self.tiled(calls))
        for rank, call in enumerate(calls):
            if call:
                self.group.write(rank, self.for_tile(call, rank))
                self.rows.update(dict.fromkeys(call.run.outputs, Rows.OWN))

    def for_tile(self, call: Call, tile: int) -> Run:
        """The call for one tile."""
        given = tuple(
            self.tile(name, tile) if name not in self.values.given and self.values.has_rows(name) else name
            for name in call.run.inputs
        )
        return Run(call.run.submodule, given, tuple(self.tile(name, tile) for name in call.run.outputs))

    def enter(self, calls: Calls) -> None:
        """Gather the tiles of what the products read, and multiply each while the next one travels."""
        inputs = self.tiled(calls)
        self.make_own([name for name in inputs if self.rows.get(name, Rows.ALL) is Rows.ALL])

        def call(rank: int, tile: int) -> list[Instruction]:
            mine = calls[rank]
            return [self.for_tile(mine, tile)] if mine else []

        travelling = [name for name in inputs if self.rows.get(name, Rows.ALL) is Rows.OWN]
        self.group.gather(lambda tile: tuple(self.tile(name, tile) for name in travelling), call)
        self.rows.update(dict.fromkeys(travelling, Rows.TILES))
        for rank, mine in enumerate(calls):
            for name in mine.run.outputs if mine else ():
                self.join(rank, name)

    # -- sums

    def sum(self, item: Sum) -> None:
        """The parts of all devices, and what follows from them."""
        if item.exchange == "tiles":
            self.sum_tiles(item)
            return
        if item.leave:
            self.run_all_rows(item.leave)
        if item.exchange == "star":
            self.group.all_reduce_star(item.total, item.parts)
        else:
            self.group.all_reduce_ring(item.total, item.parts, len(self.values.shapes[item.total]) - 1)
        self.rows[item.total] = Rows.ALL

    def sum_tiles(self, item: Sum) -> None:
        by_tiles = all(call.by_rows for call in item.leave if call)
        if by_tiles:
            self.make_own(self.tiled(item.leave))
        else:
            self.run_all_rows(item.leave)
            self.make_own([name for name in item.parts if name])

        def call(rank: int, tile: int) -> list[Instruction]:
            mine = item.leave[rank]
            return [self.for_tile(mine, tile)] if mine and by_tiles else []

        def part(rank: int, tile: int) -> str | None:
            name = item.parts[rank]
            return self.tile(name, tile) if name else None

        self.group.reduce_scatter(lambda tile: self.tile(item.total, tile), part, call)
        self.rows[item.total] = Rows.OWN

    # -- rows

    def tile(self, name: str, tile: int) -> str:
        return tile_name(name, tile, self.group.count)

    def tiles(self, name: str) -> tuple[str, ...]:
        return tuple(self.tile(name, tile) for tile in range(self.group.count))

    def make_own(self, names: Sequence[str]) -> None:
        """Each device has its tile, and if it has all rows, the other tiles as well."""
        for name in names:
            if self.rows.get(name, Rows.ALL) is Rows.ALL and name not in self.cut:
                self.cut.add(name)
                for rank in self.holders(name):
                    self.group.write(rank, Cut(name, self.tiles(name), self.axis(name)))

    def holders(self, name: str) -> list[int]:
        """The devices that read a value, or make it."""
        work = self.work
        return [
            rank
            for rank in range(self.group.count)
            if any(name in (*call.run.inputs, *call.run.outputs) for call in work.calls(rank))
        ]

    def make_whole(self, names: Sequence[str]) -> None:
        """All devices have all rows."""
        parted = [name for name in names if self.rows.get(name, Rows.ALL) is Rows.OWN]
        if parted:
            self.group.gather(lambda tile: tuple(self.tile(name, tile) for name in parted))
        for name in names:
            if self.rows.get(name, Rows.ALL) is not Rows.ALL:
                for rank in range(self.group.count):
                    self.join(rank, name)

    def join(self, rank: int, name: str) -> None:
        self.group.write(rank, Join(self.tiles(name), name, self.axis(name)))
        self.rows[name] = Rows.ALL

    def axis(self, name: str) -> int:
        axis = self.values.axis(name)
        assert axis is not None, f"{name} has no axis of rows"
        return axis


class _Path:
    """Programs of a step, while they are written unit by unit."""

    def __init__(self, units: Sequence[UnitWork], values: Values) -> None:
        self.units, self.values = units, values
        self.source = units[0].devices[0]
        names = dict.fromkeys(device for unit in units for device in unit.devices)
        self.programs: dict[str, list[Instruction]] = {name: [] for name in names}
        self.awaited: dict[int, list[tuple[str, Instruction]]] = {}
        """Unit → what its devices do before it begins: (device, instruction)."""
        self.held: set[tuple[str, str]] = set()
        """(Value, device) of what is there whole, or is sent."""

    def write(self) -> dict[str, Program]:
        for number, work in enumerate(self.units):
            self.begin(number)
            unit = _Unit(work, Group.of(work.devices), self.values)
            unit.write()
            for device, items in zip(work.devices, unit.group.programs, strict=True):
                self.programs[device] += items
            self.send(number, unit)
        self.begin(len(self.units))
        emitted = (self.values.token,) if self.values.token else self.values.results
        self.programs[self.source].append(Emit(emitted))
        stateful = {
            call.run.submodule
            for unit in self.units
            for rank in range(len(unit.devices))
            for call in unit.calls(rank)
            if call.has_states
        }
        return {name: _live(program, stateful) for name, program in self.programs.items()}

    def begin(self, number: int) -> None:
        for device, item in self.awaited.pop(number, ()):
            self.programs[device].append(item)

    def send(self, number: int, unit: _Unit) -> None:
        """All that later units read of this one, and the token."""
        made = {name for item in unit.work.items for name in _made(item)}
        made |= {*self.values.inputs} if number == 0 else set()
        for name in made:
            if unit.rows.get(name, Rows.ALL) is Rows.ALL:
                self.held |= {(name, device) for device in unit.work.devices}
        for reader in range(number + 1, len(self.units)):
            for rank, device in enumerate(self.units[reader].devices):
                self.hand_on(unit, reader, device, [x for x in self.units[reader].reads(rank) if x in made])
        results = [name for name in self.values.results if name in made]
        if not self.values.token:
            self.hand_on(unit, len(self.units), self.source, results)
        elif results:
            self.sample(unit, results[0], self.values.token)

    def hand_on(self, unit: _Unit, reader: int, device: str, names: Sequence[str]) -> None:
        """Send values to a device that needs them: whole from the first that has them, or a tile from each."""
        wanted = [name for name in dict.fromkeys(names) if (name, device) not in self.held]
        self.held |= {(name, device) for name in wanted}
        parted = [name for name in wanted if unit.rows.get(name, Rows.ALL) is not Rows.ALL]
        whole = tuple(name for name in wanted if name not in parted)
        for rank, sender in enumerate(unit.work.devices):
            sent = (*(whole if rank == 0 else ()), *(unit.tile(name, rank) for name in parted))
            if sent and sender != device:
                self.programs[sender].append(Send(sent, device))
                self.await_(reader, device, Recv(sent, sender))
        for name in parted:
            self.await_(reader, device, Join(unit.tiles(name), name, unit.axis(name)))

    def sample(self, unit: _Unit, logits: str, token: str) -> None:
        """Draw the token on the source, or on the first device that has the logits."""
        devices = unit.work.devices
        device = self.source if self.source in devices else devices[0]
        self.programs[device].append(Sample(logits, token))
        if device != self.source:
            self.programs[device].append(Send((token,), self.source))
            self.await_(len(self.units), self.source, Recv((token,), device))

    def await_(self, reader: int, device: str, item: Instruction) -> None:
        self.awaited.setdefault(reader, []).append((device, item))


def _made(item: Item) -> Iterator[str]:
    if isinstance(item, Sum):
        yield item.total
    for call in item.leave if isinstance(item, Sum) else item.calls:
        yield from call.run.outputs if call else ()


def _live(program: Sequence[Instruction], stateful: Container[str]) -> Program:
    """The program without what makes values that nothing after it reads."""
    read: set[str] = set()
    kept: list[Instruction] = []
    for item in reversed(program):
        is_dead = isinstance(item, Run | Add | Cut | Join) and read.isdisjoint(item.writes)
        if is_dead and not (isinstance(item, Run) and item.submodule in stateful):
            continue
        kept.append(item)
        read.update(item.reads)
    return tuple(reversed(kept))


def group_programs(units: Sequence[UnitWork], values: Values) -> dict[str, Program]:
    """Device → its program in one phase, the source's first: it has the first unit to itself.

    No device waits for another in a circle: all follow the order of the units, and within one the order of its items.
    O(items · devices²).
    """
    return _Path(units, values).write()
