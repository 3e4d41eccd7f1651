"""The output of `partc simulate`: figures, busy times, and a timeline of the first steps in text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from rich.table import Table

from partc.cli.tables import show, table
from partc.config.units import format_seconds
from partc.planner.model.objective_values import say_rate

if TYPE_CHECKING:
    from partc.planner.simulate.result import Guess, Simulation, Span

_WIDTH = 78
_MOST_ROWS = 16
"""Devices in a timeline; more would not fit on a screen."""
_STEPS = 3
"""Tokens of each request that a timeline shows."""
_BAR = 24
_PACE = "per token after the first"
"""The meaning of a request's pace, as opposed to a plan's seconds per token, which spread the prefill."""
_DIGITS = "123456789abcdefghijklmnopqrstuvwxyz"
_FIRST, _LATER, _IDLE = "█", "▒", "·"
_GUESSED: Mapping[Guess, tuple[str, str]] = {
    "": ("█", "true"),
    "right": ("▓", "begun with a guess, right"),
    "void": ("x", "void"),
}
"""What became of a step that began with a guess, or of one that did not → its mark, and that in words."""
_LAPS = 4
"""Laps of a request with guesses that a timeline shows."""


def print_simulation(
    simulation: Simulation, modes: Sequence[Simulation], devices: Sequence[str], in_flight: int
) -> None:
    """The whole output for people; `devices` are those in use, in ring order."""
    compared = [_mode_table(modes)] if modes else []
    show(*_headline(simulation, devices, in_flight), "")
    for line in timeline(simulation, devices):
        click.echo(line)
    click.echo()
    show(_busy_table(simulation, devices), *compared)


def print_guesses(with_them: Simulation, without: Simulation, devices: Sequence[str]) -> None:
    """The whole output of one request with guessed tokens, beside the same without; `devices` in ring order."""
    show(*_guessed_headline(with_them, without), "")
    for line in guessed_timeline(with_them, without.pace_s or 0.0, devices):
        click.echo(line)
    click.echo()
    show(_busy_table(with_them, devices), _mode_table([without, with_them]))


def _guessed_headline(with_them: Simulation, without: Simulation) -> list[str]:
    made, drafted = len(with_them.token_s[0]), with_them.drafted
    assert drafted is not None
    lines = [
        f"guesses: 1 request of {made} token{'s' * (made > 1)}; {drafted.guessed} guessed, {drafted.right} of them "
        f"right ({drafted.share:.0%} of all), {drafted.rows_per_token:.2f} rows a token",
        f"{_rate(with_them)} tokens/s; first token after {format_seconds(with_them.first_token_s)}",
    ]
    if with_them.pace_s is not None and without.pace_s is not None:
        faster = without.pace_s / with_them.pace_s if with_them.pace_s else 1.0
        lines[1] += (
            f", {format_seconds(with_them.pace_s)} {_PACE}: {faster:.2f} times as fast as without guesses"
        )
    return lines


def _headline(simulation: Simulation, devices: Sequence[str], in_flight: int) -> list[str]:
    requests, tokens = len(simulation.token_s), len(simulation.token_s[0])
    count = f"{requests} request{'s' * (requests > 1)} of {tokens} token{'s' * (tokens > 1)}"
    if simulation.batch > 1:
        count += f" for each of {simulation.batch} sequences"
    waiting = f", {in_flight} at once" if in_flight < requests and simulation.mode != "sequential" else ""
    pace = "" if simulation.pace_s is None else f", {format_seconds(simulation.pace_s)} {_PACE}"
    limit = simulation.limit
    kind = "device" if limit.name in devices else "link"
    best = (
        f"at most {say_rate(simulation.batch / limit.s_per_token)} tokens/s"
        if limit.s_per_token
        else "no limit"
    )
    return [
        f"{simulation.mode}: {count}{waiting}",
        f"{_rate(simulation)} tokens/s; first token after {format_seconds(simulation.first_token_s)}{pace}",
        f"{best}: the {kind} {limit.name} is busy longest, {format_seconds(limit.s_per_token)} a step",
    ]


def _rate(simulation: Simulation) -> str:
    """Tokens of all sequences per second."""
    return say_rate(simulation.batch * simulation.tokens_per_s)


def _mode_table(modes: Sequence[Simulation]) -> Table:
    columns = ["mode", "tokens/s", "first token", _PACE, "all done"]
    rows = [
        [
            item.mode,
            _rate(item),
            format_seconds(item.first_token_s),
            "-" if item.pace_s is None else format_seconds(item.pace_s),
            format_seconds(item.makespan_s),
        ]
        for item in modes
    ]
    return table("Modes (mean of the requests)", columns, rows, right=columns[1:])


def _busy_table(simulation: Simulation, devices: Sequence[str]) -> Table:
    busy = simulation.busy
    links = sorted(name for name in busy if name not in devices)
    rows = [
        [
            name if name in devices else name.replace("->", " -> "),
            f"{busy[name]:.1%}",
            "█" * round(_BAR * busy[name]),
        ]
        for name in [*devices, *links]
        if name in busy
    ]
    return table("Busy", ["device or link", "busy", ""], rows, right=["busy"])


def timeline(simulation: Simulation, devices: Sequence[str]) -> list[str]:
    """The first steps as lines of characters, one a device.

    A run begins with the number of its request.
    """
    end = _window(simulation)
    shown = devices[:_MOST_ROWS]
    name_width = min(16, max(map(len, shown)))
    width = _WIDTH - name_width - 1
    cell = end / width
    by_device: dict[str, list[Span]] = {name: [] for name in shown}
    for span in simulation.spans:
        if span.device in by_device and span.start_s < end:
            by_device[span.device].append(span)
    lines = [f"The first {format_seconds(end)}"]
    lines += [
        f"{name[:name_width]:<{name_width}} {_row(by_device[name], cell, width) if cell else ''}"
        for name in shown
    ]
    if len(devices) > len(shown):
        lines.append(f"and {len(devices) - len(shown)} more devices")
    legend = [f"{_DIGITS[0]} {_DIGITS[1]} … a run of that request begins", f"{_FIRST} first step"]
    later = [f"{_LATER} later steps"] if any(span.step for span in simulation.spans) else []
    return [*lines, "   ".join([*legend, *later, f"{_IDLE} idle"])]


def guessed_timeline(simulation: Simulation, lap_s: float, devices: Sequence[str]) -> list[str]:
    """Some laps behind the first token as lines of characters, one a device: steps that are true, right, and void."""
    begin = simulation.token_s[0][0]
    end = min(simulation.makespan_s, begin + _LAPS * lap_s) - begin
    shown = devices[:_MOST_ROWS]
    name_width = min(16, max(map(len, shown)))
    width = _WIDTH - name_width - 1
    lines = [f"{format_seconds(end)} behind the first token"]
    for name in shown if end else ():
        spans = [
            replace(span, start_s=max(0.0, span.start_s - begin), end_s=span.end_s - begin)
            for span in simulation.spans
            if span.device == name and begin <= span.end_s and span.start_s < begin + end and span.step
        ]
        owners = _owners(spans, end / width, width)
        row = "".join(_IDLE if span is None else _GUESSED[span.guess][0] for span in owners)
        lines.append(f"{name[:name_width]:<{name_width}} {row}")
    begun = {span.guess for span in simulation.spans}
    legend = [f"{mark} {words}" for guess, (mark, words) in _GUESSED.items() if guess in begun]
    return [*lines, "   ".join([*legend, f"{_IDLE} idle"])]


def _window(simulation: Simulation) -> float:
    """The end of the timeline: every request that was there from the start has made a few tokens."""
    steps = min(_STEPS, len(simulation.token_s[0]))
    if simulation.mode == "sequential":
        return simulation.token_s[0][steps - 1]
    first = sum(times[0] <= simulation.token_s[0][-1] for times in simulation.token_s)
    return max(times[steps - 1] for times in simulation.token_s[: max(1, first)])


def _row(spans: Sequence[Span], cell: float, width: int) -> str:
    """A device's cells; spans by start."""
    owners = _owners(spans, cell, width)
    marks = []
    for at, span in enumerate(owners):
        if span is None:
            marks.append(_IDLE)
        elif at == 0 or owners[at - 1] is not span:
            marks.append(_DIGITS[span.request % len(_DIGITS)])
        else:
            marks.append(_LATER if span.step else _FIRST)
    return "".join(marks)


def _owners(spans: Sequence[Span], cell: float, width: int) -> list[Span | None]:
    """The event that fills most of each cell, if it fills half of it; a span without a cell takes an idle one."""
    owners: list[Span | None] = [None] * width
    most = [cell / 2] * width
    for span in spans:
        first, last = int(span.start_s / cell), min(width - 1, int(span.end_s / cell))
        for at in range(first, last + 1):
            overlap = min(span.end_s, (at + 1) * cell) - max(span.start_s, at * cell)
            if overlap > most[at]:
                most[at], owners[at] = overlap, span
        if first < width and owners[first] is None and span not in owners[first : last + 1]:
            owners[first] = span
    return owners
