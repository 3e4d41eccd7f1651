"""The figures of a run record, counted as the plan counts them.

Beside its times (`partc.runs.steps`) stands what runners are to count by the plan (`partc.report.expected`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from partc.errors import PlanError
from partc.format.dtypes import Array
from partc.planner.simulate.case import simulate
from partc.planner.simulate.demand import Load
from partc.report.expected import device_s, message_s
from partc.report.figures import Plan
from partc.runs.records import RunRecord
from partc.runs.steps import Steps


@dataclass(frozen=True)
class Compared:
    """One device or link in one phase."""

    name: str
    is_link: bool
    phase: str
    predicted_s: float
    mean_s: float
    median_s: float
    steps: int
    is_planned_work: bool
    """Whether the steps did what the plan counts, on so many tokens."""
    ratio: float | None
    """Measured over predicted; None: nothing is predicted, or for a prompt of another length."""


@dataclass(frozen=True)
class Workload:
    """The size of a request."""

    prompt: int
    """Tokens of the longest sequence."""
    tokens: int
    """New tokens of the longest sequence."""
    batch: int

    def __str__(self) -> str:
        """`prompts of 32 tokens and 96 new ones`."""
        each = f", {self.batch} sequences each" if self.batch > 1 else ""
        tokens = f"token{'s' * (self.prompt != 1)}"
        return f"prompts of {self.prompt} {tokens} and {self.tokens} new one{'s' * (self.tokens != 1)}{each}"


class Measured:
    """A run beside the plan that it ran."""

    def __init__(self, plan: Plan, record: RunRecord) -> None:
        """A run of a record that belongs to the plan."""
        self.plan = plan
        self.record = record
        self.source = plan.case.problem.source
        self.steps = [Steps(request, self.source) for request in record.requests]
        """The steps of every request."""

    @property
    def has_lanes(self) -> bool:
        """Whether starts on different devices can be compared, and each has one stage that they belong to."""
        return self.record.local and len(self.plan.used) == len(self.plan.stages)

    @cached_property
    def step_s(self) -> Mapping[str, Array]:
        """Phase → (steps,) seconds of its steps, from the beginning to the token, as the source saw them."""
        found: dict[str, list[float]] = {}
        for steps in self.steps:
            for step, seconds in steps.lasted.items():
                found.setdefault(self._phase(step), []).append(seconds)
        return {phase: np.array(values) for phase, values in found.items()}

    @property
    def value_s(self) -> float | None:
        """Seconds per token as the plan counts them: the mean of each phase by the phase's weight."""
        return self._weighed(np.mean)

    @property
    def median_s(self) -> float | None:
        """The same of medians, which a machine that is busy with something else spoils less."""
        return self._weighed(np.median)

    def _weighed(self, middle: Callable[[Array], Any]) -> float | None:
        phases = [phase for phase in self.plan.phases if phase.weight > 0]
        if not all(phase.phase in self.step_s for phase in phases):
            return None
        return float(sum(phase.weight * middle(self.step_s[phase.phase]) for phase in phases))

    @property
    def rate(self) -> float | None:
        """Tokens per second of all sequences of all requests together; steps of a model that does not generate."""
        made, starts, ends = 0, [], []
        for request, steps in zip(self.record.requests, self.steps, strict=True):
            if lasted := steps.lasted:
                began = steps.timings[self.source].column("started_s")
                starts.append(began[0])
                ends.append(began[-1] + list(lasted.values())[-1])
                made += len(lasted) * (request.batch if self.plan.unit == "token" else 1)
        span = max(ends) - min(starts) if made else 0.0
        return float(made / span) if span > 0 else None

    @cached_property
    def expected_rate(self) -> float | None:
        """The same by the simulator, with as many requests in flight; None: too much to follow, or no time at all."""
        tokens = max((request.new_tokens for request in self.record.requests), default=0)
        load = Load(self.requests, max(1, tokens), "no-bubbles", self.plan.in_flight(self.requests))
        try:
            run = simulate(self.plan.workflow, load)
        except PlanError:
            return None
        return run.tokens_per_s * self.plan.units if run.makespan_s else None

    @property
    def requests(self) -> int:
        """The number of requests of the run."""
        return len(self.record.requests)

    @property
    def planned(self) -> Workload | None:
        """The workload that the plan is for; None where it is not known."""
        source = self.plan.roles.get(self.source)
        prompt = source.predicted.get("prefill_tokens") if source else None
        problem = self.plan.case.problem
        return None if prompt is None else Workload(int(prompt), self.plan.case.tokens, problem.batch)

    @property
    def asked(self) -> tuple[Workload, ...]:
        """The kinds of requests of the run, each once."""
        asked = [Workload(item.prompt_tokens, item.new_tokens, item.batch) for item in self.record.requests]
        return tuple(dict.fromkeys(asked))

    @property
    def is_planned_work(self) -> bool:
        """Whether the requests were those that the plan is for, as far as that is known."""
        return self.planned is None or set(self.asked) <= {self.planned}

    def compared(self) -> list[Compared]:
        """Every device in use, then every link, in each phase that was measured."""
        return [*self._devices(), *(self._links() if self.has_lanes else ())]

    def typical_step(self) -> tuple[int, int] | None:
        """(request, step): of the last phase's steps, the one of median length; None: none was measured."""
        last = self.plan.phases[-1].phase
        steps = [
            (seconds, number, step)
            for number, steps in enumerate(self.steps)
            for step, seconds in steps.lasted.items()
            if self._phase(step) == last
        ]
        if not steps:
            return None
        _, request, step = sorted(steps)[len(steps) // 2]
        return request, step

    # -- inner workings

    def _compared(self, name: str, is_link: bool, phase: str, predicted: float, times: Array) -> Compared:
        """A prompt of another length is other work altogether; a token in another context nearly the same."""
        mean = float(times.mean())
        is_prompt = len(self.plan.phases) > 1 and phase == self.plan.phases[0].phase
        is_same = self.is_planned_work or (is_prompt and self._has_planned_prompt)
        return Compared(
            name=name,
            is_link=is_link,
            phase=phase,
            predicted_s=predicted,
            mean_s=mean,
            median_s=float(np.median(times)),
            steps=len(times),
            is_planned_work=is_same,
            ratio=mean / predicted if predicted > 0 and (is_same or not is_prompt) else None,
        )

    @property
    def _has_planned_prompt(self) -> bool:
        wanted = self.planned
        return wanted is None or {(one.prompt, one.batch) for one in self.asked} <= {
            (wanted.prompt, wanted.batch)
        }

    def _phase(self, step: int) -> str:
        phases = self.plan.phases
        return phases[min(step, len(phases) - 1)].phase

    def _devices(self) -> Iterator[Compared]:
        for phase in self.plan.phases:
            for device, predicted in device_s(self.plan, phase).items():
                times = self._column(device, "compute_s", phase.phase)
                if len(times):
                    yield self._compared(device, False, phase.phase, predicted, times)

    def _column(self, device: str, name: str, phase: str) -> Array:
        tables = [steps.timings[device] for steps in self.steps if device in steps.timings]
        parts = [
            table.column(name)[[self._phase(int(step)) == phase for step in table.column("step")]]
            for table in tables
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _links(self) -> Iterator[Compared]:
        for phase in self.plan.phases:
            for message in phase.messages:
                took = [
                    seconds
                    for steps in self.steps
                    for step in steps.works
                    if self._phase(step) == phase.phase
                    and (seconds := steps.took(phase, message, step)) is not None
                ]
                if took:
                    name = f"{message.sender} → {message.receiver}"
                    predicted = message_s(self.plan, message)
                    yield self._compared(name, True, phase.phase, predicted, np.array(took))
