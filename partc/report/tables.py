"""The tables of the report: stages, messages, and the run beside the prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from partc.planner.explain.summary import MessageRow, StageRow, exchanges
from partc.report.figures import Figure, Plan, pointer
from partc.report.lanes import percent
from partc.report.measured import Compared, Measured


@dataclass(frozen=True)
class StageFigures:
    """The work of one device in one stage."""

    row: StageRow
    tone: str
    target: str
    """Empty where there is no build."""
    first: Figure
    last: Figure
    times: tuple[tuple[Figure, Figure, Figure], ...]
    """Start, end and duration in each phase."""


@dataclass(frozen=True)
class MessageFigures:
    """The message from one stage to another."""

    row: MessageRow
    phases: tuple[tuple[Figure, Figure] | None, ...]
    """Bytes and time on the link in each phase; None: nothing is sent."""


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
    is_planned_work: bool
    steps: int
    predicted_width: str
    measured_width: str


def stage_rows(plan: Plan) -> list[StageFigures]:
    """One row a stage, in order."""
    return [
        StageFigures(
            row=row,
            tone=f"d{plan.devices.index(row.device)}",
            target=plan.roles[row.device].target if plan.build else "",
            first=plan.figure("count", pointer("predicted", "phases", 0, "stages", index, "first")),
            last=plan.figure("count", pointer("predicted", "phases", 0, "stages", index, "last")),
            times=tuple(_stage_times(plan, phase, index) for phase in range(len(plan.phases))),
        )
        for index, row in enumerate(plan.summary.stages)
    ]


def _stage_times(plan: Plan, phase: int, index: int) -> tuple[Figure, Figure, Figure]:
    start, end = (
        pointer("predicted", "phases", phase, "stages", index, name) for name in ("start_s", "finish_s")
    )
    took = plan.figure("seconds", end, start, rule="difference")
    return plan.figure("seconds", start), plan.figure("seconds", end), took


def message_rows(plan: Plan) -> list[MessageFigures]:
    """One row for each pair of stages that exchange something, over all phases."""
    count = len(plan.phases)
    return [
        MessageFigures(
            row,
            tuple(
                _message_figures(plan, number, places[number]) if number in places else None
                for number in range(count)
            ),
        )
        for row, places in zip(plan.summary.messages, exchanges(plan.phases).values(), strict=True)
    ]


def _message_figures(plan: Plan, phase: int, place: int) -> tuple[Figure, Figure]:
    at = ("predicted", "phases", phase, "messages", place)
    times = pointer(*at, "arrive_s"), pointer(*at, "start_s")
    size = plan.figure("bytes", pointer(*at, "bytes"))
    return size, plan.figure("seconds", *times, rule="difference")


def compared_rows(plan: Plan, measured: Measured) -> list[tuple[str, list[ComparedRow]]]:
    """(phase, one row for each device and link in it); bars on the scale of the phase's longest."""
    rows = list(_compared_rows(plan, measured.compared()))
    return [
        (phase, mine)
        for phase in (item.phase for item in plan.phases)
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
            is_planned_work=item.is_planned_work,
            steps=item.steps,
            predicted_width=percent(item.predicted_s, longest),
            measured_width=percent(item.mean_s, longest),
        )
