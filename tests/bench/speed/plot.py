"""The tables as bars, in one SVG file; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from tests.bench.speed.contestants import (
    CONTESTANTS,
    IK_Q4_0,
    IK_Q4_K,
    IK_STORED,
    LLAMA_CPP,
    LLAMA_IQ4_NL,
    LLAMA_Q4_K,
    LLAMA_RPC,
    OPENVINO,
    ORT,
    ORT_64,
    ORT_128,
    ORT_GENAI,
    RING,
    STORED,
    THREE,
    TRANSFORMERS,
    TVM,
    TVM_CACHE,
    TWO,
)
from tests.bench.speed.engines.contract import CONTEXT, PROMPT
from tests.bench.speed.figures import Figure, Table
from tests.bench.speed.turns import decode_at, is_decode

STYLES = {
    TVM: ("#009e73", ""), TVM_CACHE: ("#009e73", "\\\\"), ORT: ("#56b4e9", ""), ORT_64: ("#56b4e9", "\\\\"),
    ORT_128: ("#56b4e9", "--"), RING: ("#56b4e9", "//"), TWO: ("#56b4e9", ".."), THREE: ("#56b4e9", "xx"),
    ORT_GENAI: ("#0072b2", ""), OPENVINO: ("#cc79a7", ""), LLAMA_CPP: ("#d55e00", ""),
    IK_Q4_0: ("#009e73", ""), IK_Q4_K: ("#009e73", "\\\\"),
    LLAMA_Q4_K: ("#d55e00", "\\\\"), LLAMA_IQ4_NL: ("#d55e00", "--"), LLAMA_RPC: ("#d55e00", ".."),
    TRANSFORMERS: ("#7f7f7f", ""),
    **{STORED[kind]: ("#009e73", hatch) for kind, hatch in zip(STORED, ("--", "//", "..", "xx"), strict=True)},
    **{IK_STORED[kind]: ("#e69f00", hatch) for kind, hatch in zip(IK_STORED, ("", "//"), strict=True)},
}  # fmt: skip
"""Contestant → colour (of the palette of Okabe and Ito, for all eyes) and hatching."""
WIDTH = 0.8
HEADROOM = 1.2


def draw(tables: Sequence[Table], out: Path) -> None:
    """A column of panels for each model and number of threads: decode above, prefill below.

    Whiskers are the spread over the rounds, the black line is the limit that memory sets. The file is the same for
    the same figures: no date, no random names.
    """
    mpl.rcParams.update({"svg.hashsalt": "partc", "svg.fonttype": "none", "font.size": 9})
    groups = sorted({(table.cell.place.name, table.cell.threads, table.cell.slowed_by) for table in tables})
    drawing = Drawing(figsize=(4.2 * len(groups), 5.6), layout="constrained")
    panels = drawing.subplots(2, len(groups), squeeze=False)
    for column, group in enumerate(groups):
        found = [
            table for table in tables
            if (table.cell.place.name, table.cell.threads, table.cell.slowed_by) == group
        ]  # fmt: skip
        threads = f"{group[1]} thread{'s' if group[1] > 1 else ''}"
        panels[0][column].set(
            title=f"{group[0]}, {threads}{group[2]}", ylabel=f"tokens/s at context {CONTEXT}"
        )
        panels[1][column].set(ylabel=f"tokens/s, prompt of {PROMPT}")
        _fill(panels[0][column], found, decode_at(CONTEXT), 1)
        _fill(panels[1][column], found, "prefill", PROMPT)
    marks = {
        label: mark
        for panel in panels.flat
        for mark, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    drawing.legend(
        marks.values(), marks.keys(), loc="outside lower center", ncols=2 * len(groups), frameon=False
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(out, format="svg", metadata={"Date": None, "Creator": None})


def _fill(panel: Axes, tables: Sequence[Table], asked: str, tokens: int) -> None:
    """A group of bars for each table; a whisker that is far longer than any bar is cut off."""
    names = [name for name in CONTESTANTS if any(table.figure(name, asked) for table in tables)]
    width = WIDTH / max(1, len(names))
    tallest = 0.0
    for group, table in enumerate(tables):
        for index, name in enumerate(names):
            if figure := table.figure(name, asked):
                _bar(panel, figure, name, tokens, group - WIDTH / 2 + (index + 0.5) * width, width)
                tallest = max(tallest, tokens / figure.median)
        if is_decode(asked):
            limit = 1 / table.limit_s(asked)
            panel.hlines(limit, group - WIDTH / 2, group + WIDTH / 2, colors="black", label="limit of memory")
            tallest = max(tallest, limit)
    panel.set_ylim(0, HEADROOM * (tallest or 1.0))
    panel.set_xticks(range(len(tables)), [table.cell.kind for table in tables])


def _bar(panel: Axes, figure: Figure, name: str, tokens: int, at: float, width: float) -> None:
    colour, hatch = STYLES[name]
    speed = tokens / figure.median
    whiskers = [[speed - tokens / figure.high], [tokens / figure.low - speed]]
    panel.bar(
        at, speed, width, color=colour, hatch=hatch, edgecolor="white", linewidth=0.0, label=name,
        yerr=whiskers, error_kw={"linewidth": 0.8},
    )  # fmt: skip
