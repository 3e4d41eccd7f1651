"""The typical steps of the runs of a build: those of middle length.

A mean over the same steps adds up, as medians do not: what devices computed and what lay between makes the whole step.
Between the quartiles of their lengths, it is spoilt by other programs as little as a median.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from partc.format.plan import Timeline
from partc.planner.model.evaluate import follow_step
from partc.runs.history import History
from partc.runs.steps import Steps


@dataclass(frozen=True)
class TypicalSteps:
    """The steps of one phase that count, beside the plan's own step."""

    timeline: Timeline
    chosen: tuple[tuple[Steps, int], ...]
    """(request, number of the step)."""
    overlaps: bool = False
    """Whether devices work at once, on parts of a prompt: then what lies between them cannot be told."""

    @property
    def phase(self) -> str:
        """The name of the phase."""
        return self.timeline.phase

    def mean(self, value: Callable[[Steps, int], float | None]) -> float | None:
        """The mean of a value over the steps that have it; None: none has."""
        found = [seconds for steps, number in self.chosen if (seconds := value(steps, number)) is not None]
        return math.fsum(found) / len(found) if found else None


@dataclass(frozen=True)
class Typical:
    """The runs of a build, without what did not count."""

    history: History
    requests: int
    phases: tuple[TypicalSteps, ...]
    """The phases of the plan, in its order; without steps where no request did the planned work."""
    notes: tuple[str, ...]
    """Sentences about what did not count, and what to mind."""


def typical_steps(history: History) -> Typical:
    """The steps of middle length of every phase, of requests that did the planned work. O(steps log steps).

    Requests that had the ring to themselves are preferred to others. A prompt of another length is other work; a
    token in another context is nearly the same.
    """
    problem = history.case.problem
    notes: list[str] = []
    requests = _of_batch(_alone(history, notes), problem.batch, notes)
    if moved := sum(one.moved for one in requests):
        notes.append(f"{moved} steps after a move or a loss do not count: their placement was another one")
    if guessed := sum(len(one.guessed) for one in requests):
        notes.append(f"{guessed} steps do not count: they took guessed tokens, or were beside such")
    timelines = [follow_step(problem, phase, history.case.stages) for phase in problem.steps]
    last = len(timelines) - 1
    phases = []
    for place, timeline in enumerate(timelines):
        fitting = _of_prompt(requests, history.planned_prompt, notes) if place < last else requests
        lasted = [
            (steps, number, seconds)
            for steps in fitting
            for number, seconds in steps.lasted.items()
            if min(number, last) == place and steps.is_whole(number, history.build.roles)
        ]
        overlaps = place < last and history.is_in_parts
        phases.append(TypicalSteps(timeline, tuple(_middle(lasted)), overlaps))
    return Typical(history, len(requests), tuple(phases), (*history.skipped, *notes))


def _alone(history: History, notes: list[str]) -> list[Steps]:
    """The requests with steps that count that had the ring to themselves; all where none had."""
    every: list[Steps] = []
    alone: list[Steps] = []
    for record in history.records:
        steps = [Steps(request, history.case.problem.source) for request in record.requests]
        every += steps
        alone += [one for one in steps if not any(one.overlaps(other) for other in steps)]
    useful = [one for one in alone if one.lasted]
    if not useful and len(alone) < len(every):
        notes.append(
            "all requests shared the ring with others: what they took from each other is in the times"
        )
    return useful or every


def _of_batch(requests: Sequence[Steps], batch: int, notes: list[str]) -> list[Steps]:
    fitting = [one for one in requests if one.request.batch == batch]
    if left := len(requests) - len(fitting):
        notes.append(f"{left} requests do not count: the plan is for {batch} sequences in a request")
    return fitting


def _of_prompt(requests: Sequence[Steps], planned: int | None, notes: list[str]) -> list[Steps]:
    if planned is None:
        return list(requests)
    fitting = [one for one in requests if one.request.prompt_tokens == planned]
    if requests and not fitting:
        had = ", ".join(map(str, sorted({one.request.prompt_tokens for one in requests})))
        notes.append(f"prompts are priced as before: the plan is for {planned} tokens, the runs had {had}")
    return fitting


def _middle(steps: Sequence[tuple[Steps, int, float]]) -> Iterator[tuple[Steps, int]]:
    """The steps whose lengths lie between the quartiles, these included."""
    if not steps:
        return
    lasted = [seconds for _, _, seconds in steps]
    low = np.quantile(lasted, 0.25, method="lower")
    high = np.quantile(lasted, 0.75, method="higher")
    yield from ((one, number) for one, number, seconds in steps if low <= seconds <= high)
