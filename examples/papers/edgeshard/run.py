"""Section V of EdgeShard from config alone: `python -m examples.papers.edgeshard.run`.

Prints the tables of README.md, a model after the other; `--json` prints the same as data, and `--figures FOLDER`
draws Fig. 7 and 8 as SVG files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.papers.edgeshard.experiments import (
    OTHER_SOURCE,
    Pipelined,
    Profiled,
    Row,
    compare,
    figures_of,
    load,
    pipelining,
    profiling,
    sweep,
    testbed,
    with_source,
)
from examples.papers.edgeshard.paper import FIGURE_11, MODELS, TABLE_IV
from examples.papers.tables import figure, markdown, ratio, words

OOM = "OOM"


@dataclass(frozen=True)
class Results:
    """Everything that section V shows of one model."""

    model: str
    rows: list[Row]
    """Table IV."""
    other_source: list[Row]
    """Fig. 9, the source an Orin NX."""
    profiled: list[Profiled]
    """Fig. 10."""
    pipelined: dict[str, Pipelined | None]
    """Fig. 11, by method."""
    sweep: Mapping[int, Sequence[Row]]
    """Fig. 7 and 8, by Mbit/s; empty where it was not asked for."""

    def to_markdown(self) -> str:
        """The tables of README.md."""
        parts = [
            table_iv(self.model, self.rows),
            plans(self.model, self.rows),
            figure_9(self.model, self.rows, self.other_source),
            figure_10(self.model, self.profiled),
            figure_11(self.model, self.pipelined),
        ]
        if self.sweep:
            parts += [figure_7(self.model, self.sweep), figure_8(self.model, self.sweep)]
        return "\n".join(parts)

    def to_json(self) -> dict[str, object]:
        """The same figures, unrounded."""
        return {
            "model": self.model,
            "table_iv": rows_json(self.rows),
            "figure_9": rows_json(self.other_source),
            "figure_10": [vars(item) for item in self.profiled],
            "figure_11": {name: item and pipelined_json(item) for name, item in self.pipelined.items()},
            "figures_7_and_8": {mbit: rows_json(rows) for mbit, rows in self.sweep.items()},
        }


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m examples.papers.edgeshard.run", description=__doc__)
    parser.add_argument(
        "models", nargs="*", default=list(MODELS), help=f"{', '.join(MODELS)}; all by default"
    )
    parser.add_argument("--no-sweep", action="store_true", help="leave out the bandwidths of Fig. 7 and 8")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw Fig. 7 and 8 there")
    parser.add_argument("--json", action="store_true", help="print data instead of tables")
    options = parser.parse_args()
    if unknown := sorted(set(options.models) - set(MODELS)):
        parser.error(f"unknown model {unknown[0]}: choose from {', '.join(MODELS)}")
    results = []
    for model in options.models:
        results.append(reproduce(model, with_sweep=not options.no_sweep))
        if not options.json:
            print(results[-1].to_markdown(), flush=True)
    if options.json:
        print(json.dumps([item.to_json() for item in results], indent=1))
    if options.figures is not None:
        from examples.papers.edgeshard.figures import draw

        draw({item.model: item.sweep for item in results}, options.figures)


def reproduce(model: str, *, with_sweep: bool) -> Results:
    """Section V for one model; a minute or two, most of it for tracing and for Algorithm 2 in the sweep."""
    price = testbed(load(model))
    rows = compare(price)
    return Results(
        model=model,
        rows=rows,
        other_source=compare(with_source(price, OTHER_SOURCE)),
        profiled=profiling(price),
        pipelined={row.method: pipelining(row) for row in rows},
        sweep=sweep(price, model) if with_sweep else {},
    )


def table_iv(model: str, rows: Sequence[Row]) -> str:
    """Latency and throughput beside the paper's."""
    columns = ("method", "ms/token", "paper", "ratio", "tokens/s", "paper", "ratio", "ring full")
    return markdown(f"{MODELS[model]}: Table IV", columns, [_compared(model, row) for row in rows])


def _compared(model: str, row: Row) -> list[str]:
    paper = TABLE_IV[row.method][model]
    ms, tokens = figures_of(row)
    their_ms, their_tokens = paper or (None, None)
    return [
        row.method,
        *(figure(ms, 1, OOM), figure(their_ms, 2, OOM), ratio(ms, their_ms)),
        *(figure(tokens, 1, OOM), figure(their_tokens, 2, OOM), ratio(tokens, their_tokens)),
        figure(row.full, 1, OOM),
    ]


