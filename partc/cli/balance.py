"""The balancer of `partc run`: it watches the ring while that generates, and moves sub-modules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.config.units import format_seconds
from partc.errors import PartcError, UserError
from partc.printable import note

if TYPE_CHECKING:
    from partc.balance.ring import Order, RingBalancer
    from partc.format.messages import Placed
    from partc.format.status import RingStatus
    from partc.runtime.client.client import Client

LOOK_S = 0.5
"""Time between two states of the ring."""

Tell = Callable[["Order", "Placed | PartcError"], None]
"""Called with every move that was asked for, and its end."""


def print_move(order: Order, outcome: Placed | PartcError) -> None:
    """A line about a move."""
    if isinstance(outcome, PartcError):
        note(f"not moved: {order.text}: {outcome.message}")
        return
    took, stopped = format_seconds(outcome.seconds), format_seconds(outcome.stopped_s)
    click.echo(f"moved {order.text}; it took {took}, requests stood still for {stopped}", err=True)


@contextmanager
def balanced(client: Client, build: Path, tell: Tell = print_move) -> Iterator[None]:
    """Balance the ring of a build while somebody waits for requests; where nothing can move, nothing is watched."""
    balancer = _balancer(build)
    if balancer is None:
        yield
        return
    ticket = client.watch(LOOK_S, partial(_look, client, balancer, warned(tell, build)))
    try:
        yield
    finally:
        client.unwatch(ticket)


def warned(tell: Tell, build: Path) -> Tell:
    """`tell`, and after the first move of a build that the user placed a note that `place` does not hold for moves."""
    from partc.plan.file import PLAN_FILE, read_plan
    from partc.plan.placement import METHOD

    if read_plan(build / PLAN_FILE)["answer"].get("method") != METHOD:
        return tell
    notes = iter(["`place` in devices.yaml says where a ring begins; --no-balance keeps it there"])

    def told(order: Order, outcome: Placed | PartcError) -> None:
        tell(order, outcome)
        if not isinstance(outcome, PartcError) and (text := next(notes, None)):
            note(text)

    return told


def _balancer(build: Path) -> RingBalancer | None:
    """None where no piece lies on two disks, devices share blocks, or the build has no plan.

    A damaged plan is no reason not to run.
    """
    from partc.balance.artifacts import read_artifacts
    from partc.balance.ring import RingBalancer
    from partc.plan.file import PLAN_FILE, has_groups, read_plan

    if not (build / PLAN_FILE).exists():
        return None
    try:
        if has_groups(read_plan(build / PLAN_FILE)):
            return None
        artifacts = read_artifacts(build)
    except UserError as error:
        note(f"nothing is balanced: {error}")
        return None
    return RingBalancer(artifacts) if any(len(piece.holders) > 1 for piece in artifacts.pieces) else None


def _look(client: Client, balancer: RingBalancer, tell: Tell, ring: RingStatus) -> None:
    order = balancer.on_status(ring, time.monotonic())
    if order is not None:
        client.place(order.placement, partial(_answered, balancer, tell, order), reason=order.text)


def _answered(balancer: RingBalancer, tell: Tell, order: Order, outcome: Placed | PartcError) -> None:
    now = time.monotonic()
    if isinstance(outcome, PartcError):
        balancer.refused(outcome.message, now)
    else:
        balancer.placed(outcome.seconds, now)
    tell(order, outcome)
