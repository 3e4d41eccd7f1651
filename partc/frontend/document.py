"""The tables of docs/checkpoints.md, written from the tables of the code: `python -m partc.frontend.document docs`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from partc.format.document import replace_tables
from partc.format.gguf import BLOCKS
from partc.frontend.gguf.architectures import ARCHITECTURES
from partc.frontend.gguf.tokenizer import SPLITS
from partc.frontend.quantized.methods import METHODS
from partc.ir.stored_integers import KEPT_BLOCKS

FILE = "checkpoints.md"


def method_table() -> str:
    """Methods of `quantization_config`."""
    lines = ["| `quant_method` | read | integers |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{key}` | {row.reads} | {row.kept} |" for key, row in METHODS.items())])


def _kept(name: str) -> str:
    kept = KEPT_BLOCKS.get(name)
    return (
        "floats" if kept is None else f"kept, `{kept.format.name}`" + f" of {kept.block}" * (kept.block != 32)
    )


def block_table() -> str:
    """Formats of tensors in GGUF files."""
    lines = ["| format | weights of a block | bits a weight | integers |", "|---|---|---|---|"]
    plain = "| F32, F16, BF16, F64, I8 … I64 | | as they are | |"
    blocks = (
        f"| {form.name} | {form.weights} | {form.bytes * 8 / form.weights:g} | {_kept(form.name)} |"
        for form in BLOCKS
    )
    return "\n".join([*lines, plain, *blocks])


def architecture_table() -> str:
    """Architectures of GGUF files."""
    lines = ["| `general.architecture` | `model_type` of transformers |", "|---|---|"]
    rows = (
        f"| `{'llama`, with experts' if name == 'mixtral' else f'{name}`'} | {row.model_type} |"
        for name, row in ARCHITECTURES.items()
    )
    splits = ", ".join(f"`{name}`" for name in SPLITS)
    return "\n".join([*lines, *rows, "", f"`tokenizer.ggml.pre` of `gpt2` tokenizers: {splits}."])


TABLES: Mapping[str, Callable[[], str]] = {
    "methods": method_table,
    "blocks": block_table,
    "architectures": architecture_table,
}
"""Name in the comments → the table."""


def documented(text: str) -> str:
    """The text of the manual with its tables as the code has them."""
    return replace_tables(text, TABLES)


if __name__ == "__main__":
    path = Path(sys.argv[1]) / FILE
    path.write_text(documented(path.read_text(encoding="utf-8")), encoding="utf-8")
