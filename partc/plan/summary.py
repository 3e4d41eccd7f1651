"""What a plan says, as rows for tables, for the report and for `--json`: from plan.json and the profile alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from partc.ir.graph import SubmoduleProfile
from partc.plan.problem_json import read_problem
from partc.plan.words import say_value


@dataclass(frozen=True)
class StageRow:
    """What one device does in one go; a device that is returned to has several."""

    device: str
    first: int
    last: int
    """Sub-modules `first` to `last`, inclusive."""
    weights_bytes: int | None
    """Of this stage, what an earlier one of its device holds already left out. None where only a planning problem
    is known, which does not tell weights from caches."""
    state_bytes: int | None
    memory_bytes: float
    """What the device needs in all, for all its stages."""
    budget_bytes: float
    """What the device may use."""
    compute_s: Mapping[str, float]
    """Phase → seconds of one step."""


@dataclass(frozen=True)
class MessageRow:
    """What one stage sends to another in every step."""

    sender: str
    receiver: str
    from_stage: int
    to_stage: int
    """Indices of the stages; 0 for the result, which returns to the source."""
    values: tuple[str, ...]
    kind: str
    """sequential (to the next stage), residual (past it) or return (the result, back to the source)."""
    bytes: Mapping[str, float]
    """Phase → bytes of one step."""


@dataclass(frozen=True)
class Summary:
    """The outcome of planning."""

    objective: str
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

    def to_json(self) -> dict[str, object]:
        """Plain JSON with the fields of this class; messages name their ends as plan.json does."""
        messages = [asdict(message) for message in self.messages]
        for message in messages:
            message["from"], message["to"] = message.pop("sender"), message.pop("receiver")
        return {**asdict(self), "messages": messages}


def summarize(plan: Mapping[str, Any], profile: Sequence[SubmoduleProfile] | None = None) -> Summary:
    """The rows of a feasible plan.json; `profile` tells weights from caches."""
    answer, phases = plan["answer"], plan["predicted"]["phases"]
    problem = read_problem(plan["problem"])
    return Summary(
        objective=problem.objective,
        value=answer["value"],
        value_text=say_value(problem, answer["value"]),
        bound=answer["bound"],
        bound_text="unknown" if answer["bound"] is None else say_value(problem, answer["bound"]),
        gap=answer["gap"],
        method=answer["method"],
        batch=problem.batch,
        stages=tuple(_stages(plan["predicted"]["memory"], phases, profile)),
        messages=tuple(_messages(phases)),
        explain=answer["explain"],
    )


def _stages(
    memory: Sequence[Mapping[str, Any]],
    phases: Sequence[Mapping[str, Any]],
    profile: Sequence[SubmoduleProfile] | None,
) -> list[StageRow]:
    rows = []
    uses = {use["device"]: use for use in memory}
    held: dict[str, set[str]] = {device: set() for device in uses}
    for index, stage in enumerate(phases[0]["stages"]):
        device, use = stage["device"], uses[stage["device"]]
        mine = profile[stage["first"] : stage["last"] + 1] if profile else None
        seconds = {p["phase"]: p["stages"][index]["finish_s"] - p["stages"][index]["start_s"] for p in phases}
        rows.append(
            StageRow(
                device=device,
                first=stage["first"],
                last=stage["last"],
                weights_bytes=_weight_bytes(mine, held[device]) if mine else None,
                state_bytes=sum(entry.state_bytes for entry in mine) if mine else None,
                memory_bytes=use["needed_bytes"],
                budget_bytes=use["available_bytes"],
                compute_s=seconds,
            )
        )
    return rows


def _weight_bytes(profile: Sequence[SubmoduleProfile], held: set[str]) -> int:
    """Weights of one stage; shared weights in `held` are there already, and those of this stage are added."""
    shared = {name: count for entry in profile for name, count in entry.shared.items() if name not in held}
    held.update(shared)
    return sum(entry.weight_bytes for entry in profile) + sum(shared.values())


def _messages(phases: Sequence[Mapping[str, Any]]) -> list[MessageRow]:
    """One row for each pair of stages, and for the result."""
    rows = []
    for ends, places in exchanges(phases).items():
        messages = {number: phases[number]["messages"][place] for number, place in places.items()}
        first = next(iter(messages.values()))
        values = dict.fromkeys(value for message in messages.values() for value in message["values"])
        sizes = {phases[number]["phase"]: message["bytes"] for number, message in messages.items()}
        rows.append(MessageRow(first["from"], first["to"], *ends, tuple(values), kind_of(first), sizes))
    return rows


def exchanges(phases: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], dict[int, int]]:
    """(sending stage, receiving stage) → index of a phase in which it sends → index of its message there."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for number, phase in enumerate(phases):
        for place, message in enumerate(phase["messages"]):
            ends = message["from_stage"], message["to_stage"]
            found.setdefault(ends, {})[number] = place
    return found


def is_return(message: Mapping[str, Any]) -> bool:
    """Whether it is the result on its way back to the source: nothing else is sent to the first stage."""
    return bool(message["to_stage"] == 0)


def kind_of(message: Mapping[str, Any]) -> str:
    """sequential, residual or return, as `MessageRow.kind`."""
    if is_return(message):
        return "return"
    return "sequential" if message["to_stage"] == message["from_stage"] + 1 else "residual"
