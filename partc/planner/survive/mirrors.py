"""Mirrored rows: a device keeps a copy of another one's caches, so that nothing of them is computed again after a loss.

The copy lies where the plan for that loss will want it. Every token sends the new rows over a link that carries the
values of steps, too; that is done where the link has the time, and the holder the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partc.config.units import format_bytes
from partc.errors import PlanError
from partc.format.placement import Stages
from partc.format.plan import Loss, Mirror
from partc.planner.model.evaluate import evaluate
from partc.planner.model.objective_values import seconds_per_token
from partc.planner.model.problem import Problem
from partc.planner.model.stages import devices_of

SPARE = 0.5
"""The part of a link's idle time that rows may take, so that a step seldom waits for them."""


@dataclass(frozen=True)
class Rows:
    """The caches of one sub-module."""

    token_bytes: float
    """Bytes that a token adds, of all sequences of a step."""
    all_bytes: float
    """Bytes of all of them, of all requests in flight."""
    begins_again: bool = False
    """Whether requests begin again without them, copies or not: where a step rewrites some of them as a whole, so that
    a copy would be that of one step alone, or where the first step makes what later ones read beside them."""


def choose_mirrors(
    problem: Problem,
    stages: Stages,
    losses: Sequence[Loss],
    rows: Sequence[Rows],
    mode: str,
    where: str | None = None,
) -> tuple[Mirror, ...]:
    """The mirrors of a plan, one for each lost device and each that would take a part of it.

    Args:
        problem: of all devices.
        stages: the plan.
        losses: what follows each loss.
        rows: by sub-module.
        mode: `auto` leaves out what a link or a device has no room for; `on`, `off`.
        where: the file that errors name.

    Raises:
        PlanError: `on`, and a device has no memory for it, or no link.
    """
    if mode == "off":
        return ()
    evaluation = evaluate(problem, stages)
    assert evaluation.value is not None
    token_s = seconds_per_token(problem, evaluation.value)
    idle_s = {name: token_s - busy for name, busy in evaluation.busy_s}
    room = evaluation.free_bytes(problem)
    chosen = []
    for mirror in _wanted(problem, stages, losses, rows):
        link = f"{mirror.device}->{mirror.holder}"
        spare_s = SPARE * idle_s.get(link, token_s)
        if mode == "on" and (lack := _lack(mirror, room[mirror.holder])):
            raise PlanError(f"`mirror: on`: {lack}", where=where, hint="write `mirror: auto`")
        if _lack(mirror, room[mirror.holder]) or (mode == "auto" and (mirror.seconds or 0.0) > spare_s):
            continue
        room[mirror.holder] -= mirror.memory_bytes
        idle_s[link] = idle_s.get(link, token_s) - (mirror.seconds or 0.0)
        chosen.append(mirror)
    return tuple(chosen)


def _wanted(
    problem: Problem, stages: Stages, losses: Sequence[Loss], rows: Sequence[Rows]
) -> Iterator[Mirror]:
    """Each part of a device that another one would take, with what keeping its rows there costs.

    Where requests begin again after the loss of a device in any case, rows would be of no use.
    """
    owners = devices_of(stages)
    begin_again = {owners[j] for j, cache in enumerate(rows) if cache.begins_again}
    for loss in losses:
        if loss.device in begin_again:
            continue
        parts: dict[str, list[int]] = {}
        for j, holder in enumerate(loss.assignment or ()):
            if owners[j] == loss.device and rows[j].all_bytes:
                parts.setdefault(holder, []).append(j)
        for holder, indices in parts.items():
            count = sum(rows[j].token_bytes for j in indices)
            link = problem.link_of.get((loss.device, holder))
            size = sum(rows[j].all_bytes for j in indices)
            yield Mirror(
                device=loss.device,
                holder=holder,
                submodules=tuple(indices),
                token_bytes=count,
                seconds=None if link is None else count / link.bandwidth_bytes_per_s,
                memory_bytes=size,
                text=f"{holder} keeps the caches of {loss.device} up to date: {format_bytes(count)} a token, "
                f"{format_bytes(size)} of memory",
            )


def _lack(mirror: Mirror, room: float) -> str | None:
    """The reason why a mirror cannot be, whatever the time of the link; None: it can be."""
    if mirror.seconds is None:
        return f"there is no link from {mirror.device} to {mirror.holder} for its rows"
    if mirror.memory_bytes > room:
        need, have = format_bytes(mirror.memory_bytes), format_bytes(max(0.0, room))
        return f"the rows of {mirror.device} take {need} on {mirror.holder}, which has {have} left"
    return None
