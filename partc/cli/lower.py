"""`partc lower`: a model as IR text."""

from __future__ import annotations

from pathlib import Path

import click

from partc.cli.options import cache_option, example, model_argument, watch_options


@click.command(
    "lower",
    short_help="Print the IR of a model.",
    epilog=example("partc lower model.yaml | partc opt - -p canonicalize,infer-sizes"),
)
@model_argument()
@click.option("-p", "--passes", default="", metavar="LIST", help="Passes to run first; none by default.")
@cache_option()
@watch_options
def lower_command(
    model: str,
    passes: str,
    cache: bool,
    print_after: tuple[str, ...],
    dump_dir: Path | None,
    timing: bool,
) -> None:
    """Print the IR of MODEL: a model.yaml, a checkpoint folder, an .onnx or .gguf file, or a hub id.

    Weights are references in it, so even a large model needs little memory.
    """
    from partc.api.checks import check_fresh
    from partc.cli.load import load_model
    from partc.cli.observers import Watch, run_watched
    from partc.ir.text import print_module
    from partc.pipeline.registry import load_passes

    steps = load_passes(passes)
    check_fresh(steps)
    module = run_watched(lambda: load_model(model, cache), steps, Watch(print_after, dump_dir, timing))
    click.echo(print_module(module), nl=False)