def plans(model: str, rows: Sequence[Row]) -> str:
    """The plans behind the figures of Table IV."""
    columns = ("method", "plan for latency", "plan for throughput", "micro-batches")
    body = [
        [
            row.method,
            words(row.latency.assignment),
            words(best.assignment),
            f"{best.requests} of {best.batch}",
        ]
        for row in rows
        if row.latency and (best := row.throughput)
    ]
    return markdown(f"{MODELS[model]}: plans (device, sub-modules)", columns, body)


def figure_9(model: str, rows: Sequence[Row], others: Sequence[Row]) -> str:
    """An AGX Orin or an Orin NX as the source."""
    columns = ("method", "ms/token, AGX", "NX", "NX - AGX", "tokens/s, AGX", "NX", "AGX / NX")
    body = []
    for row, other in zip(rows, others, strict=True):
        (ms, tokens), (other_ms, other_tokens) = figures_of(row), figures_of(other)
        gap = None if ms is None or other_ms is None else other_ms - ms
        latency = (figure(ms, 1, OOM), figure(other_ms, 1, OOM), figure(gap, 1))
        rate = (figure(tokens, 1, OOM), figure(other_tokens, 1, OOM), ratio(tokens, other_tokens))
        body.append([row.method, *latency, *rate])
    return markdown(f"{MODELS[model]}: Fig. 9, the source", columns, body)


def figure_10(model: str, profiled: Sequence[Profiled]) -> str:
    """Plans made from other times, valued with the true ones."""
    columns = ("planned with the times of", "ms/token", "steps/s, ring full")
    body = [[item.phases, figure(item.seconds * 1e3, 1), figure(item.steps_per_s, 1)] for item in profiled]
    return markdown(f"{MODELS[model]}: Fig. 10, the profiled phase", columns, body)


def figure_11(model: str, pipelined: Mapping[str, Pipelined | None]) -> str:
    """Four micro-batches with and without bubbles, simulated."""
    columns = ("method", "micro-batch", "by formula", "no bubbles", "bubbles", "gain", "paper's gain")
    body = []
    for method, item in pipelined.items():
        gain = FIGURE_11.get(method, {}).get(model)
        if item is None:
            body.append([method, *[OOM] * 5, figure(gain, 2)])
            continue
        rates = (item.throughput.tokens_per_s, item.no_bubbles, item.bubbles, item.no_bubbles - item.bubbles)
        body.append(
            [method, str(item.throughput.batch), *(figure(rate, 2) for rate in rates), figure(gain, 2)]
        )
    return markdown(f"{MODELS[model]}: Fig. 11, tokens/s in four micro-batches", columns, body)


def figure_7(model: str, sweep: Mapping[int, Sequence[Row]]) -> str:
    """Milliseconds per token by the bandwidth between source and cloud."""
    return _swept(f"{MODELS[model]}: Fig. 7, ms/token by Mbit/s between source and cloud", sweep, 0)


def figure_8(model: str, sweep: Mapping[int, Sequence[Row]]) -> str:
    """Tokens per second by the bandwidth between source and cloud."""
    return _swept(f"{MODELS[model]}: Fig. 8, tokens/s by Mbit/s between source and cloud", sweep, 1)


def _swept(title: str, sweep: Mapping[int, Sequence[Row]], index: int) -> str:
    methods = [row.method for row in next(iter(sweep.values()))]
    body = [
        [method, *(figure(figures_of(rows[k])[index], 1, OOM) for rows in sweep.values())]
        for k, method in enumerate(methods)
    ]
    return markdown(title, ("method", *(str(mbit) for mbit in sweep)), body)


def rows_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Unrounded, None where out of memory."""
    return [
        {
            "method": row.method,
            "ms_per_token": figures_of(row)[0],
            "tokens_per_s": figures_of(row)[1],
            "tokens_per_s_ring_full": row.full,
            "latency_plan": list(row.latency.assignment) if row.latency else None,
            "throughput_plan": list(row.throughput.assignment) if row.throughput else None,
        }
        for row in rows
    ]


def pipelined_json(item: Pipelined) -> dict[str, object]:
    """Tokens per second, unrounded."""
    return {
        "micro_batch": item.throughput.batch,
        "formula": item.throughput.tokens_per_s,
        "no_bubbles": item.no_bubbles,
        "bubbles": item.bubbles,
    }


if __name__ == "__main__":
    main()
