"""Those who watch a ring, at its source: the rounds of questions to its devices.

| state of a round | left by |
| --- | --- |
| none | a watcher's time has come → asking |
| asking | the last answer, or 1 s → none; every watcher whose time had come gets the status |

Nobody watches most of the time; then there is no deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from partc.errors import RunError
from partc.format.messages import Watch
from partc.format.status import Vitals
from partc.runtime.core.events import Origin

_MOST = 64
_LEAST_PERIOD_S = 0.1
_ROUND_S = 1.0
"""How long the answers of a round are waited for."""


@dataclass(slots=True)
class Told:
    """A device as it last told."""

    vitals: Vitals
    answer_s: float | None
    """Seconds from the question to the answer; None: the last question has had no answer."""
    at: float


@dataclass(slots=True)
class Watcher:
    """A client that watches."""

    origin: Origin
    ticket: bytes
    period_s: float
    due: float


@dataclass(slots=True)
class Watchers:
    """All who watch a ring, at its source."""

    is_watched: bool = False
    told: dict[str, Told] = field(default_factory=dict)
    """Device → as it last told."""
    _all: dict[tuple[Origin, bytes], Watcher] = field(default_factory=dict)
    _asked_at: float | None = None
    """When the round under way began."""
    _awaited: set[str] = field(default_factory=set)
    """Devices that have not answered in it."""

    def watch(self, origin: Origin, watch: Watch, now: float) -> None:
        """A client begins to watch, or ends (period 0).

        Raises:
            RunError: too many watch already.
        """
        self._all.pop((origin, watch.ticket), None)
        if watch.period_s:
            if len(self._all) >= _MOST:
                raise RunError(f"{_MOST} clients watch already", hint="end one of them", cause="refused")
            period_s = max(_LEAST_PERIOD_S, watch.period_s)
            self.is_watched = True
            self._all[origin, watch.ticket] = Watcher(origin, watch.ticket, period_s, now)

    def left(self, origin: Origin) -> None:
        """A client went away."""
        for key in [key for key in self._all if key[0] == origin]:
            del self._all[key]

    @property
    def due(self) -> float | None:
        """When a round begins or ends; None: nobody watches."""
        if self._asked_at is not None:
            return self._asked_at + _ROUND_S
        return min((watcher.due for watcher in self._all.values()), default=None)

    def has_ended(self) -> bool:
        """Whether the last one has just gone; what was noted for them goes as well."""
        if self._all or not self.is_watched:
            return False
        self.is_watched, self._asked_at = False, None
        self.told.clear()
        return True

    def begins(self, devices: Iterable[str], now: float) -> bool:
        """Whether a round begins now; then these devices are to be asked."""
        if self._asked_at is not None or self.due is None or now < self.due:
            return False
        self._asked_at, self._awaited = now, set(devices)
        for told in self.told.values():
            told.answer_s = None
        return True

    def sensed(self, device: str, vitals: Vitals, now: float) -> None:
        """A device has answered."""
        answer_s = None if self._asked_at is None else now - self._asked_at
        self.told[device] = Told(vitals, answer_s, now)
        self._awaited.discard(device)

    def answered(self, now: float) -> Iterator[Watcher]:
        """Those who get the status now: at the end of a round, all whose time had come."""
        if self._asked_at is None or (self._awaited and now < self._asked_at + _ROUND_S):
            return
        self._asked_at = None
        for watcher in self._all.values():
            if now >= watcher.due:
                watcher.due = max(watcher.due + watcher.period_s, now)
                yield watcher
