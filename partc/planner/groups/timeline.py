"""The timeline of a step whose units have several devices, as plan.json holds it.

Every device of every unit has an entry. All messages of one entry to another are one message: from the start of the
first to the arrival of the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from partc.format.plan import Message, StageRun, Timeline
from partc.planner.groups.lanes import Lanes, Span
from partc.planner.groups.units import Unit
from partc.planner.model.problem import Phase
from partc.planner.model.stages import SOURCE

Relation = Literal["sequential", "residual", "return", "tiles"]


def timeline_of(phase: Phase, units: Sequence[Unit], lanes: Lanes, end_s: float) -> Timeline:
    """The entries and messages of the lanes of a step. O(spans)."""
    begins = [0, *accumulate(len(unit.devices) for unit in units)]
    runs = [_run(lanes, number, unit, name) for number, unit in enumerate(units) for name in unit.devices]

    def entry(span: Span, name: str, number: int) -> int:
        returns = span.units[1] == SOURCE
        return SOURCE if returns else begins[number] + units[number].devices.index(name)

    sent: dict[tuple[int, int], list[Span]] = {}
    for span in lanes.spans:
        if span.receiver is not None:
            maker = begins[span.units[0]] + units[span.units[0]].devices.index(span.device)
            sent.setdefault((maker, entry(span, span.receiver, span.units[1])), []).append(span)
    messages = [_message(spans, ends) for ends, spans in sent.items()]
    return Timeline(phase.name, phase.weight, end_s, tuple(runs), tuple(messages))


def _run(lanes: Lanes, number: int, unit: Unit, name: str) -> StageRun:
    """The time from the first to the last work of a device on a unit; a share may be nothing."""
    mine = [
        span
        for span in lanes.spans
        if span.receiver is None and span.device == name and span.units[0] == number
    ]
    start = min((span.start_s for span in mine), default=0.0)
    return StageRun(name, unit.first, unit.last, start, max((span.finish_s for span in mine), default=start))


def _message(spans: Sequence[Span], ends: tuple[int, int]) -> Message:
    first = spans[0]
    assert first.receiver is not None
    maker, reader = first.units
    steps: dict[int, Relation] = {0: "tiles", 1: "sequential"}
    return Message(
        first.device,
        first.receiver,
        sum(span.bytes for span in spans),
        min(span.start_s for span in spans),
        max(span.arrive_s for span in spans),
        tuple(dict.fromkeys(value for span in spans for value in span.work)),
        *ends,
        relation="return" if reader == SOURCE else steps.get(reader - maker, "residual"),
    )
