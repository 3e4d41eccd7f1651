"""Tables for people: they fit in 80 columns and are plain text where stdout is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from partc.config.units import format_bytes, format_seconds
from partc.planner.explain.summary import MessageRow, StageRow, Summary
from partc.planner.model.objective_values import say_rate
from partc.printable import printable

if TYPE_CHECKING:
    from partc.pipeline.manager import PassRun

SHOWN = 5
"""The number of helpful changes that are printed; plan.json has all."""


def show(*blocks: Table | str, stderr: bool = False) -> None:
    """Print tables and lines: at the terminal's width, or in 80 columns of plain text where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    out = Console(
        file=stream, width=None if stream.isatty() else 80, highlight=False, emoji=False, markup=False
    )
    with out.capture() as captured:
        for block in blocks:
            out.print(printed(block))
    # Cells are padded with spaces, which would be noise in a file.
    lines = captured.get().splitlines()
    click.echo("\n".join(line.rstrip() for line in lines), file=stream)


def printed(block: Table | str) -> Table | str:
    """A table or a line without commands to the terminal."""
    return printable(block) if isinstance(block, str) else block


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    *,
    tight: bool = False,
) -> Table:
    """A table whose columns named in `right` are aligned to the right; the rest may wrap.

    Args:
        title: the line above it; like the cells it may hold texts of others.
        columns: heads of the columns.
        rows: cells; they may hold texts of others: devices, servers, files.
        right: columns that are aligned to the right.
        tight: one space between columns instead of two.
    """
    result = Table(
        title=printable(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=0 if tight else (0, 1, 0, 0),
    )
    for name in columns:
        number = name in right
        result.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        result.add_row(*map(printable, row))
    return result


def print_summary(summary: Summary) -> None:
    """The stages, the messages, what they come to, why, what the loss of a device would mean, and what may move."""
    phases = list(dict.fromkeys(phase for stage in summary.stages for phase in stage.compute_s))
    messages = [_message_table(summary.messages, phases)] if summary.messages else []
    batches = [_batch_table(tried, summary.batch)] if (tried := summary.explain.get("batch")) else []
    show(
        _stage_table(summary.stages, phases),
        *messages,
        *batches,
        *headline(summary),
        *summary.explain.get("shared", []),
        *_chosen_lines(summary.explain.get("chosen", {})),
        *_unused_lines(summary.explain.get("unused", {})),
        *summary.losses,
        *summary.moves,
        *_what_if_lines(summary.explain.get("what_if", [])),
    )


def headline(summary: Summary) -> list[str]:
    """The value of the plan, its limit, and the best plan where it is another one."""
    gap = "unknown" if summary.gap is None else f"{summary.gap:.2%}"
    value = f"predicted {summary.value_text}; bound {summary.bound_text}, gap {gap} ({summary.method})"
    binding = summary.explain.get("binding")
    best = summary.explain.get("best", {}).get("text", "")
    limits = [f"limited by {binding}"] if isinstance(binding, str) else []
    notes = [summary.explain[key] for key in ("cuts", "returns") if key in summary.explain]
    return [
        value,
        *_measured_line(summary),
        *notes,
        *limits,
        *([best] if best and best not in str(binding) else []),
    ]


def _measured_line(summary: Summary) -> list[str]:
    """A note on how many times were measured, where devices.yaml names measured ones."""
    times = summary.explain.get("times")
    if not times:
        return []
    rest = "" if times["measured"] == times["of"] else ", the others estimated"
    made = f"made with {times['measured']} measured times of sub-modules of {times['of']}{rest}"
    return [made, *times.get("advice", [])]


def _stage_table(stages: Sequence[StageRow], phases: Sequence[str]) -> Table:
    known = stages[0].weights_bytes is not None
    sizes = ["weights", "caches"] if known else []
    columns = ["device", "modules", *sizes, "memory", "budget", *phases]
    rows = [
        [
            stage.device,
            _span(stage),
            *([_bytes(stage.weights_bytes), _bytes(stage.state_bytes)] if known else []),
            # Memory belongs to the device: it stands beside its first stage.
            *(["", ""] if stage.device in [s.device for s in stages[:index]] else _memory(stage)),
            *(
                format_seconds(stage.compute_s[phase]) if phase in stage.compute_s else "-"
                for phase in phases
            ),
        ]
        for index, stage in enumerate(stages)
    ]
    return table("Stages (time of a step; 1 MiB = 1.049 MB)", columns, rows, right=columns[2:])


def _memory(stage: StageRow) -> list[str]:
    return [format_bytes(stage.memory_bytes), format_bytes(stage.budget_bytes)]


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


_CHOSEN = "chosen: the smallest within 2 % of the best"


def _batch_table(tried: Sequence[Mapping[str, Any]], chosen: int) -> Table:
    rows = [
        [
            str(one["batch"]),
            say_rate(one["tokens_per_s"]) if one["feasible"] else "-",
            _CHOSEN if one["batch"] == chosen else "" if one["feasible"] else "no plan fits",
        ]
        for one in tried
    ]
    return table("Batches tried", ["batch", "tokens/s", ""], rows, right=["batch", "tokens/s"])


def _unused_lines(unused: Mapping[str, str]) -> list[str]:
    """Why devices have nothing to do; those with the same reason in one line."""
    return [f"not used: {', '.join(names)}: {reason}" for reason, names in _grouped(unused).items()]


def _chosen_lines(chosen: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The settings that devices.yaml leaves open, as it would have them; devices with the same ones in one line."""
    said = {name: _as_yaml(settings)[1:-1] for name, settings in chosen.items()}
    return [f"chosen for {', '.join(names)}: {settings}" for settings, names in _grouped(said).items()]


def _as_yaml(value: object) -> str:
    if isinstance(value, Mapping):
        return (
            f"{{{', '.join(f'{key}: {_as_yaml(one)}' for key, one in value.items() if one not in ({}, []))}}}"
        )
    return f"[{', '.join(map(_as_yaml, value))}]" if isinstance(value, list) else str(value)


def _grouped(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Text → the names that it belongs to."""
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    return groups


def _what_if_lines(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The changes that would buy most, in words; the others in one line."""
    useful = [entry["text"] for entry in entries if entry["gain_s_per_token"]]
    unknown = sum(entry["gain_s_per_token"] is None for entry in entries)
    idle = len(entries) - len(useful) - unknown
    rest = [f"{len(useful) - SHOWN} more would help less"] if len(useful) > SHOWN else []
    rest += [f"{idle} would change nothing"] if idle else []
    rest += [f"{unknown} not computed: the problem is large"] if unknown else []
    lines = [f"  {line}" for line in [*useful[:SHOWN], *(["; ".join(rest)] if rest else [])]]
    if not entries or not (useful or idle):
        return []
    kept = "" if any(entry["replanned"] for entry in entries) else " this assignment"
    if not useful:
        return [f"what would help{kept}: none of {idle} changes alone"]
    return [f"what would help{kept}:", *lines]


def print_pass_times(runs: Sequence[PassRun]) -> None:
    """The time of each pass, on stderr."""
    total = sum(run.seconds for run in runs)
    rows = [[run.name, format_seconds(run.seconds), "yes" if run.modified else "no"] for run in runs]
    rows.append(["total", format_seconds(total), ""])
    show(table("Passes", ["pass", "time", "changed"], rows, right=["time"]), stderr=True)
