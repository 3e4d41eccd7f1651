"""Lines about what a ring cannot do, and why (`partc/format/capabilities.py`); and about what guesses bring to it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from partc.printable import note

if TYPE_CHECKING:
    from partc.config.devices import DevicesConfig
    from partc.format.capabilities import Facts, Name
    from partc.format.status import RingStatus
    from partc.ir.graph import Module
    from partc.runtime.client.client import Client

_STATUS_S = 1.5
"""Time that a ring may take to tell of its runners; without that, nothing is said of them."""


def build_facts(build: Path) -> Facts | None:
    """The facts of a build; None where folders of devices are missing, as on a host that only asks a ring."""
    from partc.errors import BundleError
    from partc.format.capabilities import facts_of
    from partc.format.role import read_roles

    try:
        return facts_of(read_roles(build))
    except BundleError:
        return None


def planned_lines(module: Module, devices: DevicesConfig) -> list[str]:
    """Lines about what guesses bring to the ring of a plan, and about the capabilities that it does not have."""
    from partc.format.capabilities import missing
    from partc.planner.explain.cannot import planned_facts

    facts = planned_facts(module, devices)
    return [*_drafts_lines(module), *(f"- {one.sentence}" for one in missing(facts))]


def _drafts_lines(module: Module) -> list[str]:
    """Lines about the gain of guessed tokens, and the plans for more of them; none where they bring none."""
    from partc.planner.explain.drafted import drafted_text

    plan = module.plan
    if plan is None or plan.predicted is None:
        return []
    gain = drafted_text(plan.predicted)
    return [gain, *(each["text"] for each in plan.answer.explain.get("drafts", []))] if gain else []


def watched_lines(facts: Facts | None, status: RingStatus) -> list[str]:
    """Lines about the capabilities that a ring which is watched does not have."""
    from partc.format.capabilities import missing, of_ring

    return [] if facts is None else [f"- {one.sentence}" for one in missing(of_ring(facts, status))]


def note_missing(client: Client, build: Path, wanted: Collection[Name]) -> None:
    """Notes on stderr about the capabilities among `wanted` that the ring of a client does not have."""
    from partc.format.capabilities import missing, of_ring

    facts = build_facts(build)
    if facts is None:
        return
    if "shared-steps" in wanted and (status := _status(client)) is not None:
        facts = of_ring(facts, status)
    for one in missing(facts):
        if one.name in wanted:
            note(one.sentence)


def _status(client: Client) -> RingStatus | None:
    import time

    came: list[RingStatus] = []
    ticket = client.watch(_STATUS_S, came.append)
    end = time.monotonic() + _STATUS_S
    while not came and time.monotonic() < end:
        client.listen(end - time.monotonic())
    client.unwatch(ticket)
    return came[0] if came else None
