"""A problem as Galaxy's Eq. 4-6 see it: l equal layers of an attention and an MLP; devices, capacities, budgets."""

from __future__ import annotations

from dataclasses import dataclass

from partc.planner.model.problem import Problem


@dataclass(frozen=True)
class Kind:
    """All blocks of one kind: the attentions (shared by heads), or the MLPs (by columns)."""

    share: str
    units: int
    unit_bytes: float
    """Memory of one unit in all layers."""
    seconds: tuple[float, ...]
    """Time of all units in all layers on each device; phases weighed."""


@dataclass(frozen=True)
class Layers:
    """The input of Algorithm 1."""

    names: tuple[str, ...]
    """The devices, the source first; the others in their order."""
    budgets: tuple[float, ...]
    """Bytes for weights on each."""
    kinds: tuple[Kind, ...]
    """Attention, then MLP; one of them where there is no other."""

    @property
    def capacities(self) -> tuple[float, ...]:
        """V of Eq. 6: 1 / (seconds of all attentions and MLPs on the device)."""
        totals = (sum(kind.seconds[d] for kind in self.kinds) for d in range(len(self.names)))
        return tuple(1 / total if total else 1.0 for total in totals)


def layers_of(problem: Problem) -> Layers | str:
    """The blocks of a problem by kind, or the reason why Galaxy's model does not fit it."""
    blocks = [(j, part.block) for j, part in enumerate(problem.submodules) if part.block is not None]
    if not blocks:
        return "no sub-module has a block that devices may share"
    names = able_devices(problem)
    if len(names) < 2:
        return f"{len(names)} of {len(problem.devices)} devices can run all blocks; sharing takes two"
    kinds = []
    for share in ("heads", "columns"):
        mine = [(j, block) for j, block in blocks if block.share == share]
        if len({block.units for _, block in mine}) > 1:
            return f"layers with unlike numbers of {share}: their shares are the same in all"
        if mine:
            memory = sum(block.memory_bytes for _, block in mine)
            seconds = tuple(_seconds(problem, [j for j, _ in mine], name) for name in names)
            units = mine[0][1].units
            kinds.append(Kind(share, units, memory / units, seconds))
    devices = (problem.device_of[name] for name in names)
    budgets = tuple(device.room_bytes for device in devices)
    return Layers(names, budgets, tuple(kinds))


def able_devices(problem: Problem) -> tuple[str, ...]:
    """The devices that can run every block, the source first."""
    blocks = [j for j, part in enumerate(problem.submodules) if part.block is not None]
    able = [
        name
        for name in problem.device_of
        if all(name in phase.time_s[j] for phase in problem.steps for j in blocks)
    ]
    return tuple(sorted(able, key=lambda name: name != problem.source))


def _seconds(problem: Problem, indices: list[int], name: str) -> float:
    return sum(phase.weight * phase.time_s[j][name] for phase in problem.steps for j in indices)
