"""Tables for people: they fit in 80 columns and are plain text where nobody looks at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click
from rich import box
from rich.console import Console
from rich.table import Table

from partc.cli.summary import MessageRow, StageRow, Summary
from partc.config.units import format_bytes, format_seconds
from partc.pipeline.manager import PassRun


def show(*blocks: Table | str, stderr: bool = False) -> None:
    """Print tables and lines: at the terminal's width, or in 80 columns of plain text where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    out = Console(
        file=stream, width=None if stream.isatty() else 80, highlight=False, emoji=False, markup=False
    )
    with out.capture() as captured:
        for block in blocks:
            out.print(block)
    # Cells are padded with spaces: nobody wants those in a file.
    lines = captured.get().splitlines()
    click.echo("\n".join(line.rstrip() for line in lines), file=stream)


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()
) -> Table:
    """A table whose columns named in `right` are aligned to the right; the rest may wrap."""
    result = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in columns:
        number = name in right
        result.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        result.add_row(*row)
    return result


def print_summary(summary: Summary) -> None:
    """The stages, the messages, and what they come to."""
    phases = list(summary.stages[0].compute_s)
    messages = [_message_table(summary.messages, phases)] if summary.messages else []
    show(_stage_table(summary.stages, phases), *messages, *headline(summary))


def headline(summary: Summary) -> list[str]:
    """What the plan comes to, what limits it, and why devices are left out."""
    binding = summary.explain.get("binding")
    limits = [f"limited by {binding}"] if isinstance(binding, str) else []
    lines = [*limits, *_unused_lines(summary.explain)]
    if summary.objective == "latency":  # the planner, which knows no tokens, calls the same unit a step
        lines = [line.replace(" per step", f" per {_unit(summary)}") for line in lines]
    return [_value_line(summary), *lines]


def _stage_table(stages: Sequence[StageRow], phases: Sequence[str]) -> Table:
    known = stages[0].weights_bytes is not None
    sizes = ["weights", "caches"] if known else []
    columns = ["device", "modules", *sizes, "memory", "budget", *phases]
    rows = [
        [
            stage.device,
            _span(stage),
            *([_bytes(stage.weights_bytes), _bytes(stage.state_bytes)] if known else []),
            format_bytes(stage.memory_bytes),
            format_bytes(stage.budget_bytes),
            *(format_seconds(stage.compute_s[phase]) for phase in phases),
        ]
        for stage in stages
    ]
    return table("Stages (compute time of one step)", columns, rows, right=columns[2:])


def _message_table(messages: Sequence[MessageRow], phases: Sequence[str]) -> Table:
    columns = ["from", "to", "kind", *phases, "values"]
    rows = [
        [
            message.sender,
            message.receiver,
            message.kind,
            *(_bytes(message.bytes.get(phase)) for phase in phases),
            ", ".join(message.values),
        ]
        for message in messages
    ]
    return table("Messages (bytes of one step)", columns, rows, right=list(phases))


def _span(stage: StageRow) -> str:
    return str(stage.first) if stage.first == stage.last else f"{stage.first}-{stage.last}"


def _bytes(count: float | None) -> str:
    return "-" if count is None else format_bytes(count)


def _value_line(summary: Summary) -> str:
    gap = "unknown" if summary.gap is None else f"{summary.gap:.2%}"
    value, bound = (_value_text(summary, value) for value in (summary.value, summary.bound))
    return f"predicted {value}; bound {bound}, gap {gap} ({summary.method})"


def _value_text(summary: Summary, value: float | None) -> str:
    if value is None:
        return "unknown"
    if summary.objective == "throughput":
        return f"{value:.4g} steps/s"
    return f"{format_seconds(value)} per {_unit(summary)}"


def _unit(summary: Summary) -> str:
    """Of what a latency is: a model that generates makes a token in it."""
    return "token" if "decode" in summary.stages[0].compute_s else "step"


def _unused_lines(explain: Mapping[str, object]) -> list[str]:
    unused = explain.get("unused", {})
    return (
        [f"not used: {name}: {reason}" for name, reason in unused.items()]
        if isinstance(unused, Mapping)
        else []
    )


def print_pass_times(runs: Sequence[PassRun]) -> None:
    """How long each pass took, on stderr."""
    total = sum(run.seconds for run in runs)
    rows = [[run.name, format_seconds(run.seconds), "yes" if run.modified else "no"] for run in runs]
    rows.append(["total", format_seconds(total), ""])
    show(table("Passes", ["pass", "time", "changed"], rows, right=["time"]), stderr=True)
