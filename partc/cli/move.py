"""`partc move`: sub-modules of a running ring to another device, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partc.cli.options import FILE, example, json_option, print_json

if TYPE_CHECKING:
    from partc.balance.by_hand import Change
    from partc.config.placement import Range
    from partc.format.messages import Placed
    from partc.format.placement import Stages
    from partc.runtime.client.client import Client

_LOOK_S = 1.0
"""Time between two states of the ring, of which the first is all that is asked for."""


@click.command(
    "move",
    short_help="Move sub-modules of a running ring.",
    epilog=example(
        "partc move build --submodules 8-11 --to board",
        'partc move build --submodules "layers 4-5" --to board --dry-run',
        "partc move build --submodules 8 --to old --connect 192.0.2.7:5555",
    ),
)
@click.argument("build", type=FILE, default="build")
@click.option(
    "--submodules",
    "wanted",
    required=True,
    metavar="RANGE",
    help="Numbers of the plan, 8-11, or layers of the model, 'layers 4-5'.",
)
@click.option("--to", "device", required=True, metavar="DEVICE", help="The device that is to compute them.")
@click.option("--dry-run", is_flag=True, help="Print what it would change in the placement as compiled.")
@click.option(
    "--connect",
    default="auto",
    metavar="HOST:PORT",
    help="The source of the ring; auto (the default): the local ring that runs, else the address in devices.yaml.",
)
@click.option("--insecure", is_flag=True, help="Neither keys nor encryption; loopback addresses only.")
@json_option("both placements, their times, and what the move took")
def move_command(
    build: Path, wanted: str, device: str, dry_run: bool, connect: str, insecure: bool, as_json: bool
) -> None:
    """Move sub-modules of a running ring to another device; requests in flight continue.

    The device must have them on its disk: `overlap: 1` and `survive: one` in devices.yaml lay copies there.
    """
    from partc.api.builds import load_build
    from partc.balance.artifacts import read_artifacts
    from partc.balance.by_hand import change_to
    from partc.balance.ring import moved_text
    from partc.runtime.client.reach import reach_ring

    load_build(build)  # says what was meant, where that is no build
    artifacts, span = read_artifacts(build), _range(wanted)
    if dry_run:
        _print(change_to(artifacts, artifacts.stages, span, device), None, as_json)
        return
    with reach_ring(build, connect, insecure=insecure) as client:
        change = change_to(artifacts, _stages_now(client), span, device)
        what = moved_text(artifacts.shape, change.before, change.after)
        placing = client.place(change.placement, reason=f"by hand: {what}")
        client.wait([placing])
    _print(change, placing.result(), as_json)


def _range(text: str) -> Range:
    """The range of --submodules."""
    from partc.balance.by_hand import range_of
    from partc.errors import ConfigError

    try:
        return range_of(text, "--submodules")
    except ConfigError as error:
        raise click.UsageError(f"--submodules: {error.message}", click.get_current_context()) from None


def _stages_now(client: Client) -> Stages:
    """The stages of the placement in force."""
    from partc.balance.windows import stages_in
    from partc.format.status import RingStatus

    came: list[RingStatus] = []
    ticket = client.watch(_LOOK_S, came.append)
    while not came:
        client.listen(_LOOK_S)
    client.unwatch(ticket)
    return stages_in(came[0])


def _print(change: Change, placed: Placed | None, as_json: bool) -> None:
    from partc.cli.tables import show, table
    from partc.config.units import format_seconds

    if as_json:
        print_json({**change.to_json(), "moved": None if placed is None else _placed_json(placed)})
        return
    columns = ["device", "modules", "then", "memory", "budget"]
    show(table("Stages", columns, change.rows, right=columns[3:]), f"predicted {change.text}")
    if placed is None:
        show("nothing was moved: --dry-run")
        return
    again = f"; {placed.steps} steps computed again" if placed.steps else ""
    took, stopped = format_seconds(placed.seconds), format_seconds(placed.stopped_s)
    show(f"moved in {took}; requests stood still for {stopped}{again}")


def _placed_json(placed: Placed) -> dict[str, Any]:
    return {
        "epoch": placed.epoch,
        "seconds": placed.seconds,
        "stopped_s": placed.stopped_s,
        "steps": placed.steps,
    }
