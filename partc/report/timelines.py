"""The timelines of the report: one step as predicted and as measured, and a pipelined run of both kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from partc.config.units import format_bytes, format_seconds
from partc.format.plan import Message, StageRun
from partc.format.plan import Timeline as Step
from partc.planner.groups.lanes import Span as LaneSpan
from partc.planner.simulate import Simulation
from partc.planner.simulate.case import simulate
from partc.planner.simulate.demand import Load
from partc.planner.simulate.guesses import simulate_guesses
from partc.planner.simulate.result import Guess
from partc.report.figures import Figure, Plan
from partc.report.lanes import Place, Span, Timeline, make_timeline, percent, say_place
from partc.report.measured import Measured
from partc.runs.steps import Work

REQUESTS, TOKENS = 4, 6
"""Requests and tokens of the pipelined run: enough to fill the pipeline, few enough for every bar to be seen."""
MOST_LANES = 16
"""Lanes of the pipelined run above which its links are left out."""
DETAILED = 2.0
"""Shared sub-modules that the beginning of a step shows: an attention and an MLP."""
WORK = {
    "enter": "products that begin a block",
    "inner": "attention or activation",
    "leave": "products that end a block",
    "connect": "what connects blocks",
    "alone": "sub-modules of its own",
}
"""Kind of work in a lane → what it is."""
NEAR = 1 / 400
"""Part of the axis below which the space between two bars is not drawn, where stages have many pieces of work."""
_WAYS = {
    "no-bubbles": "Pipelined without bubbles",
    "bubbles": "Pipelined with bubbles",
    "sequential": "One request after another",
}
"""Mode of the simulator → what it is called; the slowest, folded up, last."""


DRAFTS_RIGHT = 0.6
"""Share of drafts that are right in the request that is followed, where the plan is for none."""
LAPS = 4
"""Laps of it that are drawn."""
_GUESS_TONES: Mapping[Guess, str] = {"": "r0", "right": "r1", "void": "void"}
"""What became of a step that began with a guess → the colour of its bar."""
_GUESSES: Mapping[Guess, str] = {
    "": "began with a true token", "right": "began with a guess, which was right", "void": "was void",
}  # fmt: skip


@dataclass(frozen=True)
class Guessed:
    """One request with guessed tokens, as the simulator has it."""

    chance: Figure
    """Share of drafts that are right."""
    share: Figure
    """Share of tokens that came true from a guess."""
    pace: Figure
    """Seconds from a token to the next."""
    rows: str
    """Rows that devices compute for a token."""
    counts: str
    timeline: Timeline


@dataclass(frozen=True)
class Way:
    """Several requests in one way."""

    name: str
    rate: Figure | None
    """Tokens per second; None: all of it takes no time."""
    width: str
    """The width of its bar beside those of the other ways."""
    timeline: Timeline


@dataclass(frozen=True)
class Pipeline:
    """Several requests in every way, and as they were measured."""

    requests: int
    in_flight: int
    """So many at once; a build takes max_requests."""
    tokens: int
    ways: tuple[Way, ...]
    measured: Timeline | None


def step_timelines(plan: Plan, measured: Measured | None) -> list[tuple[str, list[Timeline]]]:
    """(phase, its timelines), the last phase (decode) first; predicted, then measured on the same axis."""
    groups = [(phase.phase, _predicted_steps(plan, phase)) for phase in plan.phases][::-1]
    if measured is None or (real := _measured_step(plan, measured)) is None:
        return groups
    name, (predicted, *_) = groups[0]
    longest = max(predicted.end_s, real.end_s)
    phase = plan.phases[-1]
    groups[0] = (
        name,
        [_predicted_step(plan, phase, longest), _measured_step(plan, measured, longest) or real],
    )
    return groups


def _tone(plan: Plan, device: str) -> str:
    return f"d{plan.devices.index(device)}"


def _lanes(plan: Plan, phase: Step) -> list[tuple[Place, str]]:
    """Devices in ring order, the links on which each sends below it."""
    lanes: dict[Place, str] = {}
    for device in plan.used:
        lanes[device,] = _tone(plan, device)
        sent = (message for message in phase.messages if message.sender == device)
        lanes |= {_link(message): "" for message in sent}
    return list(lanes.items())


def _link(message: Message) -> Place:
    return message.sender, message.receiver


def _span_of_stage(plan: Plan, stage: StageRun) -> Span:
    first, last = stage.first, stage.last
    text = f"{first}–{last}" if last > first else f"{first}"
    start, end = stage.start_s, stage.finish_s
    took = f"{format_seconds(end - start)}, from {format_seconds(start)} to {format_seconds(end)}"
    device = stage.device
    return Span((device,), start, end, _tone(plan, device), f"{device}: sub-modules {text}, {took}", text)


def _span_of_message(message: Message) -> Span:
    title = f"{say_place(_link(message))}: {format_bytes(message.bytes)} in {format_seconds(message.seconds)}"
    return Span(_link(message), message.start_s, message.arrive_s, "link", title, format_bytes(message.bytes))


def _predicted_steps(plan: Plan, phase: Step) -> list[Timeline]:
    """The whole step; where devices share stages, its beginning first, with every tile."""
    whole = _predicted_step(plan, phase)
    lanes = plan.lanes.get(phase.phase)
    if lanes is None:
        return [whole]
    shared = sum(len(stage.indices) for stage in plan.case.phases[phase.phase] if len(stage.devices) > 1)
    shown = phase.latency_s * min(1.0, DETAILED / shared)
    spans = [_span_of_lane(plan, span) for span in lanes.spans]
    caption = f"Predicted: the first {format_seconds(shown)}, about an attention and an MLP"
    first = [span for span in spans if span.start_s < shown]
    return [make_timeline(caption, _words(first), _lanes(plan, phase), first, shown), whole]


def _span_of_lane(plan: Plan, span: LaneSpan) -> Span:
    """A piece of work, or a message, as the planner follows it."""
    if span.receiver is not None:
        place, took = (span.device, span.receiver), format_seconds(span.arrive_s - span.start_s)
        title = f"{say_place(place)}: {format_bytes(span.bytes)} in {took}"
        return Span(place, span.start_s, span.arrive_s, "link", title)
    took = format_seconds(span.finish_s - span.start_s)
    title = f"{span.device}: {WORK.get(span.work[0], span.work[0])}, {took}"
    return Span((span.device,), span.start_s, span.finish_s, _tone(plan, span.device), title)


def _predicted_step(plan: Plan, phase: Step, shown_s: float | None = None) -> Timeline:
    spans = [_span_of_stage(plan, stage) for stage in phase.stages]
    spans += [_span_of_message(message) for message in phase.messages]
    caption = f"Predicted: {format_seconds(phase.latency_s)}"
    return make_timeline(caption, _words(spans), _lanes(plan, phase), spans, shown_s)


def _words(spans: Sequence[Span]) -> str:
    return "; ".join(span.title for span in sorted(spans, key=lambda item: item.start_s))


def _measured_step(plan: Plan, measured: Measured, shown_s: float | None = None) -> Timeline | None:
    """The step of median length, if the starts on different devices can be compared."""
    chosen = measured.typical_step()
    if chosen is None or not measured.has_lanes:
        return None
    request, step = chosen
    phase = plan.phases[-1]
    steps = measured.steps[request]
    works = steps.works.get(step, {})
    if set(works) < set(plan.used):
        return None
    zero = works[measured.source].arrived_s
    spans = [_span_of_work(plan, work, zero) for work in works.values()]
    for message in phase.messages:
        arrived = steps.arrival(phase, message, step)
        left = works[message.sender].end_s
        if arrived is not None and arrived > left:
            title = f"{say_place(_link(message))}: {format_seconds(arrived - left)}"
            spans.append(Span(_link(message), left - zero, arrived - zero, "link", title))
    end = max(span.end_s for span in spans)
    caption = f"Measured: {format_seconds(end)} (step {step}, the one of median length)"
    return make_timeline(caption, _words(spans), _lanes(plan, phase), spans, shown_s)


def _span_of_work(plan: Plan, work: Work, zero: float) -> Span:
    start, end = work.start_s - zero, work.end_s - zero
    title = f"{work.device}: {format_seconds(end - start)}"
    return Span((work.device,), start, end, _tone(plan, work.device), title)


def pipeline(plan: Plan, measured: Measured | None) -> Pipeline:
    """Several requests through the devices in each way, the two pipelined ones on one axis."""
    in_flight = plan.in_flight(REQUESTS)
    runs = {mode: simulate(plan.workflow, Load(REQUESTS, _tokens(plan), mode, in_flight)) for mode in _WAYS}
    # The simulator counts a request as one, however many sequences are in it.
    rates = {mode: run.tokens_per_s * plan.units if run.makespan_s else 0.0 for mode, run in runs.items()}
    longest = max(run.makespan_s for mode, run in runs.items() if mode != "sequential")
    ways = tuple(
        Way(
            name,
            Figure(rates[mode], "rate") if rates[mode] else None,
            percent(rates[mode], max(rates.values())),
            _simulated(plan, runs[mode], name, None if mode == "sequential" else longest),
        )
        for mode, name in _WAYS.items()
    )
    real = _measured_run(plan, measured) if measured is not None else None
    return Pipeline(REQUESTS, in_flight, _tokens(plan), ways, real)


def guessed(plan: Plan) -> Guessed | None:
    """One request with guessed tokens; None where none are guessed, or stages have several devices."""
    problem = plan.case.problem
    if problem.drafts is None or problem.decode is None or plan.case.phases:
        return None
    chance = problem.drafts.share or DRAFTS_RIGHT
    run = simulate_guesses(plan.case, plan.case.tokens, chance)
    if not run.makespan_s or not run.drafted or not run.drafted.guessed:
        return None
    begin = run.token_s[0][0]
    lap_s = plan.phases[problem.decode].latency_s
    shown = min(run.makespan_s - begin, LAPS * lap_s) or lap_s
    spans = [
        Span(
            (span.device,), max(0.0, span.start_s - begin), span.end_s - begin, _GUESS_TONES[span.guess],
            f"{span.device}: a step that {_GUESSES[span.guess]}, {format_seconds(span.end_s - span.start_s)}",
        )
        for span in run.spans
        if span.step and span.end_s > begin
    ]  # fmt: skip
    lanes = [((device,), _tone(plan, device)) for device in plan.used]
    counts = f"{run.drafted.guessed} tokens guessed, {run.drafted.right} of them right"
    caption = f"The first {format_seconds(shown)} behind the first token"
    return Guessed(
        chance=Figure(chance, "percent"),
        share=Figure(run.drafted.share, "percent"),
        pace=Figure(run.pace_s or 0.0, "seconds"),
        rows=f"{run.drafted.rows_per_token:.2f}",
        counts=counts,
        timeline=make_timeline(caption, counts, lanes, spans, shown),
    )


def _tokens(plan: Plan) -> int:
    """A model that does not generate makes one step a request."""
    return TOKENS if len(plan.phases) > 1 else 1


def _simulated(plan: Plan, run: Simulation, name: str, longest: float | None) -> Timeline:
    spans = [
        Span(
            (span.device,), span.start_s, span.end_s, _request_tone(span.request),
            _title((span.device,), span.request, span.phase, span.end_s - span.start_s), f"{span.request + 1}",
        )
        for span in run.spans
    ]  # fmt: skip
    for item in run.transfers:
        link = (item.sender, item.receiver)
        title = _title(link, item.request, item.phase, item.end_s - item.start_s)
        spans.append(Span(link, item.start_s, item.end_s, _request_tone(item.request), title))
    if plan.case.phases:
        spans = _joined(spans, longest or run.makespan_s)
    busy = ", ".join(f"{device} {run.busy[device]:.0%} busy" for device in plan.used if device in run.busy)
    caption = f"{name}: {format_seconds(run.makespan_s)} in all"
    lanes = _lanes(plan, plan.phases[-1])
    shown = lanes if len(lanes) <= MOST_LANES else [lane for lane in lanes if len(lane[0]) == 1]
    return make_timeline(caption, busy, shown, spans, longest)


def _joined(spans: Sequence[Span], shown_s: float) -> list[Span]:
    """One bar for neighbours of one request in a lane, where hardly anything would be seen between them."""
    lanes: dict[Place, list[Span]] = {}
    for span in sorted(spans, key=lambda item: item.start_s):
        mine = lanes.setdefault(span.lane, [])
        before = mine[-1] if mine else None
        if before and before.tone == span.tone and span.start_s - before.end_s < NEAR * shown_s:
            mine[-1] = replace(before, end_s=max(before.end_s, span.end_s))
        else:
            mine.append(span)
    return [span for mine in lanes.values() for span in mine]


def _title(where: Place, request: int, phase: str, seconds: float) -> str:
    return f"{say_place(where)}: request {request + 1}, {phase}, {format_seconds(seconds)}"


def _request_tone(request: int) -> str:
    return f"r{request % REQUESTS}"


def say_requests(plan: Plan, count: int) -> str:
    """`one request`, `4 requests`, `4 requests, 2 at once`."""
    at_once = plan.in_flight(count)
    if count == 1:
        return "one request"
    return f"{count} requests in flight" if at_once == count else f"{count} requests, {at_once} at once"


def _measured_run(plan: Plan, measured: Measured) -> Timeline | None:
    """The first steps of a run; None where the devices' clocks cannot be compared."""
    if not measured.has_lanes:
        return None
    works = [
        (number, work)
        for number, steps in enumerate(measured.steps)
        for devices in steps.works.values()
        for work in devices.values()
    ]
    first = [work for _, work in works if work.step < TOKENS]
    if not first:
        return None
    zero = min(work.arrived_s for work in first)
    spans = [
        Span(
            (work.device,), work.start_s - zero, work.end_s - zero, _request_tone(number),
            _title((work.device,), number, f"step {work.step}", work.end_s - work.start_s),
            f"{number + 1}",
        )
        for number, work in works
    ]  # fmt: skip
    requests = say_requests(plan, measured.requests)
    caption = f"Measured: {requests}, the first {TOKENS} {plan.unit}s"
    end = max(work.end_s for work in first) - zero
    summary = f"{len(spans)} computations on {len(plan.used)} devices"
    lanes = [((device,), _tone(plan, device)) for device in plan.used]
    return make_timeline(caption, summary, lanes, spans, end)
