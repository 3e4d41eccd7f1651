"""The states of the rings: as server-sent events for the page, and as they were last for metrics and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from partc.format.readings import LimitName
from partc.format.status import RingStatus
from partc.serve.replies import Json, event
from partc.serve.ring_log import RingLog
from partc.serve.ring_metrics import KnownRing
from partc.serve.rings import Rings

PlannedOf = Callable[[RingStatus], Mapping[str, float]]
"""Seconds of computing in a step that the plan says, by device."""
LOOK_S = 1.0
"""Time between two states of a ring, while somebody looks."""
KEPT_S = 5.0
"""The same while nobody does, for metrics and the log."""
_SPARED = frozenset[LimitName](("battery", "temperature"))
"""Limits of devices.yaml behind which no tokens are guessed."""
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
    log: RingLog = field(default_factory=RingLog)
    """The log of the rings."""
    _known: dict[str, tuple[float, RingStatus]] = field(default_factory=dict)
    """Ring → when it was last told how it is, and how."""
    _watchers: set[asyncio.Event] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether nobody more may look."""
        return len(self._watchers) >= MOST_WATCHERS

    def begin(self) -> None:
        """Watch the rings, slowly, for as long as nobody looks."""
        self.rings.watch(self._on_status, KEPT_S)

    def known(self) -> dict[str, KnownRing]:
        """The rings that stand, as they were told last."""
        now, states = time.monotonic(), self.rings.states
        return {
            name: KnownRing(ring, self.planned(name, ring), now - at)
            for name, (at, ring) in self._known.items()
            if states.get(name) == "ready"
        }

    @property
    def spares_work(self) -> bool:
        """Whether a device has reached a limit of its battery or temperature: wrong guesses cost both."""
        devices = (device for _, ring in self._known.values() for device in ring.devices)
        return any(
            device.vitals is not None and not _SPARED.isdisjoint(device.vitals.reached) for device in devices
        )

    def forget(self, name: str) -> None:
        """A ring does not stand: what it told holds no longer."""
        self._known.pop(name, None)

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
            self.rings.watch(self._on_status, LOOK_S)
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
                self.begin()

    def _rings(self) -> list[Json]:
        states = self.rings.states
        return [{"name": name, "state": state, "ring": self._told(name)} for name, state in states.items()]

    def _on_status(self, name: str, ring: RingStatus) -> None:
        self._known[name] = time.monotonic(), ring
        self.log.told(name, ring)
        if self._watchers:
            self.statuses[name] = ring
            self.wake()

    def _told(self, name: str) -> Json | None:
        ring = self.statuses.get(name)
        if ring is None:
            return None
        planned = self.planned(name, ring)
        told: Json = msgspec.to_builtins(ring)
        for entry, device in zip(told["devices"], ring.devices, strict=True):
            entry["seconds"] = device.step_s(ring.phase)
            entry["planned"] = planned.get(device.device)
        return told
