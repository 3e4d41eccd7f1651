"""The figures for people: as text, and as Markdown to paste into docs/benchmarks.md."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence

from tests.bench.random_models import MODELS
from tests.bench.speed.aims import HOP_US, Outcome
from tests.bench.speed.contestants import CONTESTANTS, LLAMA_CPP
from tests.bench.speed.engines.contract import CONTEXT, PROMPT
from tests.bench.speed.figures import Figure, Table
from tests.bench.speed.machine import Machine
from tests.bench.speed.make import Bundle
from tests.bench.speed.turns import decode_at

GAP = "–"
CLOCKS = {"wall": "time by the wall", "cpu": "processor time of all processes concerned"}
LARGER_BLOCKS = (
    "Blocks of 64 and 128 quantise more coarsely than all others here, Q4_0 included: one scale for 64 or 128 weights"
    " instead of 32. `of the limit` counts the bytes that they read."
)
Rows = Sequence[Sequence[str]]


def document(
    machine: Machine,
    versions: Mapping[str, str],
    tables: Sequence[Table],
    aims: Sequence[Outcome],
    absent: Mapping[str, str],
    rounds: int,
) -> str:
    """Everything, in Markdown that reads well as text, too."""
    lines = [f"### {datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "", f"Machine: {machine.sentence}.", ""]
    if not machine.idle:
        lines += ["**The machine was not idle: times by the wall mean little, ratios are rough.**", ""]
    lines += [f"Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}.", ""]
    clock = CLOCKS[tables[0].clock] if tables else ""
    lines += [
        f"Medians of {rounds} interleaved rounds, {clock}, [least – most] behind them. Decode is one token, prefill a"
        f" prompt of {PROMPT} tokens. `partc is` says how many times as fast as the row partc uncut is (on tvm, where"
        " it takes part), round by round.",
        "",
    ]
    for table in tables:
        lines += _section(table)
    if aims:
        lines += ["#### Aims, on one thread", "", *_aims(aims), ""]
    lines += [f"- {name}: {reason}" for name, reason in absent.items()]
    return "\n".join(lines).rstrip() + "\n"


def _section(table: Table) -> list[str]:
    context, *others = table.contexts or [CONTEXT]
    absent = [f"{name} is missing: {reason}." for name, reason in table.absent.items()]
    files = [CONTESTANTS[name].files for name in table.names]
    coarse = any(isinstance(one, Bundle) and one.block > 32 for one in files)
    head = (
        "", f"decode at {context}, ms/token", "of the limit", "× llama.cpp", "partc is",
        "prefill, tokens/s", "× llama.cpp", "partc is",
    )  # fmt: skip
    rows = [_row(table, name, decode_at(context)) for name in table.names]
    return [
        f"#### {table.cell.title}",
        "",
        *([_limit(table, context), ""] if table.contexts else []),
        *markdown(head, rows),
        "",
        *([LARGER_BLOCKS, ""] if coarse else []),
        *(_contexts(table, others) if others else []),
        *_rings(table),
        *absent,
        "",
    ]


def _limit(table: Table, context: int) -> str:
    asked = decode_at(context)
    moves = "reads and writes" if MODELS[table.cell.place.name].state_values else "reads"
    return (
        f"A token {moves} {table.read_bytes(table.reference, context) / 1e6:,.0f} MB; memory gives"
        f" {1e-9 / table.byte_s(asked):.1f} GB/s, so {table.limit_s(asked) * 1e3:.2f} ms is the least it can take."
    )


def _row(table: Table, name: str, decode: str) -> list[str]:
    prefill = table.figure(name, "prefill")
    tokens = (
        Figure(*(PROMPT / one for one in (prefill.median, prefill.high, prefill.low))) if prefill else None
    )
    part = table.of_the_limit(name, decode)
    return [
        name,
        _spread(table.figure(name, decode), 1e3, 2),
        f"{part.median:.0%}" if part else GAP,
        _ratio(table.speed(name, LLAMA_CPP, decode)),
        _ratio(table.speed(table.reference, name, decode)),
        _spread(tokens, 1.0, 0),
        _ratio(table.speed(name, LLAMA_CPP, "prefill")),
        _ratio(table.speed(table.reference, name, "prefill")),
    ]


def _contexts(table: Table, contexts: Sequence[int]) -> list[str]:
    """Decode behind fewer or more tokens."""
    head = [
        "",
        *(words for at in contexts for words in (f"decode at {at}, ms/token", "of the limit", "partc is")),
    ]
    rows = [
        [name, *(word for at in contexts for word in _decode(table, name, decode_at(at)))]
        for name in table.names
    ]
    return [*markdown(head, rows), ""]


def _decode(table: Table, name: str, asked: str) -> tuple[str, str, str]:
    part = table.of_the_limit(name, asked)
    return (
        _spread(table.figure(name, asked), 1e3, 2),
        f"{part.median:.0%}" if part else GAP,
        _ratio(table.speed(table.reference, name, asked)),
    )


def _rings(table: Table) -> list[str]:
    """The figures that rings alone have."""
    lines = []
    for name in table.names:
        parts = []
        if "hop" in table.samples[name]:
            hop = Figure.of([sample.wall_s for sample in table.samples[name]["hop"]])
            parts.append(
                f"a hop takes {hop.median * 1e6:.0f} µs [{hop.low * 1e6:.0f} – {hop.high * 1e6:.0f}]"
            )
        pair = table.compare((name, "pair"), (name, decode_at(CONTEXT)), "wall")
        if pair is not None:
            parts.append(f"two requests bring {_ratio(pair)} times the tokens of one")
        if parts:
            lines.append(f"- {name}: {'; '.join(parts)} (by the wall).")
    return [*lines, ""] if lines else []


def _aims(aims: Iterable[Outcome]) -> list[str]:
    rows = [
        (
            one.model,
            one.kind,
            one.says,
            f"≥ {one.least:.2f}",
            _ratio(one.found),
            "yes" if one.met else "**no**",
        )
        for one in aims
    ]
    note = f"A hop is to take at most {HOP_US:.0f} µs at 1.1B."
    return [*markdown(("model", "format", "speed of", "aim", "found", "met"), rows), "", note]


def markdown(head: Sequence[str], rows: Rows) -> list[str]:
    """A table whose columns line up."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (head, *rows)
    ]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if not i else ":") for i, width in enumerate(widths)) + "|"
    return [lines[0], rule, *lines[1:]]


def _spread(figure: Figure | None, factor: float, digits: int) -> str:
    if figure is None:
        return GAP
    median, low, high = (
        f"{value * factor:,.{digits}f}" for value in (figure.median, figure.low, figure.high)
    )
    return f"{median} [{low} – {high}]"


def _ratio(figure: Figure | None) -> str:
    return GAP if figure is None else f"{figure.median:.2f} [{figure.low:.2f} – {figure.high:.2f}]"
