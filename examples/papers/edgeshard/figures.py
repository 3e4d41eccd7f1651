"""Fig. 7 and 8 as SVG files; needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from examples.papers.edgeshard.experiments import Row, figures_of
from examples.papers.edgeshard.methods import OURS
from examples.papers.edgeshard.paper import MODELS, TABLE_IV

Sweep = Mapping[int, Sequence[Row]]
STYLES = {
    "Edge-Solo": ("#7f7f7f", "s"),
    "Cloud-Edge-Even": ("#e69f00", "v"),
    "Cloud-Edge-Opt": ("#0072b2", "D"),
    "EdgeShard-Even": ("#56b4e9", "<"),
    "EdgeShard, as published": ("#d55e00", "^"),
    "partc, optimal": ("#009e73", "o"),
}
"""Method -> colour (of the palette of Okabe and Ito, for all eyes) and marker."""
PAPER_MBIT = 1
"""Where the paper gives numbers: Table IV."""


def draw(sweeps: Mapping[str, Sweep], folder: Path) -> None:
    """Write `fig7_latency.svg` and `fig8_throughput.svg`; the paper's points of Table IV are hollow.

    The files are the same for the same figures: no date, no random names.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update({"svg.hashsalt": "partc", "svg.fonttype": "none", "font.size": 9})
    for index, (name, label) in enumerate((("fig7_latency", "ms/token"), ("fig8_throughput", "tokens/s"))):
        figure = Figure(figsize=(4 * len(sweeps), 3.6), layout="constrained")
        panels = figure.subplots(1, len(sweeps), squeeze=False)[0]
        for panel, (model, sweep) in zip(panels, sweeps.items(), strict=True):
            _fill(panel, model, sweep, index)
            panel.set(
                title=MODELS[model], xlabel="Mbit/s between source and cloud", ylabel=label, ylim=(0, None)
            )
        marks = {
            label: mark
            for panel in panels
            for mark, label in zip(*panel.get_legend_handles_labels(), strict=True)
        }
        figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


def _fill(panel: Axes, model: str, sweep: Sweep, index: int) -> None:
    """The lines of one model; `index` 0 is latency, 1 throughput."""
    methods = [row.method for row in next(iter(sweep.values()))]
    for k, method in enumerate(methods):
        points = [(mbit, y) for mbit, rows in sweep.items() if (y := figures_of(rows[k])[index]) is not None]
        colour, marker = STYLES[method]
        if points:
            panel.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=4, label=method)
        paper = TABLE_IV.get(method, {}).get(model)
        if paper is not None and method != OURS:
            panel.plot(
                [PAPER_MBIT], [paper[index]], color=colour, marker=marker, markersize=8, markerfacecolor="none",
                linestyle="none", label=f"{method}: paper",
            )  # fmt: skip
