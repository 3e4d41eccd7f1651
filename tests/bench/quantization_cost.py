"""The cost of quantisation: the precisions that model.yaml can ask for, on one text.

    python -m tests.bench.quantization_cost [examples/storyteller/model.yaml] [--text FILE] [--text-tokens N]
        [--wide HEADSxSIZE] [--target ort | tvm] [--caches] [--json]

Every precision is compiled for one device (a cut model computes the same tokens, see `partc verify`): of `--target`, or
where caches are quantised of target tvm, which alone has code for that. It predicts the text token by token beside the
original in transformers. The figures are those of `partc verify`. `--wide 16x64` takes a random model of 16 heads of 64
instead of a model.yaml; `--caches` the precisions of caches alone.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from partc.cli.tables import show, table
from partc.config.model import ModelConfig, load_model_config
from partc.config.units import format_bytes
from partc.format.role import load_role
from partc.ir.quantization import NONE, Quantization
from partc.verifier.cost import CostMeasurement, choose_measurement
from partc.verifier.inputs import Requests
from partc.verifier.passages import MOST_TOKENS, Passage
from partc.verifier.uncut import compile_uncut

EXAMPLE = Path(__file__).parents[2] / "examples" / "storyteller" / "model.yaml"
UNCHANGED = Quantization()
"""Nothing is quantised: what remains is the difference of the two engines."""
PRECISIONS = (
    UNCHANGED,
    Quantization("int8", "int8", "int8"),
    Quantization("int4", "int4", "int4"),
    Quantization("int4", "int4", "int4", 64),
    Quantization("int4", "int4", "int4", 128),
    Quantization("int4", "int8", "int4"),
    Quantization("int4", "none", "int4"),
    Quantization("int4", "none", "none"),
    Quantization(cache="int8"),
    Quantization("int4", "int4", "int4", cache="int8"),
)


@dataclass(frozen=True)
class Subject:
    """What is measured."""

    config: ModelConfig
    text: Path | None
    """A text instead of the model's own sample."""
    most: int
    """Tokens to predict."""
    passages: Sequence[Passage] = ()
    """Tokens instead of a text."""


def main() -> None:
    """Measure every precision, print a table."""
    parser = argparse.ArgumentParser(description="What quantisation costs.")
    parser.add_argument("model", nargs="?", default=EXAMPLE, type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--text-tokens", type=int, default=MOST_TOKENS)
    parser.add_argument("--wide", metavar="HEADSxSIZE", help="a random model instead")
    parser.add_argument("--target", choices=("ort", "tvm"), default="ort")
    parser.add_argument("--caches", action="store_true", help="only those with caches of 8 bits")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [own for own in PRECISIONS if own == UNCHANGED or own.cache != NONE or not options.caches]
    with Console(stderr=True).status("") as status, tempfile.TemporaryDirectory() as folder:
        subject = _subject(options, Path(folder))
        rows = []
        for own in chosen:
            status.update(own.text)
            rows.append(measure(subject, own, options.target))
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print_table(rows)


def _subject(options: argparse.Namespace, folder: Path) -> Subject:
    most = options.text_tokens
    if options.wide is None:
        return Subject(load_model_config(options.model), options.text, most)
    from tests.bench.wide_model import draw_passage, make_wide

    heads, size = map(int, options.wide.split("x"))
    return Subject(make_wide(folder, heads, size, most), None, most, [draw_passage(folder, most)])


def measure(subject: Subject, own: Quantization, target: str) -> dict[str, Any]:
    """The cost of a precision, and the bytes of its weights."""
    compiled = replace(subject.config, quantize=None if own == UNCHANGED else own)
    with tempfile.TemporaryDirectory() as folder:
        target = target if own.cache == NONE else "tvm"
        alone = compile_uncut(compiled, {"target": target, "threads": 1, "arch": "host"}, Path(folder))
        weights = sum(path.stat().st_size for path in (alone / "weights").iterdir())
        cost = _judge(subject, own, alone).cost(alone, lambda what, done, total: None)
    return {"precision": own.text, "target": target, "weights_bytes": weights, **asdict(cost)}


def _judge(subject: Subject, own: Quantization, alone: Path) -> CostMeasurement:
    config, role = replace(subject.config, quantize=own), load_role(alone)
    if subject.passages:
        return CostMeasurement(config, role, (), subject.passages, "text that the original draws")
    return choose_measurement(alone.parents[1], config, role, Requests(), subject.text, subject.most)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row a precision."""
    columns = ["precision", "target", "weights", "same token", "KL, nats", "perplexity"]
    cells = [
        [
            row["precision"],
            row["target"],
            format_bytes(row["weights_bytes"]),
            _figure(row["top1_agreement"], ".2%"),
            _figure(row["kl_nats"], ".2g"),
            _figure(row["perplexity"], ".4f"),
        ]
        for row in rows
    ]
    title = f"What quantisation costs ({rows[0]['text']}, {rows[0]['tokens']} predictions)"
    full = _figure(rows[0]["perplexity_full"], ".4f")
    show(table(title, columns, cells, right=columns[2:]), f"of the original: {full}")


def _figure(value: float | None, form: str) -> str:
    """A dash where it means nothing, as the perplexity where a token was thought impossible."""
    return "-" if value is None else format(value, form)


if __name__ == "__main__":
    main()
