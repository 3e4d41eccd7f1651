"""`partc deploy`: what systemd or Kubernetes need to run the devices of a build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import FILE, example, json_option, print_json, refuse

if TYPE_CHECKING:
    from partc.deploy.runners import Files


@click.command(
    "deploy",
    short_help="Write units or manifests for a build.",
    epilog=example(
        "partc deploy build --to systemd -o units",
        "partc deploy build --to kubernetes --image registry.example/partc:0.1",
    ),
)
@click.argument("build", type=FILE, default="build")
@click.option(
    "--to", "system", required=True, type=click.Choice(("systemd", "kubernetes")), help="What runs them."
)
@click.option("-o", "--output", type=FILE, metavar="DIR", help="Folder for the files.  [default: print them]")
@click.option(
    "--folder",
    default="/var/lib/partc",
    show_default=True,
    metavar="DIR",
    help="Where the devices' folders lie on each device.",
)
@click.option(
    "--runner",
    default="/opt/partc/bin/partc-runner",
    show_default=True,
    metavar="FILE",
    help="partc-runner on each device, for systemd.",
)
@click.option("--image", metavar="IMAGE", help="Container image with partc-runner, for Kubernetes.")
@json_option("the files and the commands")
def deploy_command(
    build: Path, system: str, output: Path | None, folder: str, runner: str, image: str | None, as_json: bool
) -> None:
    """Write what systemd or Kubernetes need to run the devices of BUILD, and print the commands that take it there.

    Memory limits come from the plan. Nothing is sent anywhere, and no key is in any file.
    """
    from partc.cli.load import load_build
    from partc.deploy.kubernetes import kubernetes_files, kubernetes_steps
    from partc.deploy.runners import read_runners
    from partc.deploy.systemd import systemd_files, systemd_steps

    refuse(not folder.startswith("/"), f"--folder: {folder!r} is not an absolute path")
    refuse(not runner.startswith("/"), f"--runner: {runner!r} is not an absolute path")
    refuse(system == "kubernetes" and image is None, "--to kubernetes needs --image")
    load_build(build)
    runners = read_runners(build)
    if system == "systemd":
        files = systemd_files(runners, folder, runner)
        steps = systemd_steps(runners, str(build), folder)
    else:
        files = kubernetes_files(runners, folder, image or "")
        steps = kubernetes_steps(runners, str(build), folder)
    if output is not None:
        _write(output, files)
    if as_json:
        print_json({"files": dict(files), "commands": steps})
        return
    if output is None:
        for name, text in files.items():
            click.echo(f"# {name}\n{text}")
    click.echo("\n".join([f"# in {output or 'the folder of these files'}:", *steps]))


def _write(folder: Path, files: Files) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
