"""The promises of a build: what a loss means for its time, and the memory that its placements take."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from partc.balance.artifacts import Artifacts, read_artifacts
from partc.format.contingencies import load_contingencies
from partc.format.placement import Placement, Stages
from partc.format.role import source_role
from partc.planner.model.problem import Problem
from partc.planner.model.stages import held


@dataclass(frozen=True, slots=True)
class Promises:
    """A build that was planned."""

    artifacts: Artifacts
    contingencies: Mapping[str, Placement]
    """Lost device → placement."""

    def token_s(self, lost: str) -> float | None:
        """Seconds of a token after the loss of a device, by the plan; None where nothing helps."""
        placement = self.contingencies.get(lost)
        return placement.predicted["decode_s"] if placement else None

    def survives(self, lost: Collection[str]) -> bool:
        """Whether some placement of the build does without all of these devices."""
        placements = (self.artifacts.compiled, *self.contingencies.values())
        return any(set(lost).isdisjoint(placement.ring) for placement in placements)

    def memory(self, history: Sequence[Stages]) -> dict[str, float]:
        """Device → bytes that it needs at most under these placements, each of which followed the one before it."""
        mirrors = {name: build.memory.mirror_bytes for name, build in self.artifacts.builds.items()}
        return {name: size + mirrors[name] for name, size in needed(self.artifacts.problem, history).items()}


def read_promises(build: Path) -> Promises:
    """The promises of a build's folder."""
    role = source_role(build)
    return Promises(read_artifacts(build), load_contingencies(role, build / "devices" / role.source))


def needed(problem: Problem, history: Sequence[Stages]) -> dict[str, float]:
    """Device → bytes without mirrors; a device that goes from one placement to the next has the pieces of both."""
    found = {device.name: device.overhead_bytes for device in problem.devices}
    for before, after in [(history[0], history[0]), *pairwise(history)]:
        for name in found:
            if indices := {*held(before).get(name, ()), *held(after).get(name, ())}:
                size = problem.device_of[name].overhead_bytes + problem.memory_of(indices)
                found[name] = max(found[name], size)
    return found
