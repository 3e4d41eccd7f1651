"""Programs of a step: who computes, cuts, sends, adds and joins what, in which order.

A step goes through *units*, the stages that the same devices compute one after the other (`work.py`): one device or
several. The devices of a unit begin with all rows of all that they read. Within a unit a value has all its rows on
every device, or device i has the i-th tile of them. Between units values go to whoever reads them first: whole from the
first device that has them, or a tile from each. A device that has a value, or has been sent it, is not sent it again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from partc.format.program import Add, Cut, Emit, Instruction, Join, Program, Recv, Run, Sample, Send
from partc.planner.programs.exchanges import Group
from partc.planner.programs.unit import Rows, Unit
from partc.planner.programs.work import Item, Sum, UnitWork, Values


class _Path:
    """Programs of a step, while they are written unit by unit."""

    def __init__(self, units: Sequence[UnitWork], values: Values) -> None:
        self.units, self.values = units, values
        self.place = {name: at for at, name in enumerate(dict.fromkeys((*values.given, *values.order)))}
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
            unit = Unit(work, Group.of(work.devices), self.values, self.readers(number))
            unit.write()
            for device, items in zip(work.devices, unit.group.programs, strict=True):
                self.programs[device] += items
            self.send(number, unit)
        self.begin(len(self.units))
        self.programs[self.source].append(Emit(self.values.results))
        kept_calls = {
            call.run.submodule
            for unit in self.units
            for rank in range(len(unit.devices))
            for call in unit.calls(rank)
            if call.is_kept
        }
        return {name: _live(program, kept_calls) for name, program in self.programs.items()}

    def sampler(self, devices: Sequence[str]) -> str:
        """The device that draws the token where these have the logits."""
        return self.source if self.source in devices else devices[0]

    def readers(self, number: int) -> dict[str, set[str]]:
        """Value → the devices that read it behind a unit."""
        found: dict[str, set[str]] = {}
        for unit in self.units[number + 1 :]:
            for rank, device in enumerate(unit.devices):
                for name in unit.reads(rank):
                    found.setdefault(name, set()).add(device)
        taker = self.sampler(self.units[number].devices) if self.values.sample else self.source
        for name in self.values.ends:
            found.setdefault(name, set()).add(taker)
        return found

    def begin(self, number: int) -> None:
        for device, item in self.awaited.pop(number, ()):
            self.programs[device].append(item)

    def send(self, number: int, unit: Unit) -> None:
        """All that later units read of this one, and the token."""
        made = {name for item in unit.work.items for name in _made(item)}
        made |= {*self.values.given} if number == 0 else set()
        devices = unit.work.devices
        for name in made:
            if name in unit.alone:
                self.held.add((name, devices[unit.alone[name]]))
            elif unit.rows(name) is Rows.ALL:
                self.held |= {(name, device) for device in devices}
        for reader in range(number + 1, len(self.units)):
            for rank, device in enumerate(self.units[reader].devices):
                read = [name for name in self.units[reader].reads(rank) if name in made]
                self.hand_on(unit, reader, device, self.ordered(read))
        ends = [name for name in self.values.ends if name in made]
        if not self.values.sample:
            self.hand_on(unit, len(self.units), self.source, ends)
        elif ends:
            self.sample(unit, self.values.sample)

    def ordered(self, names: Sequence[str]) -> list[str]:
        """Values in the order of the model."""
        return sorted(names, key=lambda name: self.place.get(name, len(self.place)))

    def hand_on(self, unit: Unit, reader: int, device: str, names: Sequence[str]) -> None:
        """Send values to a device that needs them: whole from the first that has them, or a tile from each."""
        wanted = [name for name in dict.fromkeys(names) if (name, device) not in self.held]
        self.held |= {(name, device) for name in wanted}
        parted = [name for name in wanted if unit.rows(name) is not Rows.ALL]
        whole = tuple(name for name in wanted if name not in parted)
        for rank, sender in enumerate(unit.work.devices):
            sent = (*(whole if rank == 0 else ()), *(unit.tile(name, rank) for name in parted))
            if sent and sender != device:
                self.programs[sender].append(Send(sent, device))
                self.await_(reader, device, Recv(sent, sender))
        for name in parted:
            self.await_(reader, device, unit.join(name))

    def sample(self, unit: Unit, item: Sample) -> None:
        """Draw the token on the source, or on the first device that has the logits."""
        device = self.sampler(unit.work.devices)
        self.programs[device].append(item)
        if device != self.source:
            self.programs[device].append(Send((item.token,), self.source))
            self.await_(len(self.units), self.source, Recv((item.token,), device))

    def await_(self, reader: int, device: str, item: Instruction) -> None:
        self.awaited.setdefault(reader, []).append((device, item))


def _made(item: Item) -> Iterator[str]:
    if isinstance(item, Sum):
        yield item.total
    for call in item.leave if isinstance(item, Sum) else item.calls:
        yield from call.run.outputs if call else ()


def _live(program: Sequence[Instruction], kept_calls: Container[str]) -> Program:
    """The program without what makes values that nothing after it reads."""
    read: set[str] = set()
    kept: list[Instruction] = []
    for item in reversed(program):
        is_dead = isinstance(item, Run | Add | Cut | Join) and read.isdisjoint(item.writes)
        if is_dead and not (isinstance(item, Run) and item.submodule in kept_calls):
            continue
        kept.append(item)
        read.update(item.reads)
    return tuple(reversed(kept))


def step_programs(units: Sequence[UnitWork], values: Values) -> dict[str, Program]:
    """Device → its program in one phase, the source's first: it has the first unit to itself.

    No device waits for another in a circle: all follow the order of the units, and within one the order of its items;
    no message goes to an earlier unit but those to the end of the source's program.
    O(units · values + items² · devices²) in the worst case.
    """
    return _Path(units, values).write()
