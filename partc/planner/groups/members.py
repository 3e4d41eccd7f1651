"""The memory and disk of every device of a plan in which stages may have several.

A device holds its part of what a block divides, and all of the rest: norms, and activations at their peak, which are
counted whole. Besides, the buffers of its links: with tiles and rings one tile on the way in and one on the way out,
of rows or, in the sums of a ring, of columns; in a star a value from each of the others at the first device, and one
at these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from partc.format.dims import cut_sizes
from partc.format.plan import MemoryUse, SharedStage, SharedStages
from partc.planner.model.problem import Phase, Problem

Held = dict[str, dict[int, Fraction]]
"""Device → sub-module → the most of its block that the device holds in any phase."""


def held(phases: Mapping[str, SharedStages]) -> Held:
    """The parts that each device holds; O(sub-modules · devices)."""
    found: Held = {}
    for stages in phases.values():
        for stage in stages:
            for name, part in zip(stage.devices, _parts(stage), strict=True):
                mine = found.setdefault(name, {})
                for j in stage.indices:
                    mine[j] = max(part, mine.get(j, Fraction(0)))
    return found


def _parts(stage: SharedStage) -> list[Fraction]:
    """The part of the weights on each device; all of them where rows are shared, or nothing is."""
    if stage.share in ("one", "sequence"):
        return [Fraction(1)] * len(stage.devices)
    return [Fraction(units, sum(stage.shares)) for units in stage.shares]


def memory_use(problem: Problem, phases: Mapping[str, SharedStages]) -> tuple[MemoryUse, ...]:
    """The memory of each device in use, in the order of its first stage."""
    uses = []
    for name, parts in held(phases).items():
        device = problem.device_of[name]
        needed = device.overhead_bytes + _memory(problem, parts) + _buffers(problem, phases, name)
        uses.append(MemoryUse(name, needed, device.memory_bytes))
    return tuple(uses)


def kept_bytes(problem: Problem, phases: Mapping[str, SharedStages]) -> dict[str, float]:
    """Device → weights and states, which it has also while no step is computed."""
    return {
        name: _memory(problem, parts) - max(problem.submodules[j].peak_bytes for j in parts)
        for name, parts in held(phases).items()
    }


def _memory(problem: Problem, parts: Mapping[int, Fraction]) -> float:
    """Bytes of these parts of sub-modules on one device."""
    spared = sum(
        block.memory_bytes * float(1 - part)
        for j, part in parts.items()
        if (block := problem.submodules[j].block) is not None
    )
    return problem.memory_of(parts) - spared


def _buffers(problem: Problem, phases: Mapping[str, SharedStages], name: str) -> float:
    """The most that the links of a device hold at a time."""
    return max(
        (
            _buffer(phase, stage, stage.devices.index(name), j)
            for phase in problem.steps
            for stage in phases[phase.name]
            if stage.share != "one" and name in stage.devices
            for j in stage.indices
        ),
        default=0.0,
    )


def _buffer(phase: Phase, stage: SharedStage, place: int, j: int) -> float:
    tiling = phase.tilings[j]
    assert tiling is not None
    count = len(stage.devices)
    if stage.exchange == "star":
        return tiling.summed_bytes * (count - 1 if place == 0 else 1)
    tile = max(cut_sizes(tiling.rows, count)) / tiling.rows
    if stage.share == "sequence":
        return 2 * tile * tiling.keys_bytes / 2
    return 2 * (1 / count if stage.exchange == "ring" else tile) * tiling.summed_bytes


def disk_use(problem: Problem, phases: Mapping[str, SharedStages]) -> Iterator[tuple[str, float]]:
    """Device → bytes of weights on its disk; a block's weights are divided as its memory is."""
    for name, parts in held(phases).items():
        whole = problem.disk_of(parts)
        yield name, whole - sum(_spared_disk(problem, parts.items()))


def _spared_disk(problem: Problem, parts: Iterable[tuple[int, Fraction]]) -> Iterator[float]:
    for j, part in parts:
        submodule = problem.submodules[j]
        if submodule.block is not None and submodule.memory_bytes:
            divided = submodule.block.memory_bytes / submodule.memory_bytes
            yield submodule.disk_bytes * divided * float(1 - part)
