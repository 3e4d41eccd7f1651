"""Who computes what: the stages of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

Share = Literal["one", "heads", "columns", "sequence"]
"""How devices share a stage: one device has all of it; attention by heads; products by columns; positions by ranges."""


class Stage(Struct, frozen=True):
    """Consecutive sub-modules, and the devices that compute them. Today every stage has one device."""

    submodules: tuple[int, int]
    """First and last, inclusive."""
    devices: tuple[str, ...]
    share: Share = "one"

    @property
    def first(self) -> int:
        """The first sub-module."""
        return self.submodules[0]

    @property
    def last(self) -> int:
        """The last sub-module."""
        return self.submodules[1]

    @property
    def indices(self) -> range:
        """All sub-modules."""
        return range(self.first, self.last + 1)

    @property
    def device(self) -> str:
        """The only device; raises ValueError where there are several."""
        (device,) = self.devices
        return device


Stages = tuple[Stage, ...]
"""In the order of a step; together they hold every sub-module once. A device may have several."""


def stages_of(assignment: Sequence[str]) -> Stages:
    """The stages of a list that names the device of every sub-module: its runs of equal names."""
    runs = (list(run) for _, run in groupby(enumerate(assignment), key=lambda item: item[1]))
    return tuple(Stage((run[0][0], run[-1][0]), (run[0][1],)) for run in runs)


def assignment_of(stages: Sequence[Stage]) -> tuple[str, ...] | None:
    """The device of every sub-module; None where a stage has several devices."""
    if any(stage.share != "one" for stage in stages):
        return None
    return tuple(stage.device for stage in stages for _ in stage.indices)
