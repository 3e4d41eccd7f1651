"""`partc compile`: the whole pipeline, from a model to one folder a device."""

from __future__ import annotations

from dataclasses import replace
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
    from partc.pipeline.contract import Pass


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

    MODEL is a model.yaml, a checkpoint folder, an .onnx file or a hub id.
    """
    from partc.bundle.runners import check_runners
    from partc.bundle.workspace import check_output
    from partc.cli.checks import check_fresh, check_targets
    from partc.cli.load import load_model
    from partc.cli.observers import Watch, run_watched
    from partc.cli.places import check_folder
    from partc.config.devices import load_devices
    from partc.planner.placed_by_user import check_strategy
    from partc.verifier.origin import write_origin

    # Before the long work: a mistake in these should not cost minutes.
    devices = load_devices(devices_file)
    devices.require_links()
    check_strategy(devices, strategy, devices_file)
    steps = _steps(passes, devices_file, strategy, cut_rule, output, disable)
    if not cache:
        steps = [_anew(step) for step in steps]
    wrote = next((Path(vars(step)["output"]) for step in steps if step.name == "emit-bundle"), None)
    check_fresh(steps)
    check_targets(devices, tools=any(step.name == "lower-target" for step in steps))
    if wrote is not None:
        check_runners(devices)
        check_output(wrote)
        check_folder(wrote, "-o", replaced=True)
    module = run_watched(lambda: load_model(model, cache), steps, Watch(print_after, dump_dir, timing))
    if wrote is not None:
        write_origin(wrote, model, devices, module.info.quantize, disable)
    _report(module, devices, wrote, as_json)


def _steps(
    passes: str | None,
    devices_file: Path,
    strategy: str,
    cut_rule: str,
    output: Path,
    disable: tuple[str, ...],
) -> list[Pass]:
    """The passes that the user lists, else the default pipeline, with the options of the command line."""
    from partc.pipeline.default import configure, default_pipeline
    from partc.pipeline.registry import load_passes

    if passes is None:
        return default_pipeline(devices_file, strategy, cut_rule, output, disable=disable)
    return configure(load_passes(passes), devices_file, strategy, cut_rule, output, disable)


def _anew(step: Pass) -> Pass:
    """The pass so that it copies nothing of an earlier build."""
    return replace(step, reuse=False) if step.name == "emit-bundle" else step  # type: ignore[call-arg]


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
