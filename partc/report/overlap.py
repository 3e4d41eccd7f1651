"""The sub-modules that two neighbours both have the memory for, so that work could move between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partc.planner.model.layers import spans_of
from partc.report.figures import Figure, Json, Plan, pointer
from partc.report.lanes import Bar, percent


@dataclass(frozen=True)
class OverlapRow:
    """The sub-modules of one device, copies included."""

    device: str
    tone: str
    bars: tuple[Bar, ...]
    """Runs of sub-modules along the model; their tone is `only` or `both`."""
    movable: str
    unmovable: str
    needed: Figure
    available: Figure


def overlap_rows(plan: Plan) -> list[OverlapRow]:
    """One row a device; empty where the plan says nothing of overlap."""
    devices: Mapping[str, Json] = plan.data.get("overlap", {}).get("devices", {})
    order = [name for name in plan.used if name in devices]
    return [_row(plan, name, devices[name]) for name in order]


def _row(plan: Plan, name: str, entry: Json) -> OverlapRow:
    count = len(plan.problem["submodules"])
    runs = [("only", run) for run in spans_of(entry["unmovable"])]
    runs += [("both", run) for run in spans_of(entry["movable"])]
    at = ("overlap", "devices", name)
    return OverlapRow(
        device=name,
        tone=f"d{plan.devices.index(name)}",
        bars=tuple(_bar(kind, run, count) for kind, run in sorted(runs, key=lambda item: item[1])),
        movable=_text(entry["movable"]),
        unmovable=_text(entry["unmovable"]),
        needed=plan.figure("bytes", pointer(*at, "needed_bytes")),
        available=plan.figure("bytes", pointer(*at, "available_bytes")),
    )


def _bar(kind: str, run: tuple[int, int], count: int) -> Bar:
    words = {"only": "fits here alone", "both": "fits a neighbour as well"}
    title = f"sub-modules {_say(run)}: {words[kind]}"
    return Bar(percent(run[0], count), percent(run[1] - run[0] + 1, count), kind, title, _say(run))


def _text(indices: Sequence[int]) -> str:
    return ", ".join(map(_say, spans_of(indices))) or "none"


def _say(run: tuple[int, int]) -> str:
    return f"{run[0]}–{run[1]}" if run[1] > run[0] else f"{run[0]}"
