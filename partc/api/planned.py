"""A plan, as programs read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from partc.format.digests import canonical_json
from partc.format.plan import Objective, PlanFile
from partc.planner.explain.summary import MessageRow, StageRow, Summary, summary_of
from partc.planner.model.plan_file import read_plan

if TYPE_CHECKING:
    from partc.ir.graph import Module


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The devices that compute a model, what each of them computes, and what that is predicted to take."""

    summary: Summary
    """Rows for tables: stages, messages, and why the plan is as it is."""
    _file: PlanFile

    @classmethod
    def of(cls, module: Module) -> Self:
        """The plan that the passes left in a module."""
        assert module.plan is not None, "partition-graph leaves a plan or raises"
        return cls(summary_of(module.plan, module.profile), module.plan)

    @classmethod
    def read(cls, file: str | Path) -> Self:
        """The plan of a plan.json; the weights of a stage are not told there.

        Raises:
            PlanError: no such file, or it is no plan.
        """
        plan = PlanFile.from_json(read_plan(Path(file)))
        return cls(summary_of(plan), plan)

    @property
    def objective(self) -> Objective:
        """`latency` or `throughput`: what it is best at."""
        return self.summary.objective

    @property
    def value(self) -> float:
        """Seconds per token for `latency`, steps per second for `throughput`; predicted."""
        return self.summary.value

    @property
    def bound(self) -> float | None:
        """What no plan of this model on these devices can be better than; None: not known."""
        return self.summary.bound

    @property
    def gap(self) -> float | None:
        """How far value and bound are apart, as a part of the value; 0 is proven best."""
        return self.summary.gap

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that compute, in the order of their first stage."""
        return tuple(dict.fromkeys(stage.device for stage in self.summary.stages))

    @property
    def stages(self) -> tuple[StageRow, ...]:
        """Who computes which sub-modules, with memory and times."""
        return self.summary.stages

    @property
    def messages(self) -> tuple[MessageRow, ...]:
        """What they send each other in a step."""
        return self.summary.messages

    def to_json(self) -> dict[str, Any]:
        """plan.json as data."""
        return self._file.to_json()

    def save(self, file: str | Path) -> None:
        """Write plan.json, byte for byte as `partc compile` does."""
        Path(file).write_text(canonical_json(self.to_json()), encoding="utf-8")

    def __repr__(self) -> str:
        return f"<partc.Plan: {self.summary.value_text} on {' → '.join(self.devices)}>"
