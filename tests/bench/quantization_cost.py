"""The cost of quantisation: the precisions that model.yaml can ask for, on one text.

    python -m tests.bench.quantization_cost [examples/storyteller/model.yaml] [--text FILE] [--text-tokens N] [--json]

Every precision is compiled for one device (a cut model computes the same tokens, see `partc verify`): of target ort, or
where caches are quantised of target tvm, which alone has code for that. It predicts the text token by token beside the
original in transformers. The figures are those of `partc verify`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from partc.cli.tables import show, table
from partc.config.model import ModelConfig, load_model_config
from partc.config.units import format_bytes
from partc.format.role import load_role
from partc.ir.quantization import NONE, Quantization
from partc.verify.cost import choose_measurement
from partc.verify.inputs import Requests
from partc.verify.passages import MOST_TOKENS
from partc.verify.uncut import compile_uncut

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
)


def main() -> None:
    """Measure every precision, print a table."""
    parser = argparse.ArgumentParser(description="What quantisation costs.")
    parser.add_argument("model", nargs="?", default=EXAMPLE, type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--text-tokens", type=int, default=MOST_TOKENS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    config = load_model_config(options.model)
    with Console(stderr=True).status("") as status:
        rows = []
        for own in PRECISIONS:
            status.update(own.text)
            rows.append(measure(config, own, options.text, options.text_tokens))
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print_table(rows)


def measure(config: ModelConfig, own: Quantization, text: Path | None, most: int) -> dict[str, Any]:
    """The cost of a precision, and the bytes of its weights."""
    compiled = replace(config, quantize=None if own == UNCHANGED else own)
    with tempfile.TemporaryDirectory() as folder:
        target = "ort" if own.cache == NONE else "tvm"
        alone = compile_uncut(compiled, {"target": target, "threads": 1}, Path(folder))
        role = load_role(alone)
        judged = replace(config, quantize=own)
        judge = choose_measurement(alone.parents[1], judged, role, Requests(), text, most)
        weights = sum(path.stat().st_size for path in (alone / "weights").iterdir())
        cost = judge.cost(alone, lambda what, done, total: None)
    return {"precision": own.text, "weights_bytes": weights, **asdict(cost)}


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """A row a precision."""
    columns = ["precision", "weights", "same token", "KL, nats", "perplexity"]
    cells = [
        [
            row["precision"],
            format_bytes(row["weights_bytes"]),
            _figure(row["top1_agreement"], ".2%"),
            _figure(row["kl_nats"], ".2g"),
            _figure(row["perplexity"], ".4f"),
        ]
        for row in rows
    ]
    title = f"What quantisation costs ({rows[0]['text']}, {rows[0]['tokens']} predictions)"
    full = _figure(rows[0]["perplexity_full"], ".4f")
    show(table(title, columns, cells, right=columns[1:]), f"of the original: {full}")


def _figure(value: float | None, form: str) -> str:
    """A dash where it means nothing, as the perplexity where a token was thought impossible."""
    return "-" if value is None else format(value, form)


if __name__ == "__main__":
    main()
