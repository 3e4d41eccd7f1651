"""`partc quantize`: a checkpoint in 4 bits, with calibration data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.calibration import BLOCKS, LEAST_TOKENS, TOKENS
from partc.cli.options import FILE, example, json_option, print_json
from partc.printable import note

if TYPE_CHECKING:
    from partc.calibration.quantizing import Quantized


@click.command(
    "quantize",
    short_help="Quantise a checkpoint with calibration data.",
    epilog=example(
        "partc quantize checkpoint --texts stories.txt -o checkpoint-int4",
        "partc compile checkpoint-int4 --target devices.yaml -o build",
    ),
)
@click.argument("model")
@click.option(
    "--texts", type=FILE, required=True, metavar="FILE", help="Plain text of the kind that the model is for."
)
@click.option("-o", "--output", type=FILE, required=True, metavar="FOLDER", help="The new checkpoint.")
@click.option(
    "--block",
    type=click.Choice([str(block) for block in BLOCKS]),
    default=str(BLOCKS[0]),
    show_default=True,
    help="Weights of a row that share a scale.",
)
@click.option(
    "--tokens",
    type=click.IntRange(LEAST_TOKENS),
    default=TOKENS,
    show_default=True,
    metavar="N",
    help="Tokens of the text that are used at most.",
)
@json_option("what was done")
def quantize_command(model: str, texts: Path, output: Path, block: str, tokens: int, as_json: bool) -> None:
    """Write a checkpoint of MODEL whose matrices have 4 bits, and lose less than `quantize: int4` does.

    MODEL is a checkpoint folder, a hub id, or a model.yaml with either, for text generation, classification or
    features. The error of each weight is compensated by weights that are rounded later, by how the inputs of a
    matrix correlate on your text (GPTQ). The folder is one of compressed-tensors, which other runtimes read, too.
    """
    from partc.calibration.quantizing import quantize_checkpoint
    from partc.cli.progress import progress_bar

    with progress_bar() as bar:
        found = quantize_checkpoint(
            model, texts, output, block=int(block), tokens=tokens, progress=bar.update
        )
    if as_json:
        print_json({**asdict(found), "folder": str(found.folder)})
    else:
        _print(found)


def _print(found: Quantized) -> None:
    for name in found.left:
        note(f"{name} keeps its type: its rows are not whole blocks")
    total = found.weights + found.others
    click.echo(
        f"{found.matrices} matrices with {found.weights:,} of {total:,} weights are in 4 bits now; "
        f"measured on {found.tokens:,} tokens"
    )
    click.echo(
        f"their outputs are off by {found.error:.3%} of their square on these texts, "
        f"and by {found.by_itself:.3%} with `quantize: int4`"
    )
    click.echo(f"wrote {found.folder}; next: partc compile {found.folder} --target devices.yaml")
