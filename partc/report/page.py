"""The page: what there is to say about a plan and its run, given to the template.

The result is one file without a script, a font or a picture from elsewhere; equal inputs give equal bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from partc.format.build import Model
from partc.planner.explain.drafted import drafted_text
from partc.planner.model.objective_values import rate, seconds_per_token
from partc.report.figures import Figure, Plan, pointer
from partc.report.lanes import percent
from partc.report.measured import Measured
from partc.report.memory import memory_bars
from partc.report.overlap import overlap_rows
from partc.report.sources import Subject
from partc.report.strip import make_strip
from partc.report.tables import compared_rows, message_rows, stage_rows
from partc.report.timelines import guessed, pipeline, say_requests, step_timelines

_PROVEN = 1e-9
"""A gap up to this is rounding."""
_SHOWN = 12
"""What-ifs that are drawn; the others are folded up."""


ONE_MACHINE = (
    "all devices were processes of one machine: the links are its own, and the devices share its cores"
)


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
class Lost:
    """The consequences of the loss of one device."""

    device: str
    tone: str
    text: Figure
    mirrors: tuple[Figure, ...]
    """Sentences about the devices that keep its caches, too."""


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
            title=_title(plan, subject.file.name),
            model=_model(plan),
            record=subject.record,
            measured=measured,
            in_flight=say_requests(plan, measured.requests) if measured else "",
            headline=headline(plan, measured),
            meaning=meaning(plan, measured),
            one_machine=ONE_MACHINE,
            strip=make_strip(plan),
            memory=memory_bars(plan),
            stages=stage_rows(plan),
            messages=message_rows(plan),
            steps=step_timelines(plan, measured),
            guessed=guessed(plan),
            drafts=_drafts(plan),
            better=_better(plan),
            pipeline=pipeline(plan, measured),
            compared=compared_rows(plan, measured) if measured else [],
            binding=_binding(plan),
            best=_best(plan),
            shares=_shares(plan),
            unused=_unused(plan),
            losses=_losses(plan),
            no_loss=_no_loss(plan),
            changes=_changes(plan),
            shown=_SHOWN,
            batches=_batches(plan),
            overlap=overlap_rows(plan),
            moves=_moves(plan),
        )
    )


def headline(plan: Plan, measured: Measured | None) -> dict[str, Figure | None]:
    """The figures at the top: `seconds` of a token, `rate` of tokens, `gap`, and what the run says.

    A latency is held against the run's steps; a throughput, which is that of a full pipeline, is not: what stands
    beside the rate of the run is what the simulator finds for as many requests (`expected`).
    """
    problem, at = plan.case.problem, pointer("answer", "value")
    value = plan.at(at)
    if plan.is_latency:
        seconds, made = plan.figure("seconds", at), rate(problem, value)
        shown = Figure(made, "rate") if math.isfinite(made) else None
        real: float | None = measured.value_s if measured else None
        beside: float | None = _whole_steps_s(plan)
    else:
        batch = ["/problem/batch"] if plan.units > 1 else []
        shown = plan.figure("rate", at, *batch, rule="product")
        seconds = Figure(seconds_per_token(problem, value), "seconds")
        real, beside = (measured.rate, measured.expected_rate) if measured else (None, None)
    gap = None if plan.answer["gap"] is None else plan.figure("percent", pointer("answer", "gap"))
    return {
        "seconds": seconds,
        "rate": shown,
        "gap": gap,
        "measured": _figure(real, "seconds" if plan.is_latency else "rate"),
        "median": _figure(measured.median_s if measured and plan.is_latency else None, "seconds"),
        "expected": _figure(None if plan.is_latency or real is None else beside, "rate"),
        "ratio": _figure(None if real is None or not beside else real / beside, "factor"),
    }


def _whole_steps_s(plan: Plan) -> float:
    """The plan's latency as a run's steps are counted: each from its beginning to its token, guesses or not."""
    return float(sum(phase.weight * phase.latency_s for phase in plan.phases))


def meaning(plan: Plan, measured: Measured | None) -> str:
    """A caption for the measured figure at the top, where it is not plain."""
    if measured is None or not plan.is_latency:
        return ""
    if not plan.spreads:
        return "from the start of a step to its result at the source"
    return (
        f"mean prefill and decode steps of the run, weighed as in the plan: one prefill in {plan.case.tokens} "
        "steps; waiting for a place among the requests in flight is not in it"
    )


def _figure(value: float | None, format: str) -> Figure | None:
    """A figure that does not come from plan.json; None where there is none."""
    return None if value is None else Figure(value, format)


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


def _title(plan: Plan, file: str) -> str:
    model = _model(plan)
    return model.name if model else f"a plan of {len(plan.case.problem.submodules)} sub-modules in {file}"


def _model(plan: Plan) -> Model | None:
    """The facts of the model, which are those of every build.json."""
    return next((role.model for role in plan.roles.values()), None)


def _binding(plan: Plan) -> Figure | None:
    explain = plan.answer.get("explain", {})
    return plan.figure("text", "/answer/explain/binding") if explain.get("binding") else None


def _best(plan: Plan) -> Figure | None:
    """The best plan with one device a stage, or with no place given, where this is another one."""
    explain = plan.answer.get("explain", {})
    text = explain.get("best", {}).get("text")
    return (
        plan.figure("text", "/answer/explain/best/text")
        if text and text not in explain.get("binding", "")
        else None
    )


def _shares(plan: Plan) -> list[Figure]:
    """What each device of a group has, and how far that is from the best."""
    lines = plan.answer.get("explain", {}).get("shared", [])
    return [plan.figure("text", pointer("answer", "explain", "shared", index)) for index in range(len(lines))]


def _drafts(plan: Plan) -> list[tuple[Figure, Figure]]:
    """Shares of guessed tokens, and the time of a token then; empty where guesses bring nothing."""
    if not drafted_text(plan.predicted):
        return []
    places = (pointer("predicted", "drafts", index) for index in range(len(plan.predicted.drafts)))
    return [(plan.figure("percent", f"{at}/share"), plan.figure("seconds", f"{at}/token_s")) for at in places]


def _better(plan: Plan) -> list[Figure]:
    """Plans that are better where more or fewer tokens are guessed, in words."""
    found = plan.answer.get("explain", {}).get("drafts", [])
    return [
        plan.figure("text", pointer("answer", "explain", "drafts", index, "text"))
        for index in range(len(found))
    ]


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


def _losses(plan: Plan) -> list[Lost]:
    """One entry a device in use but the source; empty where nobody asked."""
    survival = plan.data.get("survival") or {}
    mirrors = survival.get("mirrors", [])

    def said(kind: str, index: int) -> Figure:
        return plan.figure("text", pointer("survival", kind, index, "text"))

    return [
        Lost(
            device=entry["device"],
            tone=f"d{plan.devices.index(entry['device'])}",
            text=said("losses", index),
            mirrors=tuple(
                said("mirrors", place)
                for place, item in enumerate(mirrors)
                if item["device"] == entry["device"]
            ),
        )
        for index, entry in enumerate(survival.get("losses", []))
    ]


def _no_loss(plan: Plan) -> Figure | None:
    """The reason why there is no loss to survive, though somebody asked."""
    survival = plan.data.get("survival") or {}
    return plan.figure("text", "/survival/text") if survival.get("text") else None


def _moves(plan: Plan) -> list[Figure]:
    """Sentences about what may move; empty where nobody asked."""
    texts = plan.data.get("overlap", {}).get("texts", [])
    return [plan.figure("text", pointer("overlap", "texts", index)) for index in range(len(texts))]


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
            is_chosen=item["batch"] == plan.case.problem.batch,
        )
        for index, item in enumerate(tried)
    ]


def _gain_at(index: int) -> str:
    return pointer("answer", "explain", "what_if", index, "gain_s_per_token")
