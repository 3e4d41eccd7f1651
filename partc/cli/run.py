"""`partc run`: the devices of a bundle as local processes (or the devices themselves), and a request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partc.cli.options import (
    FILE,
    drafts_option,
    example,
    json_option,
    log_options,
    print_json,
    refuse,
    runner_options,
    seconds,
)
from partc.cli.run_options import RunOptions
from partc.printable import note

if TYPE_CHECKING:
    from partc.format.build import Model
    from partc.format.capabilities import Name
    from partc.format.dtypes import Array
    from partc.format.role import Role
    from partc.runtime.client.client import Client
    from partc.runtime.client.launch import LocalRing, LocalSettings
    from partc.runtime.client.prompts import Prompts
    from partc.runtime.client.results import Result, Tokens

    Asked = tuple[Prompts, Mapping[str, Array] | None]
    """A request: its prompts, and the tensors beside them."""


@click.command(
    "run",
    short_help="Generate with a bundle.",
    epilog=example(
        'partc run build --prompt "Once upon a time"',
        'partc run build --prompt "One" --prompt "Two" --temperature 0.8 --seed 7',
        "echo Once | partc run build --prompt - --json",
        "partc run build --input inputs.npz --output outputs.npz",
        "partc run build --image photo.jpg",
        'partc run build --image photo.jpg --prompt "What is this?"',
    ),
)
@click.argument("build", type=FILE, default="build")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="TEXT",
    help="A prompt; - reads standard input, @FILE a file. Repeatable.",
)
@click.option("--token-ids", multiple=True, metavar="IDS", help="A prompt as token ids: 1,2,3. Repeatable.")
@click.option(
    "--input",
    "tensors",
    type=FILE,
    metavar="FILE.npz",
    help="Tensors by name, for a model that takes tensors.",
)
@click.option(
    "--image",
    "images",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="A picture, for a model that takes pictures. Repeatable.",
)
@click.option(
    "--audio",
    "sounds",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="A sound, for a model that takes sound. Repeatable.",
)
@click.option(
    "--output",
    type=FILE,
    metavar="FILE.npz",
    help="File for the outputs of a model that does not generate.",
)
@click.option(
    "--tokens",
    type=click.IntRange(1),
    metavar="N",
    help="New tokens for each prompt, at most.  [default: 64, fewer where there is no room for them]",
)
@click.option(
    "--temperature", metavar="T", default=0.0, show_default=True, help="0 takes the most likely token."
)
@click.option(
    "--top-k",
    metavar="K",
    default=0,
    show_default=True,
    help="Draw among the K most likely tokens; 0: among all.",
)
@click.option(
    "--top-p",
    metavar="P",
    default=1.0,
    show_default=True,
    help="Draw among the most likely tokens whose probabilities add up to P.",
)
@click.option("--seed", metavar="N", default=0, show_default=True, help="Equal seeds draw equal tokens.")
@click.option(
    "--batch",
    is_flag=True,
    help="Send all prompts, pictures or sounds as one request, not one each.",
)
@click.option(
    "--stream/--no-stream",
    default=True,
    help="Print text as it is generated; the default for a single prompt.",
)
@click.option(
    "--connect",
    metavar="HOST:PORT",
    help="Use running devices, through the source at this address; auto: the local ring that runs, else the "
    "address in devices.yaml.",
)
@click.option("--restart/--no-restart", default=True, help="Restart local runners that crash.")
@click.option(
    "--rejoin",
    type=seconds,
    metavar="SECONDS",
    help="How long requests wait for a device that is lost.  [default: 60; 0 with --no-restart]",
)
@runner_options
@log_options("none")
@click.option(
    "--balance/--no-balance",
    default=True,
    help="Move sub-modules while it runs, where that makes it faster or a device is at its limit.",
)
@click.option(
    "--linger",
    type=seconds,
    metavar="SECONDS",
    default=30.0,
    help="How long requests wait for a source that is out of reach; local runners wait as long for clients.  "
    "[default: 30]",
)
@drafts_option
@click.option("--insecure", is_flag=True, help="Neither keys nor encryption; loopback addresses only.")
@click.option("--timing", is_flag=True, help="Print the time of each device and link to stderr.")
@click.option(
    "--record/--no-record", default=True, help="Write the times of the run to BUILD/runs, for partc report."
)
@json_option("tokens, texts and outputs")
def run_command(build: Path, **given: Any) -> None:
    """Start a runner for each device of BUILD as a local process, and generate.

    Several prompts are in flight at once. A model that does not generate prints its outputs.
    """
    options = RunOptions(**given)
    options.check()
    with _starting(build, options.connect, options.runners) as reach:
        # What takes its time to import comes here: the runners load meanwhile.
        from partc.api.builds import load_build
        from partc.api.places import check_file
        from partc.cli.balance import balanced
        from partc.cli.cannot import note_missing
        from partc.cli.requests import check_tokens
        from partc.cli.results import print_tokens, write_outputs

        role = load_build(build)
        model = role.model
        requests, shown = _requests(options, role, build)
        if options.tokens and model.generates:
            check_tokens(options.tokens, model.max_sequence)
        if options.output is not None:
            check_file(options.output, "--output")
        one = len(requests) == 1 and not options.batch
        live = options.stream and not options.as_json and model.generates and one
        listen = partial(print_tokens, prompt="".join(shown)) if live else None
        started = datetime.now(UTC)
        with reach() as client, balanced(client, build) if options.balance else nullcontext():
            note_missing(client, build, _wanted(role, len(requests), options))
            results = _generate(client, requests, options, listen)
    if options.output is not None:
        write_outputs(options.output, results)
    _show(results, model, shown, live, options.as_json, options.timing)
    if options.record:
        _record(build, role.plan_id, results, started, local=options.connect is None)


def _requests(options: RunOptions, role: Role, build: Path) -> tuple[list[Asked], list[str]]:
    """The requests that are asked for, and their prompts as they are shown before the answers."""
    from partc.api.media import read_media
    from partc.cli.requests import check_task, pair_requests, prompt_texts, read_prompts, read_tensors

    model = role.model
    texts = bool(options.prompts or options.token_ids)
    given = {"--input": options.tensors, "--image": options.images, "--audio": options.sounds}
    check_task(role, texts, next((option for option, value in given.items() if value), None))
    refuse(
        options.batch and model.placeholder_token is not None,
        "--batch is not for this model: a request has one prompt with one picture or sound",
    )
    asked = read_prompts(options.prompts, options.token_ids, options.batch, model.vocab_size)
    is_shown = sys.stdout.isatty() and not options.as_json and not model.start_tokens
    inputs = [read_tensors(options.tensors)] if options.tensors is not None else []
    inputs += read_media(options.images, options.sounds, options.batch, role, build)
    return pair_requests(asked, inputs, role), prompt_texts(asked) if is_shown else []


def _wanted(role: Role, requests: int, options: RunOptions) -> list[Name]:
    """Capabilities that this run would make use of."""
    found: list[Name] = ["limits"]
    if requests > 1 and role.model.generates:
        found.append("shared-steps")
    if options.asks_to_balance:
        found.append("balancing")
    return found


@contextmanager
def _starting(
    build: Path, connect: str | None, settings: LocalSettings
) -> Iterator[Callable[[], AbstractContextManager[Client]]]:
    """A way to the devices: to running ones, or to local processes, which load in the block and end with it."""
    if connect is not None:
        from partc.runtime.client.reach import reach_ring

        yield partial(reach_ring, build, connect, insecure=settings.insecure, linger_s=settings.linger_s)
        return
    from partc.runtime.client.launch import start_local

    with start_local(build, settings) as ring:
        yield partial(_client, build, ring, insecure=settings.insecure)


@contextmanager
def _client(build: Path, ring: LocalRing, *, insecure: bool) -> Iterator[Client]:
    """A connection to local processes, as soon as they stand."""
    from partc.cli.progress import progress_bar
    from partc.format.role import read_roles
    from partc.runtime.client.ring_file import told_in_file

    read_roles(build)  # a runner of another build says only that keys do not fit
    with progress_bar() as bar:
        bar.start("start the runners")
        ring.load_client()
        ring.wait()
    with told_in_file(build, ring.source, insecure=insecure), ring.client() as client:
        yield client


def _generate(
    client: Client,
    asked: Sequence[Asked],
    options: RunOptions,
    listen: Callable[[Tokens], None] | None,
) -> list[Result]:
    """Submit everything, then wait for all of it: the requests are in flight together."""
    requests = [
        client.submit(
            prompts,
            inputs=tensors,
            max_new_tokens=options.tokens,
            sampling=options.sampling,
            drafts=options.drafts,
            on_token=listen,
        )
        for prompts, tensors in asked
    ]
    client.wait(requests)
    return [request.result() for request in requests]


def _record(build: Path, plan_id: str, results: Sequence[Result], started: datetime, *, local: bool) -> None:
    """Keep what the run took; a build that cannot be written in is no reason to lose the results."""
    from partc.runs.records import write_record

    try:
        write_record(build, plan_id, results, started, local=local)
    except OSError as error:
        note(f"the run is not recorded: {error.strerror or error}")
        click.echo(f"  hint: let {build / 'runs'} be written, or say --no-record", err=True)


def _show(
    results: Sequence[Result], model: Model, prompts: Sequence[str], live: bool, as_json: bool, timing: bool
) -> None:
    from partc.cli.results import print_limits, print_results, print_timings, results_json

    if as_json:
        print_json(results_json(results, model.labels, timing))
    else:
        print_results(results, model.labels, live, prompts)
        print_limits(results, model)
    if timing:
        print_timings(results)
