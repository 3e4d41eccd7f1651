"""The steps of a request by the clocks of its devices: when each computed, and what every message took.

A device records for each step when its first message came (on the source: when the step began), how long it
computed, queued and waited. With one clock for all runners the rest follows: a stage ends after its start,
its queueing, its waiting and its computing; a message took from the end of its sender to its arrival.

Only steps under the placement as it was compiled count: after a move, or a loss, devices do other work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from partc.format.dtypes import Array
from partc.format.plan import Message, Timeline
from partc.runs.records import WAIT, RequestRecord
from partc.runtime.client.results import Timings

_WHOLE = 0.9
"""A step begins no sooner than the one before takes its source, but for rounding; one that takes a guess does."""


@dataclass(frozen=True)
class Work:
    """The work of a device in one step of a request, on the common clock."""

    device: str
    step: int
    arrived_s: float
    """When its first message came; on the source, when the step began."""
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Steps:
    """The steps of one request on devices of one stage each."""

    request: RequestRecord
    source: str

    @cached_property
    def timings(self) -> Mapping[str, Timings]:
        """Device → its times, under the placement as compiled."""
        return {name: _as_compiled(table) for name, table in self.request.timings.items()}

    @property
    def moved(self) -> int:
        """The number of its steps under another placement."""
        source = self.request.timings.get(self.source)
        return 0 if source is None else len(source.table) - len(self.timings[self.source].table)

    @cached_property
    def lasted(self) -> dict[int, float]:
        """Step → seconds on the source's clock: until the next begins; of the last one, until its token is there."""
        timings = self.timings.get(self.source)
        if timings is None:
            return {}
        own = timings.column("compute_s") + timings.column("queue_s") + waits(timings)
        return _by_step(timings, np.append(np.diff(timings.column("started_s")), own[-1:]))

    @cached_property
    def guessed(self) -> frozenset[int]:
        """Steps that began with a guess, and those before them: they were under way together."""
        timings = self.timings.get(self.source)
        if timings is None:
            return frozenset()
        own = (timings.column("compute_s") + timings.column("queue_s") + waits(timings))[:-1]
        numbers = timings.column("step").astype(int)
        early = np.diff(timings.column("started_s")) < _WHOLE * own
        return frozenset(int(number) for each in (numbers[:-1], numbers[1:]) for number in each[early])

    def is_whole(self, step: int, ring: Iterable[str]) -> bool:
        """Whether a step had the request for itself, and every device of the ring told of it.

        One that was lost has forgotten what it did before.
        """
        return step not in self.guessed and all(step in self.computed_s.get(device, {}) for device in ring)

    def overlaps(self, other: Steps) -> bool:
        """Whether both requests were under way at once."""
        if self is other or not self.lasted or not other.lasted:
            return False
        (began, ended), (other_began, other_ended) = self._span, other._span
        return began < other_ended and other_began < ended

    @cached_property
    def works(self) -> Mapping[int, Mapping[str, Work]]:
        """Step → device → its work there."""
        steps: dict[int, dict[str, Work]] = {}
        for device, timings in self.timings.items():
            for work in self._works_of(device, timings):
                steps.setdefault(work.step, {})[device] = work
        return steps

    @cached_property
    def computed_s(self) -> Mapping[str, Mapping[int, float]]:
        """Device → step → seconds of computing."""
        return {name: _by_step(table, table.column("compute_s")) for name, table in self.timings.items()}

    @cached_property
    def between_s(self) -> Mapping[int, float]:
        """Step → seconds in which no device computed, or would have but for another request."""
        busy = [
            _by_step(table, table.column("compute_s") + table.column("queue_s"))
            for table in self.timings.values()
        ]
        return {
            step: max(0.0, lasted - sum(one.get(step, 0.0) for one in busy))
            for step, lasted in self.lasted.items()
        }

    @cached_property
    def own_s(self) -> Mapping[str, Mapping[int, float]]:
        """Device → step → seconds that its runner took for itself, on its own clock; of all steps but the last.

        From the arrival of a step to the end of its computing there, without computing, queueing and waiting.
        """
        return {name: self._own_of(name, table) for name, table in self.timings.items()}

    def own_of(self, device: str, step: int) -> float | None:
        """`own_s` of one device and step; None for the last step, and for a device that took no part."""
        return self.own_s.get(device, {}).get(step)

    def arrival(self, phase: Timeline, message: Message, step: int) -> float | None:
        """When a message came, on the common clock; None: the record does not tell.

        Of several messages to one stage the first is there when the stage's step begins, the last when it can
        compute.
        """
        works = self.works[step]
        if message.is_return:
            lasted = self.lasted.get(step)
            return None if lasted is None else works[self.source].arrived_s + lasted
        incoming = [
            item for item in phase.messages if item.receiver == message.receiver and not item.is_return
        ]
        incoming.sort(key=lambda item: item.arrive_s)
        work = works[message.receiver]
        if message is incoming[0]:
            return work.arrived_s
        return work.start_s if message is incoming[-1] else None

    def took(self, phase: Timeline, message: Message, step: int) -> float | None:
        """Seconds from the end of a message's sender to its arrival; None: the record does not tell."""
        works = self.works.get(step, {})
        if not {message.sender, message.receiver} <= set(works):
            return None
        arrived = self.arrival(phase, message, step)
        return None if arrived is None else max(0.0, arrived - works[message.sender].end_s)

    @property
    def _span(self) -> tuple[float, float]:
        """When it began and ended, on the source's clock."""
        started = self.timings[self.source].column("started_s")
        return float(started[0]), float(started[-1] + list(self.lasted.values())[-1])

    def _own_of(self, device: str, timings: Timings) -> dict[int, float]:
        """Step → seconds that are left from step to step; the source waits within a step, the others before one."""
        waited = waits(timings)
        elsewhere = waited[:-1] if device == self.source else waited[1:]
        busy = (timings.column("compute_s") + timings.column("queue_s"))[:-1]
        left = np.maximum(np.diff(timings.column("started_s")) - busy - elsewhere, 0.0)
        follows = np.diff(timings.column("step")) == 1
        return {
            step: own
            for (step, own), one in zip(_by_step(timings, left).items(), follows, strict=True)
            if one
        }

    def _works_of(self, device: str, timings: Timings) -> Iterator[Work]:
        """Waiting before the first message of a step came is no part of the step here."""
        waited_s = waits(timings) if device != self.source else np.zeros(len(timings.table))
        free: float | None = None
        columns = [timings.column(name) for name in ("step", "started_s", "queue_s", "compute_s")]
        for step, started, queued, computed, waited in zip(*columns, waited_s, strict=True):
            # The very first step is waited for from its first message on; what came before that of others is not told
            # where a device has forgotten its steps.
            unknown = waited if step else 0.0
            before = unknown if free is None else max(0.0, started - free)
            start = started + queued + max(0.0, waited - before)
            free = start + computed
            yield Work(device, int(step), float(started), float(start), float(start + computed))


def waits(timings: Timings) -> Array:
    """(steps,) seconds of waiting for any message."""
    columns = [timings.column(name) for name in timings.columns if name.startswith(WAIT)]
    return np.sum(columns, axis=0) if columns else np.zeros(len(timings.table))


def _as_compiled(timings: Timings) -> Timings:
    return Timings(timings.columns, timings.table[timings.column("epoch") == 0])


def _by_step(timings: Timings, values: Array) -> dict[int, float]:
    """Step → value, of as many steps as there are values."""
    return dict(zip(map(int, timings.column("step")), map(float, values), strict=False))
