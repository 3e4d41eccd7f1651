"""The state of the ring as server-sent events, for the page; the ring is watched while somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from partc.format.status import DeviceStatus, RingStatus
from partc.serve.replies import Json, event
from partc.serve.ring import RingThread, State

PlannedOf = Callable[[RingStatus], Mapping[str, float]]
"""Seconds of computing in a step that the plan says, by device."""
MOST_WATCHERS = 32
_TELL_S = 5.0
"""The state of the server is told at least so often, also while the ring says nothing."""


@dataclass(eq=False)
class Live:
    """Everybody who looks at the ring. Used in the event loop alone."""

    ring: RingThread
    planned: PlannedOf
    state: State = "starting"
    _last: Json | None = None
    _watchers: set[asyncio.Event] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether nobody more may look."""
        return len(self._watchers) >= MOST_WATCHERS

    def tell(self, state: State) -> None:
        """Note a state of the server."""
        self.state = state
        self._wake()

    async def lines(self) -> AsyncGenerator[str, None]:
        """An event now, and one for each state from now on; who is slow misses some."""
        changed = asyncio.Event()
        if not self._watchers:
            self.ring.watch(self._on_status)
        self._watchers.add(changed)
        try:
            while True:
                yield event({"state": self.state, "ring": self._last})
                changed.clear()
                try:
                    async with asyncio.timeout(_TELL_S):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            self._watchers.discard(changed)
            if not self._watchers:
                self._last = None
                self.ring.watch(None)

    def _on_status(self, ring: RingStatus) -> None:
        planned = self.planned(ring)
        told = msgspec.to_builtins(ring)
        for entry, device in zip(told["devices"], ring.devices, strict=True):
            entry["seconds"] = _seconds(device, ring.phase)
            entry["planned"] = planned.get(device.device)
        self._last = told
        self._wake()

    def _wake(self) -> None:
        for watcher in self._watchers:
            watcher.set()


def _seconds(device: DeviceStatus, phase: str) -> float | None:
    """Seconds that a device computes in a step; None: nothing has been measured."""
    works: Any = () if device.vitals is None else device.vitals.work
    found = [work.seconds for work in works if work.phase == phase]
    return sum(found) if found else None
