"""`partc deploy`: what systemd, Kubernetes or Ray need to run the devices of a build, and phones that adb reaches."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import FILE, example, json_option, print_json, refuse
from partc.printable import note

if TYPE_CHECKING:
    from partc.deploy.adb import AdbSettings
    from partc.deploy.runners import Runner
    from partc.deploy.ssh import SshSettings

_FOLDER = "/var/lib/partc"
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", re.ASCII)
"""Names of images, `[REGISTRY/]NAME[:TAG][@DIGEST]`: what a manifest and a shell take."""


@click.command(
    "deploy",
    short_help="Write units or manifests for a build, or start it on phones.",
    epilog=example(
        "partc deploy build --to systemd -o units",
        "partc deploy build --to systemd --apply --host board=root@192.0.2.7",
        "partc deploy build --to kubernetes --image registry.example/partc:0.1",
        "partc deploy build --to ray -o fleet",
        "partc deploy build --to adb",
    ),
)
@click.argument("build", type=FILE, default="build")
@click.option(
    "--to",
    "system",
    required=True,
    type=click.Choice(("systemd", "kubernetes", "ray", "adb")),
    help="What runs them.",
)
@click.option("-o", "--output", type=FILE, metavar="DIR", help="Folder for the files.  [default: print them]")
@click.option(
    "--folder",
    metavar="DIR",
    help=f"Where the devices' folders lie on each device.  [default: {_FOLDER}; on phones /data/local/tmp/partc]",
)
@click.option(
    "--runner",
    default="/opt/partc/bin/partc-runner",
    show_default=True,
    metavar="FILE",
    help="partc-runner on devices without a native one, for systemd.",
)
@click.option(
    "--apply",
    "applies",
    is_flag=True,
    help="Send each device its folder and its units over ssh, and start its runner.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME=[USER@]HOST",
    help="Where ssh finds a device, for --apply. Repeatable.  [default: root@NAME]",
)
@click.option("--image", metavar="IMAGE", help="Container image with partc-runner, for Kubernetes.")
@click.option(
    "--phone",
    "phones",
    multiple=True,
    metavar="NAME[=SERIAL]",
    help="A device that is a phone, for adb; SERIAL where several are connected. Repeatable.  "
    "[default: those with code for Android]",
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="Where a device is, for adb, if devices.yaml does not say so. Repeatable.",
)
@click.option("--forward", is_flag=True, help="Lead the ports of the ring through the cable, for adb.")
@json_option("the files and the commands")
def deploy_command(
    build: Path,
    system: str,
    output: Path | None,
    folder: str | None,
    runner: str,
    applies: bool,
    hosts: tuple[str, ...],
    image: str | None,
    phones: tuple[str, ...],
    peers: tuple[str, ...],
    forward: bool,
    as_json: bool,
) -> None:
    """Write what systemd, Kubernetes or Ray need to run the devices of BUILD; print the commands that take it there.

    An endpoint in front of them, `partc serve` on the machine of the source, is part of it where the model takes text.
    Memory limits come from the plan. Nothing is sent anywhere, and no key is in any file.

    With --to systemd --apply the devices are sent their folders, keys and all, and their units, and the runners are
    started. With --to adb the folders of phones are pushed to them, keys and all, and their runners started.
    """
    from partc.api.builds import load_build
    from partc.deploy.adb import FOLDER, AdbSettings
    from partc.deploy.endpoint import read_endpoint
    from partc.deploy.kubernetes import kubernetes_files, kubernetes_steps
    from partc.deploy.ray import ray_files, ray_steps
    from partc.deploy.runners import read_runners, write_files
    from partc.deploy.ssh import SshSettings
    from partc.deploy.systemd import systemd_files, systemd_steps

    is_adb = system == "adb"
    folder = folder or (FOLDER if is_adb else _FOLDER)
    refuse(not folder.startswith("/"), f"--folder: {folder!r} is not an absolute path")
    refuse(not runner.startswith("/"), f"--runner: {runner!r} is not an absolute path")
    refuse(system == "kubernetes" and not image, "--to kubernetes needs --image")
    refuse(system != "kubernetes" and image is not None, "--image goes with --to kubernetes")
    refuse(
        image is not None and not _IMAGE.fullmatch(image),
        f"--image {image!r} is no name of an image, such as registry.example/partc:0.1",
    )
    refuse(not is_adb and bool(phones or peers or forward), "--phone, --peer and --forward go with --to adb")
    refuse(applies and system == "kubernetes", "--apply is for systemd: kubectl applies the manifests")
    refuse(applies and system == "ray", "--apply is for systemd: partc fleet up starts a fleet")
    refuse(bool(hosts) and not (applies and system == "systemd"), "--host goes with --to systemd --apply")
    refuse(applies and output is not None, "--apply sends the files: leave --output out")
    refuse(is_adb and output is not None, "--to adb writes no files: leave --output out")
    load_build(build)
    if is_adb:
        _to_phones(build, phones, AdbSettings(folder, _addresses(peers), forward), as_json)
        return
    runners = read_runners(build)
    _note_loopback(runners)
    if applies:
        found = dict(_pair(text) for text in hosts)
        _over_ssh(build, runners, SshSettings(folder, runner, found), as_json)
        return
    source = str(build.resolve()) if output is None else os.path.relpath(build, output)
    endpoint = read_endpoint(build, runners)
    if system == "systemd":
        files = systemd_files(runners, endpoint, folder, runner)
        steps = systemd_steps(runners, endpoint, source, folder, runner)
    elif system == "ray":
        files = ray_files(runners, str(build.resolve()), folder, build.resolve().name)
        steps = ray_steps(runners, source, folder)
    else:
        files = kubernetes_files(runners, endpoint, folder, image or "")
        steps = kubernetes_steps(runners, endpoint, source, folder, image or "")
    if output is not None:
        write_files(output, files)
    if as_json:
        print_json({"files": dict(files), "commands": steps})
        return
    if output is None:
        for name, text in files.items():
            click.echo(f"# {name}\n{text}")
    click.echo("\n".join([f"# in {output or 'the folder of these files'}:", *steps]))


def _note_loopback(runners: Sequence[Runner]) -> None:
    """A note on devices that other machines cannot reach; one device needs nobody."""
    from partc.runtime.shell.addresses import is_loopback

    alone = [one for one in runners if is_loopback(one.address.rpartition(":")[0])]
    if alone and len(runners) > 1:
        places = ", ".join(f"{one.device} at {one.address}" for one in alone)
        note(f"no other machine reaches {places}: write `address` in devices.yaml")


def _pair(text: str) -> tuple[str, str]:
    name, _, host = text.partition("=")
    return name, host


def _over_ssh(build: Path, runners: Sequence[Runner], settings: SshSettings, as_json: bool) -> None:
    from partc.deploy.ssh import check_hosts, deploy_over_ssh

    check_hosts(settings.hosts, runners)
    done: list[str] = []
    deploy_over_ssh(build, runners, settings, done.append if as_json else click.echo)
    if as_json:
        print_json({"files": {}, "commands": done})


def _to_phones(build: Path, phones: Sequence[str], settings: AdbSettings, as_json: bool) -> None:
    from partc.deploy.adb import Phone, deploy_phone, phones_of

    named = [Phone(name, serial or None) for name, _, serial in (text.partition("=") for text in phones)]
    unknown = [one.device for one in named if not (build / "devices" / one.device).is_dir()]
    refuse(bool(unknown), f"--phone: the build has no device {unknown[:1]}")
    done: list[str] = []
    for phone in named or phones_of(build):
        deploy_phone(build, phone, settings, done.append if as_json else click.echo)
    if as_json:
        print_json({"files": {}, "commands": done})


def _addresses(peers: Sequence[str]) -> dict[str, str]:
    found = {name: address for name, _, address in (text.partition("=") for text in peers)}
    wrong = [name for name, address in found.items() if not address.rpartition(":")[2].isdecimal()]
    refuse(bool(wrong), f"--peer: {wrong[:1]} has no HOST:PORT")
    return found
