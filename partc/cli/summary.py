"""What a plan says, as rows for tables and for `--json`: derived from plan.json and the profile alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from partc.ir.graph import SubmoduleProfile


@dataclass(frozen=True)
class StageRow:
    """What one device does."""

    device: str
    first: int
    last: int
    """Sub-modules `first` to `last`, inclusive."""
    weights_bytes: int | None
    """None where only a planning problem is known, which does not tell weights from caches."""
    state_bytes: int | None
    memory_bytes: float
    """What the device needs in all."""
    budget_bytes: float
    """What it may use."""
    compute_s: Mapping[str, float]
    """Phase → seconds of one step."""


@dataclass(frozen=True)
class MessageRow:
    """What one device sends to another in every step."""

    sender: str
    receiver: str
    values: tuple[str, ...]
    kind: str
    """sequential (to the next device), residual (past it) or return (the result, back to the source)."""
    bytes: Mapping[str, float]
    """Phase → bytes of one step."""


@dataclass(frozen=True)
class Summary:
    """The outcome of planning."""

    objective: str
    value: float
    """Seconds per token (latency) or steps per second (throughput)."""
    bound: float | None
    gap: float | None
    method: str
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
    return Summary(
        objective=plan["problem"]["objective"],
        value=answer["value"],
        bound=answer["bound"],
        gap=answer["gap"],
        method=answer["method"],
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
    for index, use in enumerate(memory):
        stage = phases[0]["stages"][index]
        mine = profile[stage["first"] : stage["last"] + 1] if profile else None
        seconds = {p["phase"]: p["stages"][index]["finish_s"] - p["stages"][index]["start_s"] for p in phases}
        rows.append(
            StageRow(
                device=use["device"],
                first=stage["first"],
                last=stage["last"],
                weights_bytes=_weight_bytes(mine) if mine else None,
                state_bytes=sum(entry.state_bytes for entry in mine) if mine else None,
                memory_bytes=use["needed_bytes"],
                budget_bytes=use["available_bytes"],
                compute_s=seconds,
            )
        )
    return rows


def _weight_bytes(profile: Sequence[SubmoduleProfile]) -> int:
    """Weights of one device, each shared weight once."""
    shared = {name: count for entry in profile for name, count in entry.shared.items()}
    return sum(entry.weight_bytes for entry in profile) + sum(shared.values())


def _messages(phases: Sequence[Mapping[str, Any]]) -> list[MessageRow]:
    ring = [stage["device"] for stage in phases[0]["stages"]]
    sent: dict[tuple[str, str, str], dict[str, float]] = {}
    values: dict[tuple[str, str, str], dict[str, None]] = {}
    for phase in phases:
        for message in phase["messages"]:
            key = (message["from"], message["to"], _kind(message, ring))
            sent.setdefault(key, {})[phase["phase"]] = message["bytes"]
            values.setdefault(key, {}).update(dict.fromkeys(message["values"]))
    return [MessageRow(key[0], key[1], tuple(values[key]), key[2], sizes) for key, sizes in sent.items()]


def _kind(message: Mapping[str, Any], ring: Sequence[str]) -> str:
    if message["values"] == ["return"]:
        return "return"
    return "sequential" if ring.index(message["to"]) == ring.index(message["from"]) + 1 else "residual"
