"""The tables of the report: stages, messages, and the run beside the prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from partc.report.figures import Figure, Json, Plan, pointer
from partc.report.lanes import percent
from partc.report.measured import Compared, Measured


@dataclass(frozen=True)
class StageRow:
    """What one device does in one go."""

    device: str
    tone: str
    target: str
    """Empty where no manifest tells."""
    first: Figure
    last: Figure
    times: tuple[tuple[Figure, Figure, Figure], ...]
    """Per phase: start, end, and what lies between."""


@dataclass(frozen=True)
class MessageRow:
    """What one stage sends to another, in one phase each."""

    sender: str
    receiver: str
    kind: str
    """next, skip or return."""
    values: tuple[str, ...]
    phases: tuple[tuple[Figure, Figure] | None, ...]
    """Per phase: bytes, and the time on the link; None: nothing is sent."""


@dataclass(frozen=True)
class ComparedRow:
    """A device or link: predicted against measured."""

    name: str
    tone: str
    """Empty: a link."""
    phase: str
    predicted: Figure
    mean: Figure
    median: Figure
    ratio: Figure | None
    steps: int
    predicted_width: str
    measured_width: str


def stage_rows(plan: Plan, manifests: Mapping[str, Json]) -> list[StageRow]:
    """One row a stage, in order."""
    return [
        StageRow(
            device=stage["device"],
            tone=f"d{plan.devices.index(stage['device'])}",
            target=str(manifests.get(stage["device"], {}).get("target", "")),
            first=plan.figure("count", pointer("predicted", "phases", 0, "stages", index, "first")),
            last=plan.figure("count", pointer("predicted", "phases", 0, "stages", index, "last")),
            times=tuple(_stage_times(plan, phase, index) for phase in range(len(plan.phases))),
        )
        for index, stage in enumerate(plan.stages)
    ]


def _stage_times(plan: Plan, phase: int, index: int) -> tuple[Figure, Figure, Figure]:
    start, end = (
        pointer("predicted", "phases", phase, "stages", index, name) for name in ("start_s", "finish_s")
    )
    took = plan.figure("seconds", end, start, rule="difference")
    return plan.figure("seconds", start), plan.figure("seconds", end), took


def message_rows(plan: Plan) -> list[MessageRow]:
    """One row for each pair of stages that exchange something, over all phases."""
    keys: dict[tuple[object, ...], dict[int, int]] = {}
    for number, phase in enumerate(plan.phases):
        for place, message in enumerate(phase["messages"]):
            ends = message.get("from_stage"), message.get("to_stage")
            key = (*ends, message["from"], message["to"], message["values"] == ["return"])
            keys.setdefault(key, {})[number] = place
    return [_message_row(plan, places) for places in keys.values()]


def _message_row(plan: Plan, places: Mapping[int, int]) -> MessageRow:
    messages = [plan.phases[number]["messages"][place] for number, place in places.items()]
    first = messages[0]
    return MessageRow(
        sender=first["from"],
        receiver=first["to"],
        kind=_kind(plan, first),
        values=tuple(dict.fromkeys(value for message in messages for value in message["values"])),
        phases=tuple(
            _message_figures(plan, number, places[number]) if number in places else None
            for number in range(len(plan.phases))
        ),
    )


def _message_figures(plan: Plan, phase: int, place: int) -> tuple[Figure, Figure]:
    at = ("predicted", "phases", phase, "messages", place)
    times = pointer(*at, "arrive_s"), pointer(*at, "start_s")
    size = plan.figure("bytes", pointer(*at, "bytes"))
    return size, plan.figure("seconds", *times, rule="difference")


def _kind(plan: Plan, message: Json) -> str:
    if message["values"] == ["return"]:
        return "return"
    devices = [stage["device"] for stage in plan.stages]
    sender = message.get("from_stage", devices.index(message["from"]))
    receiver = message.get("to_stage", devices.index(message["to"]))
    return "next" if receiver == sender + 1 else "skip"


def compared_rows(plan: Plan, measured: Measured) -> list[tuple[str, list[ComparedRow]]]:
    """(phase, one row for each device and link in it); bars on the scale of the phase's longest."""
    rows = list(_compared_rows(plan, measured.compared()))
    return [
        (phase, mine)
        for phase in (str(item["phase"]) for item in plan.phases)
        if (mine := [row for row in rows if row.phase == phase])
    ]


def _compared_rows(plan: Plan, found: list[Compared]) -> Iterator[ComparedRow]:
    for item in found:
        longest = max(max(x.predicted_s, x.mean_s) for x in found if x.phase == item.phase)
        yield ComparedRow(
            name=item.name,
            tone="" if item.is_link else f"d{plan.devices.index(item.name)}",
            phase=item.phase,
            predicted=Figure(item.predicted_s, "seconds"),
            mean=Figure(item.mean_s, "seconds"),
            median=Figure(item.median_s, "seconds"),
            ratio=None if item.ratio is None else Figure(item.ratio, "factor"),
            steps=item.steps,
            predicted_width=percent(item.predicted_s, longest),
            measured_width=percent(item.mean_s, longest),
        )
