"""`partc opt`: passes on IR text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import example, watch_options

if TYPE_CHECKING:
    from partc.ir.graph import Module


@click.command(
    "opt",
    short_help="Run passes on IR text.",
    epilog=example(
        "partc opt model.partc -p canonicalize,infer-sizes",
        "partc lower model.yaml | partc opt - -p canonicalize,infer-sizes,find-cuts",
    ),
)
@click.argument("file", default="-")
@click.option(
    "-p",
    "--passes",
    required=True,
    metavar="LIST",
    help="Passes in order, with options: 'find-cuts{rule=eq1},form-submodules'.",
)
@watch_options
def opt_command(
    file: str, passes: str, print_after: tuple[str, ...], dump_dir: Path | None, timing: bool
) -> None:
    """Run passes on IR text in FILE (- for standard input) and print the result."""
    from partc.cli.load import read_text
    from partc.cli.observers import Watch, run_watched
    from partc.ir.text import parse_module, print_module
    from partc.pipeline.registry import load_passes

    steps = load_passes(passes)

    def read() -> Module:
        text = read_text(file, "give a file that `partc lower` printed, or - for standard input")
        return parse_module(text, file="<stdin>" if file == "-" else file)

    module = run_watched(read, steps, Watch(print_after, dump_dir, timing))
    click.echo(print_module(module), nl=False)
