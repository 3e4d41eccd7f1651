"""The figures of a run record, counted as the plan counts them.

A device records for each step when its first message came (on the source: when the step began), how long it
computed, queued and waited. With one clock for all runners the rest follows: a stage ends after its start,
its queueing, its waiting and its computing; a message took from the end of its sender to its arrival. What stands
beside these times is what runners are to count by the plan (`partc.report.expected`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from partc.errors import PlanError
from partc.format.dtypes import Array
from partc.ir.plan import Message, Timeline
from partc.plan.simulate.case import simulate
from partc.plan.simulate.demand import Load
from partc.report.expected import device_s, message_s
from partc.report.figures import Plan
from partc.report.records import WAIT, RequestRecord, RunRecord
from partc.runtime.client.results import Timings


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
class Work:
    """The work of a device in one step of one request, on the common clock."""

    device: str
    request: int
    step: int
    arrived_s: float
    """When its first message came; on the source, when the step began."""
    start_s: float
    end_s: float


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

    @property
    def has_lanes(self) -> bool:
        """Whether starts on different devices can be compared, and each has one stage that they belong to."""
        return self.record.local and len(self.plan.used) == len(self.plan.stages)

    @cached_property
    def step_s(self) -> Mapping[str, Array]:
        """Phase → (steps,) seconds of its steps, from the beginning to the token, as the source saw them."""
        found: dict[str, list[float]] = {}
        for lasted in self._lasted:
            for step, seconds in lasted.items():
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
        for request, lasted in zip(self.record.requests, self._lasted, strict=True):
            if lasted:
                began = request.timings[self.source].column("started_s")
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

    def works(self, request: int) -> list[Work]:
        """The work of every device in every step of a request; empty for a device that did not report."""
        timings = self.record.requests[request].timings
        found = (self._works_of(request, name, timings[name]) for name in self.plan.used if name in timings)
        return [work for works in found for work in works]

    def typical_step(self) -> tuple[int, int] | None:
        """(request, step): of the last phase's steps, the one of median length; None: none was measured."""
        last = self.plan.phases[-1].phase
        steps = [
            (seconds, number, step)
            for number, lasted in enumerate(self._lasted)
            for step, seconds in lasted.items()
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

    @cached_property
    def _lasted(self) -> list[dict[int, float]]:
        """The times of every request: step → seconds."""
        return [self._steps_of(request) for request in self.record.requests]

    def _steps_of(self, request: RequestRecord) -> dict[int, float]:
        """A step lasts until the next begins; the last one until its token is there."""
        timings = request.timings.get(self.source)
        if timings is None:
            return {}
        starts, numbers = timings.column("started_s"), timings.column("step")
        own = timings.column("compute_s") + timings.column("queue_s") + _waits(timings)
        lasted = [*np.diff(starts), *own[-1:]]
        return {int(step): float(seconds) for step, seconds in zip(numbers, lasted, strict=True)}

    def _works_of(self, request: int, device: str, timings: Timings) -> Iterator[Work]:
        """Waiting before the first message of a step came is no part of the step here."""
        waits = _waits(timings) if device != self.source else np.zeros(len(timings.table))
        free: float | None = None
        columns = [timings.column(name) for name in ("step", "started_s", "queue_s", "compute_s")]
        for step, started, queued, computed, waited in zip(*columns, waits, strict=True):
            before = 0.0 if free is None else max(0.0, started - free)
            start = started + queued + max(0.0, waited - before)
            free = start + computed
            yield Work(device, request, int(step), float(started), float(start), float(start + computed))

    def _devices(self) -> Iterator[Compared]:
        for phase in self.plan.phases:
            for device, predicted in device_s(self.plan, phase).items():
                times = self._column(device, "compute_s", phase.phase)
                if len(times):
                    yield self._compared(device, False, phase.phase, predicted, times)

    def _column(self, device: str, name: str, phase: str) -> Array:
        tables = [item.timings[device] for item in self.record.requests if device in item.timings]
        parts = [
            table.column(name)[[self._phase(int(step)) == phase for step in table.column("step")]]
            for table in tables
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _links(self) -> Iterator[Compared]:
        at = [self.by_step(number) for number in range(len(self.record.requests))]
        for phase in self.plan.phases:
            for message in phase.messages:
                took = [
                    seconds
                    for number, steps in enumerate(at)
                    for step, works in steps.items()
                    if self._phase(step) == phase.phase
                    and (seconds := self._took(phase, message, works, number, step)) is not None
                ]
                if took:
                    name = f"{message.sender} → {message.receiver}"
                    predicted = message_s(self.plan, message)
                    yield self._compared(name, True, phase.phase, predicted, np.array(took))

    def by_step(self, request: int) -> dict[int, dict[str, Work]]:
        """Step → device → what it did."""
        steps: dict[int, dict[str, Work]] = {}
        for work in self.works(request):
            steps.setdefault(work.step, {})[work.device] = work
        return steps

    def arrival(
        self, phase: Timeline, message: Message, works: Mapping[str, Work], request: int, step: int
    ) -> float | None:
        """When a message came, on the common clock; None: the record does not tell.

        Of several messages to one stage the first is there when the stage's step begins, the last when it can
        compute.
        """
        if message.is_return:
            lasted = self._lasted[request].get(step)
            return None if lasted is None else works[self.source].arrived_s + lasted
        incoming = [
            item for item in phase.messages if item.receiver == message.receiver and not item.is_return
        ]
        incoming.sort(key=lambda item: item.arrive_s)
        work = works[message.receiver]
        if message is incoming[0]:
            return work.arrived_s
        return work.start_s if message is incoming[-1] else None

    def _took(
        self, phase: Timeline, message: Message, works: Mapping[str, Work], request: int, step: int
    ) -> float | None:
        ends = {message.sender, message.receiver}
        if not ends <= set(works):
            return None
        arrived = self.arrival(phase, message, works, request, step)
        return None if arrived is None else max(0.0, arrived - works[message.sender].end_s)


def _waits(timings: Timings) -> Array:
    """(steps,) seconds of waiting for any message."""
    columns = [timings.column(name) for name in timings.columns if name.startswith(WAIT)]
    return np.sum(columns, axis=0) if columns else np.zeros(len(timings.table))
