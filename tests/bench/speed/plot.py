"""The tables as bars, in one SVG file; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from tests.bench.speed.contestants import (
    CONTESTANTS,
    LLAMA_CPP,
    LLAMA_RPC,
    ORT_GENAI,
    RING,
    THREE,
    TRANSFORMERS,
    TWO,
    UNCUT,
    UNCUT_64,
    UNCUT_128,
)
from tests.bench.speed.engines.contract import CONTEXT, PROMPT
from tests.bench.speed.figures import Table

STYLES = {
    UNCUT: ("#009e73", ""), UNCUT_64: ("#009e73", "\\\\"), UNCUT_128: ("#009e73", "--"),
    RING: ("#009e73", "//"), TWO: ("#009e73", ".."), THREE: ("#009e73", "xx"),
    ORT_GENAI: ("#0072b2", ""), LLAMA_CPP: ("#d55e00", ""), LLAMA_RPC: ("#d55e00", ".."),
    TRANSFORMERS: ("#7f7f7f", ""),
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
    groups = sorted({(table.model, table.threads) for table in tables})
    drawing = Drawing(figsize=(4.2 * len(groups), 5.6), layout="constrained")
    panels = drawing.subplots(2, len(groups), squeeze=False)
    for column, group in enumerate(groups):
        found = [table for table in tables if (table.model, table.threads) == group]
        threads = f"{group[1]} thread{'s' if group[1] > 1 else ''}"
        panels[0][column].set(title=f"{group[0]}, {threads}", ylabel=f"tokens/s at context {CONTEXT}")
        panels[1][column].set(ylabel=f"tokens/s, prompt of {PROMPT}")
        _fill(panels[0][column], found, "decode", 1)
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


def _fill(panel: Axes, tables: Sequence[Table], phase: str, tokens: int) -> None:
    """A group of bars for each table; a whisker that is far longer than any bar is cut off."""
    names = [name for name in CONTESTANTS if any(phase in table.seconds.get(name, {}) for table in tables)]
    width = WIDTH / max(1, len(names))
    for group, table in enumerate(tables):
        for index, name in enumerate(names):
            if phase in table.seconds.get(name, {}):
                at = group - WIDTH / 2 + (index + 0.5) * width
                _bar(panel, table, name, phase, tokens, at, width)
        if phase == "decode":
            ends = (group - WIDTH / 2, group + WIDTH / 2)
            panel.hlines(1 / table.limit_s, *ends, colors="black", label="limit of memory")
    speeds = [
        tokens / found[phase].median for table in tables for found in table.seconds.values() if phase in found
    ]
    limits = [1 / table.limit_s for table in tables if phase == "decode"]
    panel.set_ylim(0, HEADROOM * max((*speeds, *limits), default=1.0))
    panel.set_xticks(range(len(tables)), [table.kind for table in tables])


def _bar(panel: Axes, table: Table, name: str, phase: str, tokens: int, at: float, width: float) -> None:
    figure = table.seconds[name][phase]
    colour, hatch = STYLES[name]
    speed = tokens / figure.median
    whiskers = [[speed - tokens / figure.high], [tokens / figure.low - speed]]
    panel.bar(
        at, speed, width, color=colour, hatch=hatch, edgecolor="white", linewidth=0.0, label=name,
        yerr=whiskers, error_kw={"linewidth": 0.8},
    )  # fmt: skip
