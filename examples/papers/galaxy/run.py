"""Galaxy's section IV from its own figures: `python -m examples.papers.galaxy.run`.

Prints the tables of README.md; `--json` prints the same as data.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean

from examples.papers.galaxy.experiments import (
    BANDWIDTHS,
    Row,
    Scaling,
    errors,
    figure_8,
    figure_9,
    figures_10_and_11,
    range_of,
    table_iv,
)
from examples.papers.galaxy.fit import fitted, table_i_seconds
from examples.papers.galaxy.paper import FIG_8, FIG_9, STRONG, TABLE_I, TABLE_IV, WEAK
from examples.papers.galaxy.testbed import Fit
from examples.papers.tables import figure, markdown

OOM = "OOM"


@dataclass(frozen=True)
class Results:
    """All that section IV shows."""

    fit: Fit
    cells: list[Row]
    sweep: list[Row]
    unlike: list[Row]
    scaling: list[Scaling]

    def to_markdown(self) -> str:
        """The tables of README.md."""
        unfitted = Fit(self.fit.flops_per_s, 1.0)
        return "\n".join(
            [
                f"Fitted: {self.fit.flops_per_s / 1e9:.2f} GFLOP/s, efficiency {self.fit.efficiency:.3f}\n",
                _table_i(self.fit),
                _table_iv(self.cells, f"Table IV, efficiency {self.fit.efficiency:.3f}"),
                _table_iv(table_iv(unfitted), "Table IV, efficiency 1, which is not fitted"),
                _times(self.cells),
                _figure_8(self.sweep),
                _figure_9(self.unlike),
                _figures_10_and_11(self.scaling),
            ]
        )

    def to_json(self) -> dict[str, object]:
        """The same figures, unrounded."""
        return asdict(self)


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m examples.papers.galaxy.run", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print data instead of tables")
    options = parser.parse_args()
    results = reproduce()
    print(json.dumps(results.to_json(), indent=1) if options.json else results.to_markdown())


def reproduce() -> Results:
    """Section IV, but the GPUs of IV-E; some seconds."""
    fit = fitted()
    return Results(fit, table_iv(fit), figure_8(fit), figure_9(fit), figures_10_and_11(fit))


def _table_i(fit: Fit) -> str:
    rows = [
        [model, figure(table_i_seconds(model, fit), 2), figure(theirs, 2)]
        for model, theirs in TABLE_I.items()
    ]
    return markdown("Table I: seconds on one Nano-M, length 30", ("model", "here", "paper"), rows)


def _table_iv(rows: Sequence[Row], title: str) -> str:
    columns = ("model", "environment", "over M-LM", "paper", "over SP", "paper")
    found = errors(rows)
    mean_error = f"mean error of {len(found)} ratios {mean(found):.1%}, worst {max(found):.1%}"
    return markdown(f"{title}: {mean_error}", columns, [_cell(item) for item in rows])


def _cell(item: Row) -> list[str]:
    theirs = TABLE_IV[item.model, item.environment]
    if item.galaxy_s is None:
        ours = [OOM, OOM]
    else:
        ours = [figure(item.over(other), 2, OOM) for other in (item.megatron_s, item.sequence_s)]
    paper = [figure(cell, 2, OOM) for cell in theirs] if theirs else [OOM, OOM]
    return [item.model, item.environment, ours[0], paper[0], ours[1], paper[1]]


def _times(rows: Sequence[Row]) -> str:
    columns = ("model", "environment", "Galaxy", "no overlap", "M-LM", "SP", "best pipeline", "one board")
    body = [[item.model, item.environment, *_seconds(item), figure(item.local_s, 1, OOM)] for item in rows]
    return markdown("Seconds behind Table IV", columns, body)


def _seconds(item: Row) -> list[str]:
    times = item.galaxy_s, item.without_overlap_s, item.megatron_s, item.sequence_s, item.pipeline_s
    return [figure(seconds, 1, OOM) for seconds in times]


def _figure_8(rows: Sequence[Row]) -> str:
    low, high = range_of(item.over(other) for item in rows for other in (item.megatron_s, item.sequence_s))
    title = (
        f"Fig. 8: speed-up over M-LM by Mbit/s; with SP {low:.2f}-{high:.2f} (paper {FIG_8[0]}-{FIG_8[1]})"
    )
    body = [
        [
            model,
            environment,
            *(figure(item.over(item.megatron_s), 2, OOM) for item in rows if _is(item, pair)),
        ]
        for pair in TABLE_IV
        for model, environment in [pair]
    ]
    return markdown(title, ("model", "environment", *(f"{mbit:g}" for mbit in BANDWIDTHS)), body)


def _is(item: Row, pair: tuple[str, str]) -> bool:
    return (item.model, item.environment) == pair


def _figure_9(rows: Sequence[Row]) -> str:
    low, high = range_of(item.over(other) for item in rows for other in (item.megatron_s, item.sequence_s))
    title = f"Fig. 9: unlike boards; speed-ups {low:.2f}-{high:.2f} (paper {FIG_9[0]}-{FIG_9[1]})"
    columns = ("model", "environment", "Galaxy, s", "over M-LM", "over SP", "best pipeline, s")
    body = [
        [
            item.model,
            item.environment,
            figure(item.galaxy_s, 1, OOM),
            *(figure(item.over(other), 2, OOM) for other in (item.megatron_s, item.sequence_s)),
            figure(item.pipeline_s, 1, OOM),
        ]
        for item in rows
    ]
    return markdown(title, columns, body)


def _figures_10_and_11(rows: Sequence[Scaling]) -> str:
    columns = ("model", "boards", "Fig. 10, weak", "paper", "Fig. 11, strong", "paper")
    body = []
    for item in rows:
        weak, strong = (WEAK[item.model], STRONG[item.model]) if item.boards == 4 else (None, None)
        cells = (figure(item.weak, 2), figure(weak, 2), figure(item.strong, 2), figure(strong, 2))
        body.append([item.model, str(item.boards), *cells])
    return markdown("Fig. 10 and 11: part of linear scaling, speed-up over one board", columns, body)


if __name__ == "__main__":
    main()
