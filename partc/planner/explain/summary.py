"""The summary of a plan: rows for tables, for the report and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from partc.format.plan import Mirror, Objective, Plan, PlanFile, Predicted, Timeline, losses_of, mirrors_of
from partc.planner.explain.drafted import where_guessed
from partc.planner.model.objective_values import say_value
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import read_problem

if TYPE_CHECKING:
    from partc.ir.graph import SubmoduleProfile


@dataclass(frozen=True)
class StageRow:
    """A stage; a device that is returned to has several."""

    device: str
    first: int
    last: int
    """Sub-modules `first` to `last`, inclusive."""
    weights_bytes: int | None
    """Weights of this stage without those that an earlier stage of its device holds. None where only a planning
    problem is known, which does not tell weights from caches."""
    state_bytes: int | None
    memory_bytes: float
    """The needs of the device for all its stages, and for caches of others that it keeps."""
    budget_bytes: float
    """The memory that the device may use."""
    compute_s: Mapping[str, float]
    """Phase → seconds of one step; none where a phase has other stages."""


@dataclass(frozen=True)
class MessageRow:
    """The message of one stage to another in every step."""

    sender: str
    receiver: str
    from_stage: int
    to_stage: int
    """Indices of the stages; 0 for the result, which returns to the source."""
    values: tuple[str, ...]
    kind: str
    """See `Message.kind`."""
    bytes: Mapping[str, float]
    """Phase → bytes of one step."""


@dataclass(frozen=True)
class Summary:
    """The outcome of planning."""

    objective: Objective
    value: float
    """Seconds per token (latency) or steps per second (throughput)."""
    value_text: str
    """The value in words: `41.2 ms per token`."""
    bound: float | None
    bound_text: str
    gap: float | None
    method: str
    batch: int
    """Sequences in a step."""
    stages: tuple[StageRow, ...]
    messages: tuple[MessageRow, ...]
    explain: Mapping[str, Any] = field(default_factory=dict)
    losses: tuple[str, ...] = ()
    """Sentences about the loss of each device and about caches that are kept twice; empty without `survive`."""
    moves: tuple[str, ...] = ()
    """Sentences about sub-modules that may move to a neighbour; empty without `overlap`."""

    def to_json(self) -> dict[str, object]:
        """Plain JSON with the fields of this class; messages name their ends as plan.json does."""
        messages = [asdict(message) for message in self.messages]
        for message in messages:
            message["from"], message["to"] = message.pop("sender"), message.pop("receiver")
        return {**asdict(self), "messages": messages}


def summary_of(plan: PlanFile, profile: Sequence[SubmoduleProfile] | None = None) -> Summary:
    """The rows of a plan that was just made."""
    assert plan.predicted is not None
    known = None if plan.answer.phases else profile  # it knows no parts of sub-modules
    summary = summarize(read_problem(plan.problem), plan.answer, plan.predicted, known)
    mirrors, alone = mirrors_of(plan), plan.survival.text if plan.survival else ""
    said = (alone, *(loss.text for loss in losses_of(plan)), *(mirror.text for mirror in mirrors))
    return replace(
        summary,
        stages=tuple(_with_mirrors(row, mirrors) for row in summary.stages),
        losses=tuple(filter(None, said)),
        moves=plan.overlap.texts if plan.overlap else (),
    )


def _with_mirrors(row: StageRow, mirrors: Sequence[Mirror]) -> StageRow:
    kept = sum(mirror.memory_bytes for mirror in mirrors if mirror.holder == row.device)
    return replace(row, memory_bytes=row.memory_bytes + kept)


def summarize(
    problem: Problem, plan: Plan, predicted: Predicted, profile: Sequence[SubmoduleProfile] | None = None
) -> Summary:
    """The rows of a feasible plan; `profile` tells weights from caches."""
    return Summary(
        objective=problem.objective,
        value=plan.value or 0.0,
        value_text=_value_text(problem, plan.value or 0.0),
        bound=plan.bound,
        bound_text="unknown" if plan.bound is None else say_value(problem, plan.bound),
        gap=plan.gap,
        method=plan.method,
        batch=problem.batch,
        stages=tuple(_stages(predicted, profile)),
        messages=tuple(_messages(predicted.phases)),
        explain=plan.explain,
    )


def _value_text(problem: Problem, value: float) -> str:
    said = say_value(problem, value)
    return f"{said} {where_guessed(problem.drafted)}" if problem.drafted else said


def _stages(predicted: Predicted, profile: Sequence[SubmoduleProfile] | None) -> list[StageRow]:
    rows = []
    uses = {use.device: use for use in predicted.memory}
    held: dict[str, set[str]] = {device: set() for device in uses}
    times: dict[tuple[str, int, int], dict[str, float]] = {}
    for phase in predicted.phases:
        for run in phase.stages:
            times.setdefault((run.device, run.first, run.last), {})[phase.phase] = run.seconds
    for (device, first, last), seconds in times.items():
        mine = profile[first : last + 1] if profile else None
        rows.append(
            StageRow(
                device=device,
                first=first,
                last=last,
                weights_bytes=_weight_bytes(mine, held[device]) if mine else None,
                state_bytes=sum(entry.state_bytes for entry in mine) if mine else None,
                memory_bytes=uses[device].needed_bytes,
                budget_bytes=uses[device].available_bytes,
                compute_s=seconds,
            )
        )
    return rows


def _weight_bytes(profile: Sequence[SubmoduleProfile], held: set[str]) -> int:
    """Weights of one stage; shared weights in `held` are there already, and those of this stage are added."""
    shared = {name: count for entry in profile for name, count in entry.shared.items() if name not in held}
    held.update(shared)
    return sum(entry.weight_bytes for entry in profile) + sum(shared.values())


def _messages(phases: Sequence[Timeline]) -> list[MessageRow]:
    """One row for each pair of stages, and for the result."""
    rows = []
    for ends, places in exchanges(phases).items():
        messages = {number: phases[number].messages[place] for number, place in places.items()}
        first = next(iter(messages.values()))
        values = dict.fromkeys(value for message in messages.values() for value in message.values)
        sizes = {phases[number].phase: message.bytes for number, message in messages.items()}
        rows.append(MessageRow(first.sender, first.receiver, *ends, tuple(values), first.kind, sizes))
    return rows


def exchanges(phases: Sequence[Timeline]) -> dict[tuple[int, int], dict[int, int]]:
    """(sending stage, receiving stage) → index of a phase in which it sends → index of its message there."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for number, phase in enumerate(phases):
        for place, message in enumerate(phase.messages):
            found.setdefault((message.from_stage, message.to_stage), {})[number] = place
    return found
