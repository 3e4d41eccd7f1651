"""The page: what there is to say about a plan and its run, given to the template.

The result is one file without a script, a font or a picture from elsewhere; equal inputs give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from partc.report.figures import Figure, Json, Plan, pointer
from partc.report.lanes import percent
from partc.report.measured import Measured
from partc.report.memory import memory_bars
from partc.report.overlap import overlap_rows
from partc.report.sources import Subject
from partc.report.strip import make_strip
from partc.report.tables import compared_rows, message_rows, stage_rows
from partc.report.timelines import pipeline, step_timelines

_PROVEN = 1e-9
"""A gap up to this is rounding."""
_SHOWN = 12
"""What-ifs that are drawn; the others follow folded up."""


@dataclass(frozen=True)
class Change:
    """One what-if."""

    text: Figure
    gain: Figure | None
    """Seconds per token; None: not known."""
    width: str

    @property
    def helps(self) -> bool:
        """Whether anything is known to be gained."""
        return self.gain is not None and self.gain.value > 0


@dataclass(frozen=True)
class Unused:
    """A device that the plan leaves out."""

    device: str
    tone: str
    reason: Figure | None


@dataclass(frozen=True)
class Batch:
    """A batch that was tried."""

    size: Figure
    rate: Figure | None
    """Tokens per second of all sequences; None: it does not fit."""
    width: str
    is_chosen: bool


def render(subject: Subject) -> str:
    """The HTML of a report; pure."""
    plan = subject.plan
    measured = Measured(plan, subject.record) if subject.record else None
    return str(
        _template().render(
            plan=plan,
            title=_title(subject),
            model=_model(subject.manifests),
            record=subject.record,
            measured=measured,
            headline=headline(plan, measured),
            strip=make_strip(plan),
            memory=memory_bars(plan, subject.manifests),
            stages=stage_rows(plan, subject.manifests),
            messages=message_rows(plan),
            steps=step_timelines(plan, measured),
            pipeline=pipeline(plan, measured),
            compared=compared_rows(plan, measured) if measured else [],
            binding=_binding(plan),
            unused=_unused(plan),
            changes=_changes(plan),
            shown=_SHOWN,
            batches=_batches(plan),
            overlap=overlap_rows(plan),
        )
    )


def headline(plan: Plan, measured: Measured | None) -> dict[str, Figure | None]:
    """The figures at the top: `seconds` of a token, `rate` of tokens, `gap`, and what the run says of the first."""
    value, batch = pointer("answer", "value"), ["/problem/batch"] if "batch" in plan.problem else []
    if plan.is_latency:
        seconds = plan.figure("seconds", value)
        rate = plan.figure("rate", *batch, value, rule="share" if batch else "inverse")
        predicted, real = seconds, measured.value_s if measured else None
    else:
        rate = plan.figure("rate", value, *batch, rule="product")
        seconds = Figure(1 / rate.value, "seconds")
        predicted, real = rate, measured.rate if measured else None
    median = measured.median_s if measured and plan.is_latency else None
    gap = None if plan.answer["gap"] is None else plan.figure("percent", pointer("answer", "gap"))
    return {
        "seconds": seconds,
        "rate": rate,
        "gap": gap,
        "measured": None if real is None else Figure(real, predicted.format),
        "median": None if median is None else Figure(median, "seconds"),
        "ratio": None if real is None or not predicted.value else Figure(real / predicted.value, "factor"),
    }


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("partc.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["proven"] = _PROVEN
    return environment.get_template("report.html.j2")


def _title(subject: Subject) -> str:
    model = _model(subject.manifests)
    return str(model["name"]) if model else f"a plan of {len(subject.plan.problem['submodules'])} sub-modules"


def _model(manifests: Mapping[str, Json]) -> Json | None:
    """The facts of the model that every manifest has."""
    return next((manifest["model"] for manifest in manifests.values()), None)


def _binding(plan: Plan) -> Figure | None:
    explain = plan.answer.get("explain", {})
    return plan.figure("text", "/answer/explain/binding") if explain.get("binding") else None


def _unused(plan: Plan) -> list[Unused]:
    reasons = plan.answer.get("explain", {}).get("unused", {})
    return [
        Unused(
            name,
            f"d{place}",
            plan.figure("text", pointer("answer", "explain", "unused", name)) if name in reasons else None,
        )
        for place, name in enumerate(plan.devices)
        if name not in plan.used
    ]


def _changes(plan: Plan) -> list[Change]:
    """The largest gain first; what is not known last."""
    entries = plan.answer.get("explain", {}).get("what_if", [])
    gains = [entry["gain_s_per_token"] for entry in entries]
    largest = max((gain for gain in gains if gain), default=0.0)
    order = sorted(range(len(entries)), key=lambda i: -1.0 if gains[i] is None else gains[i], reverse=True)
    return [
        Change(
            text=plan.figure("text", pointer("answer", "explain", "what_if", index, "text")),
            gain=None if gains[index] is None else plan.figure("seconds", _gain_at(index)),
            width=percent(gains[index] or 0.0, largest),
        )
        for index in order
    ]


def _batches(plan: Plan) -> list[Batch]:
    """The batches that the planner tried; empty where the batch was given."""
    tried = plan.answer.get("explain", {}).get("batch", [])
    rates = [item["tokens_per_s"] or 0.0 for item in tried]
    return [
        Batch(
            size=plan.figure("count", pointer("answer", "explain", "batch", index, "batch")),
            rate=plan.figure("rate", pointer("answer", "explain", "batch", index, "tokens_per_s"))
            if item["feasible"]
            else None,
            width=percent(rates[index], max(rates)),
            is_chosen=item["batch"] == plan.problem.get("batch", 1),
        )
        for index, item in enumerate(tried)
    ]


def _gain_at(index: int) -> str:
    return pointer("answer", "explain", "what_if", index, "gain_s_per_token")
