"""`partc serve`: a ring behind OpenAI's HTTP API, and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import (
    FILE,
    Range,
    drafts_option,
    example,
    log_options,
    refuse,
    refuse_runner_options,
    runner_options,
    seconds,
)
from partc.printable import printable

if TYPE_CHECKING:
    from partc.format.status import RingStatus
    from partc.runtime.client.launch import LocalSettings
    from partc.runtime.client.runners import Runner
    from partc.serve.moves import Move
    from partc.serve.ring import Opened
    from partc.serve.server import RingSettings

_BODY_BYTES = 256 << 10
_BODY_BYTES_PER_TOKEN = 64
"""A body holds little else than the prompt, whose length the build limits."""


@click.command(
    "serve",
    short_help="Serve a build by OpenAI's HTTP API.",
    epilog=example(
        "partc serve build",
        "partc serve build --connect auto --port 8080",
        "partc serve build --host 192.0.2.5 --api-key-file keys.txt",
        "partc serve kitchen office --connect 192.0.2.7:5555 --connect 192.0.2.8:5555",
        "curl localhost:8000/v1/models",
    ),
)
@click.argument("builds", type=FILE, nargs=-1, metavar="[BUILD]...")
@click.option(
    "--connect",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    help="Use running devices, through the source at this address; auto: the local ring that runs, else the "
    "address in devices.yaml. Once for each BUILD.  [default: start local runners]",
)
@click.option(
    "--host",
    default="localhost",
    show_default=True,
    help="Address to listen on; localhost: 127.0.0.1 and ::1.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 takes a free one."
)
@click.option("--name", metavar="NAME", help="Name of the model for clients.  [default: the build's]")
@click.option(
    "--api-key-file", type=FILE, metavar="FILE", help="Keys, one a line; clients must send one of them."
)
@click.option("--tls-cert", type=FILE, metavar="FILE", help="Certificate (PEM): answer by HTTPS.")
@click.option("--tls-key", type=FILE, metavar="FILE", help="Its private key (PEM).")
@click.option(
    "--chat-template", type=FILE, metavar="FILE", help="Chat template instead of the model's (jinja2)."
)
@click.option(
    "--temperature",
    type=Range(0, 2),
    default=1.0,
    show_default=True,
    help="Temperature of requests that give none.",
)
@click.option(
    "--queue",
    type=click.IntRange(0, 1000),
    default=32,
    show_default=True,
    help="Length of the queue; further requests get status 429.",
)
@click.option(
    "--timeout",
    type=seconds,
    default=600.0,
    metavar="SECONDS",
    help="Longest time of a request.  [default: 600]",
)
@click.option(
    "--max-body", type=click.IntRange(1024), metavar="BYTES",
    help="Largest body of a request.  [default: 256 KiB and 64 bytes for each token of max_sequence]",
)  # fmt: skip
@click.option(
    "--allow-moves",
    is_flag=True,
    help="Let every client move sub-modules.  [default: those of this machine may, where there are no keys]",
)
@click.option(
    "--cors-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let web pages of this origin use the API, for instance https://chat.example. May be given again.",
)
@click.option(
    "--ignore-unknown-fields",
    is_flag=True,
    help="Ignore fields of requests that are none of OpenAI's API; the header partc-ignored-fields tells which.",
)
@click.option(
    "--balance/--no-balance",
    default=True,
    help="Move sub-modules where that makes the ring faster or a device is at its limit.",
)
@drafts_option
@runner_options
@log_options("info")
@click.option(
    "--linger",
    type=seconds,
    metavar="SECONDS",
    help="How long requests wait for a source that is out of reach.  [default: 30; with several rings 0: another one "
    "takes them over]",
)
@click.option(
    "--insecure", is_flag=True, help="Neither keys nor encryption in the ring; loopback addresses only."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the address and each state of the ring as JSON lines."
)
def serve_command(
    builds: tuple[Path, ...],
    addresses: tuple[str, ...],
    host: str,
    port: int,
    name: str | None,
    api_key_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    chat_template: Path | None,
    temperature: float,
    queue: int,
    timeout: float,
    max_body: int | None,
    allow_moves: bool,
    origins: tuple[str, ...],
    ignore_unknown_fields: bool,
    balance: bool,
    drafts: bool,
    runner: Runner | None,
    patience: float | None,
    log_level: str,
    log_format: str,
    linger: float | None,
    insecure: bool,
    as_json: bool,
) -> None:
    """Start a runner for each device of BUILD as a local process, and answer requests until Ctrl-C.

    The model must generate text, or be an encoder, whose embeddings are served then. Clients of OpenAI's API take
    http://HOST:PORT/v1 as their base URL. Several builds of one model are a ring each: a request goes to one that has
    room, and what a ring loses begins again at another.
    """
    import asyncio

    from partc.runtime.client.launch import LocalSettings
    from partc.runtime.core.liveness import LEAST_PATIENCE_S, LINGER_S
    from partc.runtime.shell.log import LogSettings
    from partc.serve.access import Limits, read_keys
    from partc.serve.browsers import read_origins
    from partc.serve.server import Server, ServerSettings

    builds = builds or (Path("build"),)
    refuse((tls_cert is None) != (tls_key is None), "--tls-cert goes with --tls-key")
    if addresses:
        refuse_runner_options(runner, patience)
    refuse(
        len(addresses) not in (0, len(builds)),
        f"{len(builds)} builds and {len(addresses)} times --connect: give one for each",
    )
    if linger is None:
        linger = LINGER_S if len(builds) == 1 else 0.0
    log = LogSettings(log_level, log_format)
    local = LocalSettings(
        insecure, floor_s=patience or LEAST_PATIENCE_S, linger_s=linger, runner=runner, log=log
    )
    rings = [
        _ring(name, build, connect, local, balance)
        for name, build, connect in zip(
            _names(builds), builds, addresses or (None,) * len(builds), strict=True
        )
    ]
    model = rings[0].role.model
    settings = ServerSettings(
        host=host,
        port=port,
        name=name,
        keys=frozenset() if api_key_file is None else read_keys(api_key_file),
        certificate=tls_cert,
        private_key=tls_key,
        template=chat_template,
        temperature=temperature,
        limits=Limits(max_body or _BODY_BYTES + _BODY_BYTES_PER_TOKEN * model.max_sequence, queue, timeout),
        log=log,
        lets_move=allow_moves,
        origins=read_origins(origins),
        ignores_unknown=ignore_unknown_fields,
        drafts=drafts,
    )
    refuse(
        not settings.is_local and not settings.keys,
        f"--host {host} lets others in: give --api-key-file as well",
    )
    first, *others = rings
    asyncio.run(Server(first, settings, partial(_tell, as_json, len(rings) > 1)).run(others))


def _names(builds: Sequence[Path]) -> list[str]:
    """A name for each ring: its folder's, or its path where two folders have one name."""
    names = [build.resolve().name for build in builds]
    return [str(build) if names.count(name) > 1 else name for build, name in zip(builds, names, strict=True)]


