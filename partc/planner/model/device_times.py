"""The seconds that a plan reckons with for one device, under any placement of its build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from partc.errors import PartcError
from partc.format.status import RingStatus
from partc.planner.model.plan_file import PLAN_FILE, check_plan, read_plan
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import read_problem


@dataclass(frozen=True)
class PlannedTimes:
    """The times of a plan."""

    problem: Problem
    overheads: Mapping[str, Mapping[str, float]]
    """Device → call_s and step_s, as `overheads` (roofline.py) has them; empty where nothing is measured."""

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Self:
        """The times in the content of a plan.json.

        Raises:
            PlanError: it is no feasible plan.
            ConfigError: its problem is wrong.
        """
        check_plan(plan, "plan.json")
        times = plan["answer"].get("explain", {}).get("times") or {}
        return cls(read_problem(plan["problem"], "plan.json: problem"), times.get("overheads", {}))

    @classmethod
    def of_build(cls, build: Path) -> Self | None:
        """The times of BUILD/plan.json; None without a good one."""
        try:
            return cls.of(read_plan(build / PLAN_FILE))
        except PartcError:
            return None

    def in_ring(self, ring: RingStatus) -> dict[str, float]:
        """Device → seconds of computing in a step of a ring as it is, where that is known."""
        found = {one.device: self.device_s(one.device, one.submodules, ring.phase) for one in ring.devices}
        return {device: seconds for device, seconds in found.items() if seconds is not None}

    def device_s(self, device: str, intervals: Sequence[tuple[int, int]], phase: str) -> float | None:
        """Seconds of computing in a step on a device with these intervals of sub-modules (first, last).

        Counted as runners count (`partc.report.expected`): with the call of the engine for each interval, and at the
        source without what a step takes besides. None: it has no sub-module, or one that the plan cannot place there.
        A plan of one phase has the same times for all.
        """
        steps = {step.name: step for step in self.problem.steps}
        times = steps.get(phase, self.problem.steps[-1]).time_s
        held = [index for first, last in intervals for index in range(first, last + 1)]
        if not held or any(index >= len(times) or device not in times[index] for index in held):
            return None
        known = self.overheads.get(device, {})
        besides = known.get("step_s", 0.0) if device == self.problem.source else 0.0
        calls = len(intervals) * known.get("call_s", 0.0)
        return max(0.0, sum(times[index][device] for index in held) + calls - besides)
