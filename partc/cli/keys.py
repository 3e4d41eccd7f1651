"""`partc keys`: new keys for a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from partc.cli.options import FILE, example, json_option, print_json


@click.command("keys", short_help="Make new keys for a bundle.", epilog=example("partc keys build"))
@click.argument("build", type=FILE, default="build")
@json_option("the public keys")
def keys_command(build: Path, as_json: bool) -> None:
    """Make new keys for the runners of BUILD and for their client; the old ones stop working.

    The secret key of a device lies in its own folder only. Copy each device's keys folder to it again.
    """
    from partc.api.builds import load_build
    from partc.format.role import load_role
    from partc.runtime.shell.keys import load_client_keys, make_keys

    source = load_build(build)
    # In a profile every device is a source, for the client that measures it.
    roles = [load_role(build / "devices" / name) for name in source.addresses]
    make_keys(build, source.addresses, *(one.device for one in roles if one.is_source))
    keys = load_client_keys(build)
    if as_json:
        print_json({"client": keys.own.public, "devices": dict(sorted(keys.peers.items()))})
        return
    for device in source.addresses:
        click.echo(f"new keys: {build / 'devices' / device / 'keys'}")
    click.echo("copy each of these folders to its device, then start the runners again")
