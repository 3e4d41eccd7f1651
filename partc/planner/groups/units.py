"""Units: the stages that the same devices compute one after the other, and the values between units.

Within a unit of several devices values stay where they are, by tiles or whole; between units they are sent as messages:
whole to every device of the unit that reads them, by tiles from the devices of the unit that made them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from partc.format.plan import SharedStage, SharedStages
from partc.planner.model.evaluate import ValueKey, value_key, values_read
from partc.planner.model.problem import Edge, Phase
from partc.planner.model.stages import SOURCE


@dataclass(frozen=True)
class Unit:
    """Consecutive stages of the same devices."""

    stages: tuple[SharedStage, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """In the order of the ring."""
        return self.stages[0].devices

    @property
    def first(self) -> int:
        """The first sub-module."""
        return self.stages[0].first

    @property
    def last(self) -> int:
        """The last sub-module."""
        return self.stages[-1].last


@dataclass(frozen=True)
class Transfer:
    """The values that one device of a unit gets from another unit, in one message or by tiles."""

    maker: int
    reader: int
    """Indices of the units."""
    device: str
    """The receiver."""
    values: tuple[str, ...]
    bytes: float


def units_of(stages: SharedStages) -> tuple[Unit, ...]:
    """The units of the stages, in their order."""
    return tuple(Unit(tuple(run)) for _, run in groupby(stages, key=lambda stage: stage.devices))


def transfers(edges: Sequence[Edge], units: Sequence[Unit]) -> list[Transfer]:
    """Each message between units: a value goes once to each device that reads it, to its first unit that does.

    A device that alone made a value has it. O(edges · devices).
    """
    place = _places(units)
    first: dict[tuple[ValueKey, str], int] = {}
    sizes: dict[ValueKey, float] = {}
    for number, edge in enumerate(edges):
        key, maker, reader = value_key(edge, number), place[edge.sender], place[edge.receiver]
        sizes[key] = edge.bytes
        for device in units[reader].devices:
            if maker != reader and units[maker].devices != (device,):
                first[key, device] = min(reader, first.get((key, device), reader))
    found: dict[tuple[int, int, str], list[ValueKey]] = {}
    for (key, device), reader in first.items():
        found.setdefault((place[key[0]], reader, device), []).append(key)
    return [
        Transfer(maker, reader, device, tuple(key[1] for key in keys), sum(sizes[key] for key in keys))
        for (maker, reader, device), keys in found.items()
    ]


def results_back(phase: Phase, units: Sequence[Unit], source: str) -> list[Transfer]:
    """Transfers of results to the source, one for each unit that makes some; that of the last unit comes last.

    Results that the source is sent anyway, since a later unit of it reads them, are not among them.
    """
    place = _places(units)
    crossing = [edge for edge in phase.edges if place[edge.sender] != place[edge.receiver]]
    there = values_read(crossing, lambda j: source in units[place[j]].devices)
    found: dict[int, dict[ValueKey, float]] = {}
    for result in phase.results:
        key = result.maker, result.value, -1
        if key not in there:
            found.setdefault(place[result.maker], {})[key] = result.bytes
    found.setdefault(len(units) - 1, {})[len(phase.time_s) - 1, "return", -1] = phase.return_bytes
    return [
        Transfer(maker, SOURCE, source, tuple(name for _, name, _ in values), sum(values.values()))
        for maker, values in sorted(found.items())
    ]


def _places(units: Sequence[Unit]) -> list[int]:
    """The unit of every sub-module."""
    return [number for number, unit in enumerate(units) for _ in range(unit.first, unit.last + 1)]
