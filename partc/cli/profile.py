"""`partc profile`: measured figures of devices, links and sub-modules, for `partc compile`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import (
    FILE,
    cache_option,
    example,
    json_option,
    model_argument,
    print_json,
    refuse,
)

if TYPE_CHECKING:
    from partc.config.devices import DevicesConfig
    from partc.ir.graph import Module
    from partc.profiler.measurement import ProfileResult


@click.command(
    "profile",
    short_help="Measure devices, links and sub-modules.",
    epilog=example(
        "partc profile model.yaml --target devices.yaml -o profile",
        "partc compile model.yaml --target profile/devices.yaml -o build",
        "",
        "partc profile model.yaml --target devices.yaml -o profile --prepare",
        "partc-runner --bundle devices/phone --listen 0.0.0.0:5555 --measure  (there)",
        "partc profile --target devices.yaml -o profile --connect",
        "",
        'partc run build --prompt "Once upon a time"',
        "partc profile model.yaml --target devices.yaml -o profile --from build/runs",
        "",
        "partc profile --host",
    ),
)
@model_argument(required=False)
@click.option("--target", "devices_file", type=FILE, metavar="DEVICES", help="The devices: a devices.yaml.")
@click.option(
    "-o",
    "--output",
    default="profile",
    show_default=True,
    type=FILE,
    metavar="DIR",
    help="Folder for the figures.",
)
@click.option(
    "--prepare", "only_prepare", is_flag=True, help="Write the folders to copy to the devices, and stop."
)
@click.option(
    "--connect",
    is_flag=True,
    help="Measure the devices themselves, at their addresses, instead of local processes.",
)
@click.option(
    "--from",
    "runs",
    type=FILE,
    multiple=True,
    metavar="RUNS",
    help="Learn from the runs of a build of MODEL (build/runs) instead of measuring. Repeatable.",
)
@click.option("--host", is_flag=True, help="Measure this machine alone, for `profile: host`.")
@click.option("--quick", is_flag=True, help="Use small test models and few repeats: quick, but rough.")
@click.option(
    "--cut-rule", default="eq1+frontier", show_default=True, metavar="RULE", help="As for partc compile."
)
@cache_option()
@click.option("--insecure", is_flag=True, help="Neither keys nor encryption; loopback addresses only.")
@json_option("the measurements")
def profile_command(
    model: str | None,
    devices_file: Path | None,
    output: Path,
    only_prepare: bool,
    connect: bool,
    runs: tuple[Path, ...],
    host: bool,
    quick: bool,
    cut_rule: str,
    cache: bool,
    insecure: bool,
    as_json: bool,
) -> None:
    """Measure the devices in DEVICES: FLOP/s, memory bandwidth, links, and the sub-modules of MODEL.

    Writes devices.yaml and times.json into DIR; compile and plan prefer these times to their own estimate. Without
    MODEL, devices and links alone.
    """
    if host:
        refuse(
            bool(model or devices_file or connect or only_prepare or runs),
            "--host excludes MODEL, --target, --prepare, --connect, --from",
        )
        _profile_host(quick, as_json)
        return
    refuse(devices_file is None, "missing --target DEVICES (or --host)")
    refuse(connect and only_prepare, "--prepare comes before --connect")
    refuse(connect and model is not None, "--connect measures what --prepare wrote: leave MODEL out")
    assert devices_file is not None
    if runs:
        refuse(
            connect or only_prepare or quick or insecure,
            "--from measures nothing: leave --connect, --prepare, --quick, --insecure out",
        )
        refuse(model is None, "missing MODEL: the times of --from are those of its sub-modules")
        assert model is not None
        _learn(model, devices_file, runs, output, cut_rule, cache, as_json)
        return

    from partc.api.places import check_folder
    from partc.config.devices import load_devices
    from partc.profiler.bundle import check_profile_folder
    from partc.profiler.measurement import check_local

    devices = load_devices(devices_file)
    check_folder(output, "-o")
    check_profile_folder(output)
    if not connect:
        if not only_prepare:
            check_local(devices)
        _prepare(model, devices_file, devices, output, cut_rule, cache, quick)
    if only_prepare:
        click.echo(f"wrote {output}; copy each folder of {output / 'devices'} to its device, start there")
        click.echo("  partc-runner --bundle NAME --listen HOST:PORT --measure")
        click.echo(f"then: partc profile --target {devices_file} -o {output} --connect")
        return
    _measure(model or "MODEL", devices_file, devices, output, connect, insecure, quick, as_json)


def _profile_host(quick: bool, as_json: bool) -> None:
    from partc.cli.profile_tables import figures_json, print_host
    from partc.cli.progress import progress_bar
    from partc.profiler.host import profile_host

    with progress_bar() as bar:
        bar.start("measure this machine")
        path, found = profile_host("ort", quick, bar.update)
    if as_json:
        print_json({"output": str(path), **figures_json(found)})
        return
    print_host(found)
    click.echo(f"wrote {path}; next: write `profile: host` in devices.yaml")


def _prepare(
    model: str | None,
    devices_file: Path,
    devices: DevicesConfig,
    output: Path,
    cut_rule: str,
    cache: bool,
    quick: bool,
) -> None:
    from partc.cli.progress import progress_bar
    from partc.profiler.measurement import prepare

    module = _cut(model, devices_file, cut_rule, cache) if model is not None else None
    with progress_bar() as bar:
        bar.start("write the bundles")
        prepare(output, devices, module, quick, bar.update)


def _learn(
    model: str,
    devices_file: Path,
    runs: Sequence[Path],
    output: Path,
    cut_rule: str,
    cache: bool,
    as_json: bool,
) -> None:
    """Write what the runs of a build show; the runs are looked at before the model is imported."""
    from partc.api.places import check_folder
    from partc.cli.profile_tables import learnt_json, print_learnt
    from partc.config.devices import load_devices
    from partc.config.yamlfile import load_yaml
    from partc.ir.workload import settings
    from partc.profiler.bundle import check_profile_folder
    from partc.profiler.files import DEVICES_FILE, write_learnt
    from partc.profiler.learn import learn
    from partc.profiler.same_build import check_same_devices
    from partc.runs.history import read_history

    devices, top = load_devices(devices_file), load_yaml(devices_file)
    check_folder(output, "-o")
    check_profile_folder(output)
    histories = [read_history(folder) for folder in runs]
    for history in histories:
        check_same_devices(devices, history)
    module = _cut(model, devices_file, cut_rule, cache, ("simplify", "cut", "measure"))
    learnt = learn(module, devices, histories)
    write_learnt(output, top, devices, settings(module.info), learnt)
    file = output / DEVICES_FILE
    if as_json:
        print_json({"output": str(file), **learnt_json(learnt)})
        return
    print_learnt(learnt)
    click.echo(f"wrote {file}; next: partc compile {model} --target {file}")


def _cut(
    model: str,
    devices_file: Path,
    cut_rule: str,
    cache: bool,
    phases: tuple[str, ...] = ("simplify", "cut"),
) -> Module:
    """The module of MODEL, cut into sub-modules as compile does it."""
    from partc.api.checks import check_settings
    from partc.cli.load import load_model
    from partc.cli.observers import Watch, run_watched
    from partc.pipeline.default import default_pipeline

    steps = default_pipeline(devices_file, "optimal", cut_rule, Path("build"), phases)
    check_settings(steps)
    return run_watched(lambda: load_model(model, cache), steps, Watch((), None, False))


def _measure(
    model: str,
    devices_file: Path,
    devices: DevicesConfig,
    output: Path,
    connect: bool,
    insecure: bool,
    quick: bool,
    as_json: bool,
) -> None:
    from partc.cli.progress import progress_bar
    from partc.config.yamlfile import load_yaml
    from partc.profiler.files import DEVICES_FILE, write_files
    from partc.profiler.measurement import measure

    with progress_bar() as bar:
        bar.start("measure")
        result = measure(
            output, devices, connect=connect, insecure=insecure, quick=quick, progress=bar.update
        )
    write_files(output, load_yaml(devices_file), devices, result)
    _show(result, model, output / DEVICES_FILE, as_json)


def _show(result: ProfileResult, model: str, file: Path, as_json: bool) -> None:
    from partc.cli.profile_tables import print_profile, profile_json

    if as_json:
        print_json({"output": str(file), **profile_json(result)})
        return
    print_profile(result)
    click.echo(f"wrote {file}; next: partc compile {model} --target {file}")