def _ring(name: str, build: Path, connect: str | None, local: LocalSettings, balance: bool) -> RingSettings:
    """A ring of local runners, or one that runs already."""
    from partc.api.builds import load_build
    from partc.balance.balancing import note_refusal, read_balancing
    from partc.cli.cannot import build_facts
    from partc.errors import RunError
    from partc.planner.model.device_times import PlannedTimes
    from partc.serve.server import RingSettings

    role = load_build(build)
    if not role.can_be_served:
        message = f"this model reads no text that it answers or embeds: {role.model.task}"
        raise RunError(message, where=str(build), hint="partc run computes its outputs")
    opener = (
        partial(_local_ring, build, local) if connect is None else partial(_ring_at, build, connect, local)
    )
    plan = PlannedTimes.of_build(build)
    planned = plan.in_ring if plan else lambda ring: {}
    balancing = read_balancing(build, note_refusal, goes_on=True) if balance else None
    beside = balancing.beside if balancing else None
    return RingSettings(name, build, role, opener, planned, beside, partial(_move, build), build_facts(build))


def _move(build: Path, ring: RingStatus, text: str, device: str) -> Move:
    """The move of a range of sub-modules to a device, and all that it changes."""
    from partc.balance.artifacts import read_artifacts
    from partc.balance.by_hand import change_to, range_of
    from partc.balance.ring import moved_text
    from partc.balance.windows import stages_in
    from partc.serve.moves import Move

    artifacts = read_artifacts(build)
    change = change_to(artifacts, stages_in(ring), range_of(text, "submodules"), device)
    what = moved_text(artifacts.shape, change.before, change.after)
    return Move(change.text, change.rows, change.placement, f"by hand: {what}")


@contextmanager
def _local_ring(build: Path, settings: LocalSettings) -> Iterator[Opened]:
    """Runners on this machine, which end with the block."""
    from partc.format.role import read_roles
    from partc.runtime.client.launch import launch_local
    from partc.runtime.client.ring_file import told_in_file
    from partc.serve.ring import Opened

    read_roles(build)
    with launch_local(build, settings) as ring, told_in_file(build, ring.source, insecure=settings.insecure):
        yield Opened(ring.client, ring.given_up)


@contextmanager
def _ring_at(build: Path, connect: str, settings: LocalSettings) -> Iterator[Opened]:
    """A ring that runs already."""
    from partc.runtime.client.reach import reach_ring
    from partc.serve.ring import Opened

    yield Opened(lambda: reach_ring(build, connect, insecure=settings.insecure, linger_s=settings.linger_s))


def _tell(as_json: bool, has_several: bool, what: str, detail: str, ring: str) -> None:
    """A line about what the server does."""
    if as_json:
        named = {"ring": ring} if has_several and ring else {}
        click.echo(json.dumps({"state": what, "url" if what == "listening" else "reason": detail, **named}))
        return
    which = f"ring {ring}" if has_several else "the ring"
    words = {
        "listening": f"page {detail}/, API {detail}/v1; {'the rings start' if has_several else 'the ring starts'}",
        "ready": f"{which}: ready" if has_several else "ready",
        "lost": f"{which} is lost: {detail}",
    }
    if has_several:
        words["ended"] = f"{which} has ended: {detail}"
    if what in words:
        click.echo(printable(words[what]), err=True)
