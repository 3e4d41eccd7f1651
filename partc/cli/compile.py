"""`partc compile`: the whole pipeline, from a model to one folder a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import (
    FILE,
    cache_option,
    example,
    json_option,
    model_argument,
    planning_options,
    print_json,
    watch_options,
)

if TYPE_CHECKING:
    from partc.config.devices import DevicesConfig
    from partc.ir.graph import Module


@click.command(
    "compile",
    short_help="Compile a model for several devices.",
    epilog=example(
        "partc compile model.yaml --target devices.yaml -o build",
        "partc compile model.yaml --target devices.yaml --strategy even",
        "partc compile model.yaml --target devices.yaml --print-after find-cuts",
    ),
)
@model_argument()
@click.option(
    "--target",
    "devices_file",
    required=True,
    type=FILE,
    metavar="DEVICES",
    help="The devices: a devices.yaml.",
)
@click.option(
    "-o",
    "--output",
    default="build",
    show_default=True,
    type=FILE,
    metavar="DIR",
    help="The bundle's folder.",
)
@planning_options
@click.option("--passes", metavar="LIST", help="Passes to run instead of the default pipeline.")
@click.option("--disable", multiple=True, metavar="NAME", help="Leave out the fusion NAME. Repeatable.")
@cache_option("Ignore all caches: import the model again, and make every file of the build again.")
@watch_options
@json_option("the summary")
def compile_command(
    model: str,
    devices_file: Path,
    output: Path,
    strategy: str,
    cut_rule: str,
    passes: str | None,
    disable: tuple[str, ...],
    cache: bool,
    print_after: tuple[str, ...],
    dump_dir: Path | None,
    timing: bool,
    as_json: bool,
) -> None:
    """Compile MODEL for the devices in DEVICES: one artifact per device, and a plan.

    MODEL is a model.yaml, a checkpoint folder, an .onnx or .gguf file, or a hub id.
    """
    from partc.api.compiling import to_compile
    from partc.cli.observers import Watch, followed

    given = to_compile(
        model,
        devices_file,
        output,
        strategy=strategy,
        cut_rule=cut_rule,
        passes=passes,
        disable=disable,
        cache=cache,
    )
    with followed(Watch(print_after, dump_dir, timing), given.steps) as following:
        module = given.run(following)
    _report(module, given.devices, given.output, as_json)


def _report(module: Module, devices: DevicesConfig, output: Path | None, as_json: bool) -> None:
    """The summary of a plan, and where the bundle is; nothing where the passes stop before a plan."""
    from partc.cli.cannot import planned_lines
    from partc.cli.precision import precision_line
    from partc.cli.tables import print_summary, show
    from partc.planner.explain.summary import summary_of

    if module.plan is None:
        return
    summary = summary_of(module.plan, module.profile)
    if as_json:
        print_json({"output": str(output) if output else None, **summary.to_json()})
        return
    print_summary(summary)
    if line := precision_line(module):
        show(line)
    show(*planned_lines(module, devices))
    if output is not None:
        click.echo(f"wrote {output}; next: partc verify {output}")
