"""Simulation of a plan.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from partc.errors import InternalError, PlanError
from partc.format.placement import Stages
from partc.format.plan import Plan, SharedStages
from partc.planner.groups.evaluate import evaluate_plan
from partc.planner.model.check import check_predicted, read_stages
from partc.planner.model.evaluate import Evaluation
from partc.planner.model.plan_file import check_plan
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import read_problem
from partc.planner.simulate.demand import Load
from partc.planner.simulate.events import Simulator
from partc.planner.simulate.result import MODES, Simulation
from partc.planner.simulate.script import Workflow, workflow_of
from partc.planner.simulate.shared import shared_workflow

_MOST_RUNS = 3_000_000
"""Runs and messages of a simulation: above that, it would take minutes and gigabytes."""


@dataclass(frozen=True)
class Case:
    """A problem and the plan that is to be followed through time."""

    problem: Problem
    stages: Stages
    """Those of the first phase, where some have several devices."""
    phases: Mapping[str, SharedStages] = field(default_factory=dict)
    """Phase -> its stages, where some have several devices."""
    predicted_s: Mapping[str, float] = field(default_factory=dict)
    """Phase -> seconds of a step, as plan.json predicts it."""

    def held(self, device: str) -> list[int]:
        """The sub-modules that a device holds, or holds a share of, in any phase."""
        plans = self.phases.values() or (self.stages,)
        stages = (stage for stages in plans for stage in stages if device in stage.devices)
        return sorted({index for stage in stages for index in stage.indices})

    @property
    def tokens(self) -> int:
        """Tokens of a request in the workload that the plan is for: one prefill in so many steps."""
        first, *later = (phase.weight for phase in self.problem.steps)
        return max(1, round((first + later[0]) / first)) if later and first else 1


def read_case(plan: Mapping[str, Any], where: str = "plan.json") -> Case:
    """The problem and the assignment of a plan.json.

    Raises:
        PlanError: it is no plan, an infeasible one, or one whose timeline is not that of its assignment.
        ConfigError: its problem is wrong; names the JSON path.
    """
    check_plan(plan, where)
    stages, phases = read_stages(plan["answer"], where)
    case = Case(read_problem(plan["problem"], f"{where}: problem"), stages, phases)
    evaluation = check_case(case, where)
    check_predicted(plan, evaluation, where)
    return replace(case, predicted_s={entry.phase: entry.latency_s for entry in evaluation.phases})


def check_case(case: Case, where: str = "plan.json") -> Evaluation:
    """The value of the plan; one that cannot run is refused.

    Raises:
        PlanError: a constraint is not met, or nothing says in which order the phases come.
    """
    if len(case.problem.steps) > 2:
        names = ", ".join(phase.name for phase in case.problem.steps)
        hint = "give one phase, or two: the first step and every later one"
        raise PlanError(f"the order of the phases {names} is not known", where=where, hint=hint)
    evaluation = evaluate_plan(case.problem, Plan(stages=case.stages, phases=dict(case.phases)))
    if evaluation.violations:
        message = f"the plan does not fit its problem: {evaluation.violations[0]}"
        raise PlanError(message, where=where, hint="plan again: partc plan, or partc compile")
    return evaluation


def simulate_plan(
    plan: Mapping[str, Any],
    *,
    requests: int = 1,
    tokens: int | None = None,
    mode: str = "sequential",
    jitter: float = 0.0,
    seed: int = 0,
) -> Simulation:
    """The course of so many requests that follow a plan.json; all may be in flight together.

    A problem of two phases begins every request with a step of the first and goes on with the second;
    one without phases has one kind of step. Where `tokens` is None, a request makes as many as the
    workload that the plan was made for.

    Raises:
        PlanError: it is no feasible plan, or too much to follow.
        ConfigError: its problem is wrong.
    """
    case = read_case(plan)
    count = case.tokens if tokens is None else tokens
    load = Load(requests, count, mode, requests, jitter, seed)
    return simulate(planned_workflow(case), load)


def planned_workflow(case: Case) -> Workflow:
    """The programs that follow from the plan."""
    if case.phases:
        return shared_workflow(case.problem, case.phases)
    return workflow_of(case.problem, case.stages)


def simulate(workflow: Workflow, load: Load) -> Simulation:
    """The course of a load on devices that work like this.

    Raises:
        PlanError: it is too much to follow, or a number cannot be.
    """
    _check_load(load)
    parts = max(sum(map(len, script.programs.values())) for script in workflow.scripts)
    runs = parts * load.requests * load.tokens
    if runs > _MOST_RUNS:
        raise PlanError(
            f"{runs:,} instructions are too many to follow, at most {_MOST_RUNS:,}",
            hint="ask for fewer requests or tokens",
        )
    return Simulator(workflow, load).run()


def _check_load(load: Load) -> None:
    if load.mode not in MODES:
        raise PlanError(f"unknown mode `{load.mode}`", hint=f"choose one of: {', '.join(MODES)}")
    for name, number in (
        ("requests", load.requests), ("tokens", load.tokens), ("in flight", load.in_flight)
    ):  # fmt: skip
        if number < 1:
            raise PlanError(f"{number} {name}: at least one is needed", hint="give 1 or more")
    if load.arrivals_s and (load.mode == "bubbles" or len(load.arrivals_s) != load.requests):
        raise InternalError("one arrival for each request, which do not wait for each other's tokens")
    if not 0 <= load.jitter <= 10:
        raise PlanError(f"a jitter of {load.jitter:g} cannot be", hint="0.1 varies times by about 10 %")
