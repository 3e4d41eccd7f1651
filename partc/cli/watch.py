"""`partc watch`: a ring as it is, again and again."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.cli.options import FILE, example, json_option, refuse
from partc.printable import note

if TYPE_CHECKING:
    from partc.cli.status_feed import Line
    from partc.format.status import RingStatus


_LATE_S = 2.0
"""By so much longer than the period may a source tell nothing: a round of questions takes up to 1 s of it."""
_ONCE_S = 0.25
"""Time between two looks of `--once`."""
_MOST_ONCE_S = 5.0
"""Time that `--once` waits for figures."""


@click.command(
    "watch",
    short_help="Show a ring while it runs.",
    epilog=example(
        "partc watch build",
        "partc watch build --connect 192.0.2.5:5555 --every 10s",
        "partc watch build --once --json",
        "partc watch build --balance",
        "partc watch --feed kept.jsonl",
    ),
)
@click.argument("build", type=FILE, default="build")
@click.option(
    "--connect",
    default="auto",
    metavar="HOST:PORT",
    help="The source of the ring; auto (the default): the local ring that runs, else the address in devices.yaml.",
)
@click.option("--every", default="1s", show_default=True, metavar="TIME", help="Time between two looks.")
@click.option(
    "--once", is_flag=True, help="Look once, as soon as all devices have told their figures, or after 5 s."
)
@click.option(
    "--balance",
    is_flag=True,
    help="Move sub-modules meanwhile, where that makes the ring faster or a device is at its limit.",
)
@click.option("--insecure", is_flag=True, help="Neither keys nor encryption; loopback addresses only.")
@click.option("--feed", metavar="FILE", help="Replay the output of --json from FILE; - reads stdin live.")
@json_option("one line for each look")
def watch_command(
    build: Path,
    connect: str,
    every: str,
    once: bool,
    balance: bool,
    insecure: bool,
    feed: str | None,
    as_json: bool,
) -> None:
    """Show the devices of BUILD's ring: time of a step beside the plan's, queue, memory, temperature, battery, links.

    Times are medians of the last 32 steps since somebody began to watch. Sensors are read only while somebody watches.
    With --balance the ring is balanced also where neither partc run nor partc serve holds it open.
    """
    from partc.config.units import parse_seconds
    from partc.format.messages.watching import LONGEST_PERIOD_S

    refuse(feed is not None and as_json, "--feed excludes --json")
    refuse(balance and (once or feed is not None), "--balance goes on: it excludes --once and --feed")
    period_s = parse_seconds(every, where="--every", allow_zero=False)
    refuse(period_s > LONGEST_PERIOD_S, f"--every: {every!r} is longer than a day")
    if feed is not None:
        lines = _kept(feed)
    else:
        lines = _ring(build, connect, _ONCE_S if once else period_s, balance, insecure)
        lines = _whole(lines) if once else lines
    with _shown(as_json) as show:
        for line in islice(lines, 1 if once else None):
            show(line)


def _ring(build: Path, connect: str, period_s: float, balance: bool, insecure: bool) -> Iterator[Line]:
    from partc.api.builds import load_build
    from partc.cli.balance import balanced
    from partc.cli.cannot import build_facts, watched_lines
    from partc.cli.status_feed import lost_line, make_line
    from partc.planner.model.device_times import PlannedTimes
    from partc.runtime.client.reach import reach_ring

    load_build(build)
    facts = build_facts(build)
    plan = PlannedTimes.of_build(build)
    with (
        reach_ring(build, connect, insecure=insecure) as client,
        balanced(client, build, goes_on=True) if balance else nullcontext(),
    ):
        came: deque[RingStatus] = deque()
        client.watch(period_s, came.append)
        last: Line | None = None
        heard = said = time.monotonic()
        while True:
            client.listen(period_s)
            now = time.monotonic()
            while came:
                status = came.popleft()
                last, heard, said = make_line(status, plan, watched_lines(facts, status)), now, now
                yield last
            is_late = client.away_s is not None or now > heard + period_s + _LATE_S
            if last is not None and is_late and now > said + min(period_s, _LATE_S):
                said = now
                yield lost_line(last, now - heard)


def _whole(lines: Iterator[Line]) -> Iterator[Line]:
    """The first line that has the figures of all devices that are there; the last one where that takes too long."""
    from partc.cli.status_feed import missing_figures

    end = time.monotonic() + _MOST_ONCE_S
    for line in lines:
        missing = missing_figures(line)
        if missing and line.lost_s is None and time.monotonic() < end:
            continue
        if missing:
            names = ", ".join(missing)
            note(f"no figures of {names} came within {_MOST_ONCE_S:g} s")
        yield line
        return


def _kept(feed: str) -> Iterator[Line]:
    """The lines of a file, or those of standard input as they come."""
    from partc.cli.load import read_text
    from partc.cli.status_feed import read_lines

    if feed == "-":
        return read_lines(sys.stdin.buffer, "standard input")
    return read_lines(read_text(feed, "--feed FILE reads a file").splitlines(), feed)


@contextmanager
def _shown(as_json: bool) -> Iterator[Callable[[Line], None]]:
    """How a line is shown: as JSON, in place on a terminal, or one table below the other."""
    from partc.cli.status_feed import write_line
    from partc.cli.status_table import status_blocks
    from partc.cli.tables import printed, show

    if as_json:
        yield lambda line: click.echo(write_line(line))
    elif not sys.stdout.isatty():
        yield lambda line: show(*status_blocks(line), "")
    else:
        from rich.console import Console, Group
        from rich.live import Live

        console = Console(highlight=False, emoji=False, markup=False)
        with Live(console=console, auto_refresh=False) as live:
            yield lambda line: live.update(Group(*map(printed, status_blocks(line))), refresh=True)
