"""The states of the rings as server-sent events, for the page; the rings are watched while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec

from partc.format.status import DeviceStatus, RingStatus
from partc.serve.replies import Json, event
from partc.serve.rings import Rings

PlannedOf = Callable[[RingStatus], Mapping[str, float]]
"""Seconds of computing in a step that the plan says, by device."""
MOST_WATCHERS = 32
_TELL_S = 5.0
"""The states are told at least so often, also while no ring says anything."""


@dataclass(eq=False)
class Live:
    """Everybody who looks at the rings. Used in the event loop alone."""

    rings: Rings
    planned: Callable[[str, RingStatus], Mapping[str, float]]
    """That of the ring of a name, as `PlannedOf`."""
    may_move: bool = False
    """Whether clients may move sub-modules."""
    statuses: dict[str, RingStatus] = field(default_factory=dict)
    """Ring → how it was last, while somebody looks."""
    _watchers: set[asyncio.Event] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether nobody more may look."""
        return len(self._watchers) >= MOST_WATCHERS

    def wake(self) -> None:
        """Tell everybody what has changed."""
        for watcher in self._watchers:
            watcher.set()

    async def lines(self) -> AsyncGenerator[str, None]:
        """What `looks` sees, as server-sent events."""
        async with aclosing(self.looks()) as looks:
            async for rings in looks:
                yield event({"rings": rings, "may_move": self.may_move})

    async def looks(self) -> AsyncGenerator[list[Json], None]:
        """`[{name, state, ring}]` now, and at each change from now on; who is slow misses some."""
        changed = asyncio.Event()
        if not self._watchers:
            self.rings.watch(self._on_status)
        self._watchers.add(changed)
        try:
            while True:
                yield self._rings()
                changed.clear()
                try:
                    async with asyncio.timeout(_TELL_S):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            self._watchers.discard(changed)
            if not self._watchers:
                self.statuses.clear()
                self.rings.watch(None)

    def _rings(self) -> list[Json]:
        states = self.rings.states
        return [{"name": name, "state": state, "ring": self._told(name)} for name, state in states.items()]

    def _on_status(self, name: str, ring: RingStatus) -> None:
        self.statuses[name] = ring
        self.wake()

    def _told(self, name: str) -> Json | None:
        ring = self.statuses.get(name)
        if ring is None:
            return None
        planned = self.planned(name, ring)
        told: Json = msgspec.to_builtins(ring)
        for entry, device in zip(told["devices"], ring.devices, strict=True):
            entry["seconds"] = _seconds(device, ring.phase)
            entry["planned"] = planned.get(device.device)
        return told


def _seconds(device: DeviceStatus, phase: str) -> float | None:
    """Seconds that a device computes in a step; None: nothing has been measured."""
    works: Any = () if device.vitals is None else device.vitals.work
    found = [work.seconds for work in works if work.phase == phase]
    return sum(found) if found else None
