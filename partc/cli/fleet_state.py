"""The tables of `partc fleet status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from partc.cli.tables import show, table

Json = Mapping[str, Any]


def print_state(state: Json) -> None:
    """The door, the devices of all rings, the nodes."""
    show(*_door(state["door"]), _devices(state), _nodes(state))


def _door(door: Json | None) -> Iterator[str]:
    if door is None:
        yield "There is no door: partc fleet up FILE opens one"
    elif door["error"]:
        yield f"The door has ended: {door['error']}"
    else:
        states = ", ".join(f"{ring['name']} {ring['state']}" for ring in door["rings"])
        yield f"API {door['url']}/v1, {door['in_flight']} requests in flight; rings: {states}"


def _devices(state: Json) -> Table:
    """A line for each device that has a keeper or that a ring tells of."""
    known: dict[tuple[str, str], list[str]] = {}
    for ring in (state["door"] or {"rings": []})["rings"]:
        for device in (ring["ring"] or {"devices": []})["devices"]:
            present = "present" if device["is_present"] else "away"
            known[ring["name"], device["device"]] = [present, "none", "", ""]
    for keeper in state["keepers"]:
        row = known.setdefault((keeper["ring"], keeper["device"]), ["", "", "", ""])
        row[1] = "away" if keeper["away"] else f"runner {keeper['pid']}"
        row[2:] = [str(keeper["deaths"]), keeper["last"] or ""]
    rows = [[ring, device, *row] for (ring, device), row in sorted(known.items())]
    return table(
        "Devices", ["ring", "device", "in its ring", "keeper", "deaths", "last words"], rows, right=["deaths"]
    )


def _nodes(state: Json) -> Table:
    rows = [
        [node["address"], "alive" if node["alive"] else "lost", ", ".join(node["resources"])]
        for node in state["nodes"]
    ]
    return table("Nodes", ["address", "state", "resources"], rows)
