"""Stages: who has which sub-modules, and the values that stages send each other.

A stage is consecutive sub-modules on their devices (`partc.format.placement.Stage`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from partc.format.placement import Stages

SOURCE = 0
"""Index of the first stage, which is on the source; as a receiver it stands for the way back."""

Ends = tuple[int, int]
"""Indices of the sending stage and of the receiving stage."""

_Key = TypeVar("_Key", bound=Hashable)


def places_of(stages: Stages) -> list[int]:
    """The index of the stage of every sub-module."""
    return [place for place, stage in enumerate(stages) for _ in stage.indices]


def devices_of(stages: Stages) -> list[str]:
    """The device of every sub-module."""
    return [stage.device for stage in stages for _ in stage.indices]


def held(stages: Stages) -> dict[str, list[int]]:
    """Device → its sub-modules, in the order of its first stage."""
    found: dict[str, list[int]] = {}
    for stage in stages:
        found.setdefault(stage.device, []).extend(stage.indices)
    return found


def devices_in(phases: Mapping[str, Stages]) -> list[str]:
    """The devices that any phase uses, in the order of their first stages."""
    return list(dict.fromkeys(name for some in phases.values() for stage in some for name in stage.devices))


def returns_of(stages: Stages) -> int:
    """How often a plan returns to a device that it has left."""
    return len(stages) - len({stage.device for stage in stages})


def route(stages: Stages, uses: Iterable[tuple[_Key, int, int]]) -> dict[Ends, list[_Key]]:
    """The values of each message: (sending stage, receiving stage) → values, in the order of `uses`.

    A value goes once to each device that reads it: to its first stage that does. Later stages of that device keep
    it, and stages of the device that made it have it: neither needs a message. O(uses).

    Args:
        stages: of one device each.
        uses: (value, sub-module that makes it, sub-module that reads it).
    """
    place, device = places_of(stages), [stage.device for stage in stages]
    first: dict[tuple[_Key, str], Ends] = {}
    for value, maker, reader in uses:
        sender, receiver = place[maker], place[reader]
        if device[sender] != device[receiver]:
            ends = first.setdefault((value, device[receiver]), (sender, receiver))
            if receiver < ends[1]:
                first[value, device[receiver]] = sender, receiver
    messages: dict[Ends, list[_Key]] = {}
    for (value, _), ends in first.items():
        messages.setdefault(ends, []).append(value)
    return messages
