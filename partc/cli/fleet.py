"""`partc fleet`: rings of one model on the nodes of a Ray cluster, and one endpoint in front of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partc.cli.options import FILE, example, json_option, print_json, seconds
from partc.scratch import scratch_folder

if TYPE_CHECKING:
    from partc.cluster.actors import Fleet

_GRACE_S = 60.0


def _state_folder() -> Path:
    """Where a door keeps what it is told, on the node that it runs on."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "partc")


_ADDRESS = click.option(
    "--address",
    default="auto",
    show_default=True,
    metavar="HOST:PORT",
    help="Head of the Ray cluster; auto: the one that runs on this machine.",
)


@click.group(
    "fleet",
    short_help="Keep several rings on a Ray cluster, behind one endpoint.",
    epilog=example(
        "partc fleet demo build",
        "partc fleet up fleet.yaml",
        "partc fleet status",
        "partc fleet down",
    ),
)
def fleet_command() -> None:
    """Keep several rings of one model on the nodes of a Ray cluster, behind one endpoint of OpenAI's API.

    Ray places the runners and starts them again; it carries no tensor, no key and no prompt.
    """


@fleet_command.command("up", epilog=example("partc fleet up fleet.yaml", "partc fleet up fleet.yaml --json"))
@click.argument("file", type=FILE, default="fleet.yaml")
@_ADDRESS
@click.option(
    "--grace",
    type=seconds,
    default=_GRACE_S,
    show_default=True,
    metavar="SECONDS",
    help="Time that requests have to end at a ring that is replaced; then they begin again at another.",
)
@json_option("the address of the endpoint")
def up_command(file: Path, address: str, grace: float, as_json: bool) -> None:
    """Make the cluster what FILE says: start rings that are new, end those that are gone.

    Rings whose builds have changed are replaced one after another, so that a fleet of several loses no request.
    """
    from partc.config.fleet import load_fleet

    wanted = load_fleet(file)
    with _joined(address) as fleet:
        url = fleet.up(wanted, grace, lambda line: click.echo(line, err=True))
    if as_json:
        print_json({"url": url})
    else:
        click.echo(f"page {url}/, API {url}/v1")


@fleet_command.command("status", epilog=example("partc fleet status", "partc fleet status --json"))
@_ADDRESS
@json_option("the state of door, rings, keepers and nodes")
def status_command(address: str, as_json: bool) -> None:
    """Say how door, rings, devices and nodes are."""
    with _joined(address) as fleet:
        state = fleet.state()
    if as_json:
        print_json(state)
    else:
        from partc.cli.fleet_state import print_state

        print_state(state)


@fleet_command.command("down", epilog=example("partc fleet down"))
@_ADDRESS
def down_command(address: str) -> None:
    """End the door and all rings; the cluster stays."""
    with _joined(address) as fleet:
        fleet.down(lambda line: click.echo(line, err=True))


@fleet_command.command("demo", epilog=example("partc fleet demo build", "partc fleet demo build --rings 3"))
@click.argument("build", type=FILE, default="build")
@click.option(
    "--rings",
    type=click.IntRange(1, 8),
    default=2,
    show_default=True,
    help="Rings, each on a node of its own.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Of the endpoint; 0 takes a free one.",
)
def demo_command(build: Path, rings: int, port: int) -> None:
    """Start a Ray cluster on this machine, a head and a node for each ring, and a fleet of copies of BUILD on it.

    It runs until Ctrl-C. Meanwhile `partc fleet status --address` looks at it, and killing a node shows what happens.
    """
    from partc.api.builds import load_build
    from partc.cluster.actors import Fleet
    from partc.cluster.demo import local_cluster, write_demo
    from partc.config.fleet import load_fleet

    load_build(build)
    with scratch_folder("fleet") as scratch:
        path = write_demo(scratch, [build] * rings, port)
        wanted = load_fleet(path)
        resources = [[place.resource for place in ring.devices.values()] for ring in wanted.rings.values()]
        click.echo(f"a Ray cluster of {rings + 1} nodes starts (some 10 s each)", err=True)
        with local_cluster(resources) as cluster:
            fleet = Fleet(cluster.address, scratch)
            url = fleet.up(wanted, _GRACE_S, lambda line: click.echo(line, err=True))
            fleet.close()
            click.echo(f"page {url}/, API {url}/v1")
            click.echo(f"partc fleet status --address {cluster.address}; it is described in {path}")
            for node, ring in zip(cluster.nodes[1:], wanted.rings, strict=True):
                click.echo(f"kill -9 -{node.group} takes the node of {ring} away")
            click.echo("Ctrl-C ends it")
            while True:
                time.sleep(1)


@contextmanager
def _joined(address: str) -> Iterator[Fleet]:
    from partc.cluster.actors import Fleet

    fleet: Any = Fleet(address, _state_folder())
    try:
        yield fleet
    finally:
        fleet.close()
