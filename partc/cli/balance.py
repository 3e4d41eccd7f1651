"""The balancer of a command: moves are lines on stderr."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partc.config.units import format_seconds
from partc.errors import PartcError

if TYPE_CHECKING:
    from partc.balance.balancing import Tell
    from partc.balance.order import Order
    from partc.format.messages import Placed
    from partc.runtime.client.client import Client


def print_move(order: Order, outcome: Placed | PartcError) -> None:
    """A line about a move."""
    from partc.balance.balancing import note_refusal

    if isinstance(outcome, PartcError):
        note_refusal(order, outcome)
        return
    took, stopped = format_seconds(outcome.seconds), format_seconds(outcome.stopped_s)
    click.echo(f"moved {order.text}; it took {took}, requests stood still for {stopped}", err=True)


def balanced(
    client: Client, build: Path, tell: Tell = print_move, *, goes_on: bool = False
) -> AbstractContextManager[None]:
    """Balance the ring of a build while somebody waits for requests; where nothing can move, nothing is watched.

    `goes_on`: whether requests come that nobody knows of yet.
    """
    from partc.balance.balancing import read_balancing

    balancing = read_balancing(build, tell, goes_on=goes_on)
    return nullcontext() if balancing is None else balancing.beside(client)
