"""The status of a ring, at its source, for those who watch."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from partc.errors import RunError
from partc.format.fields import LONGEST_CAUSE
from partc.format.message_parts import Problem
from partc.format.messages import Error, Sense, Sensed, Status, Watch
from partc.format.role import Role
from partc.format.status import KEPT_CHANGES, Change, DeviceStatus, RingStatus
from partc.runtime.core.actions import Action, Adopt, Broadcast, Replaced, Tell
from partc.runtime.core.commands import Send
from partc.runtime.core.events import Origin
from partc.runtime.core.links.links import Links
from partc.runtime.core.meter import Meter
from partc.runtime.core.source.schedule import Schedule
from partc.runtime.core.source.watchers import Watchers


@dataclass(slots=True)
class RingMonitor:
    """Reports of the source to those who watch."""

    links: Links
    schedule: Schedule
    watchers: Watchers = field(default_factory=Watchers)
    _changes: deque[tuple[float, Change]] = field(default_factory=lambda: deque(maxlen=KEPT_CHANGES))
    """When each was made, on the source's clock."""
    _away: dict[str, float] = field(default_factory=dict)
    """Device that was connected → when its connection ended."""
    _losses: Counter[str] = field(default_factory=Counter)
    """Device → how often it was lost."""
    _counted: set[str] = field(default_factory=set)
    """Devices whose loss is counted, and may be told again when a placement follows."""
    _moves: int = 0
    """Changes that clients asked for."""
    _cause: str = ""
    """The cause of the change that is being prepared."""

    @property
    def due(self) -> float | None:
        """When `look` must be called."""
        return self.watchers.due

    # -- clients and devices

    def watch(self, origin: Origin, watch: Watch, now: float) -> Iterator[Action]:
        """A client begins to watch, or ends."""
        try:
            self.watchers.watch(origin, watch, now)
        except RunError as error:
            yield Send(origin, Error(ticket=watch.ticket, problem=Problem.of(error)))

    def sensed(self, device: str, sensed: Sensed, now: float) -> None:
        """A device has answered."""
        if self.watchers.is_watched:
            self.watchers.sensed(device, sensed.vitals, now)

    def greeted(self, device: str) -> None:
        """A device is connected."""
        self._away.pop(device, None)

    def gone(self, device: str, now: float) -> None:
        """The connection of a device is closed: what it told holds no longer."""
        self._away[device] = now
        self.watchers.told.pop(device, None)

    # -- changes of placement

    def broken(self, devices: Iterable[str]) -> None:
        """Devices were lost, and no placement does without them."""
        for device in set(devices) - self._counted:
            self._losses[device] += 1
            self._counted.add(device)

    def mended(self) -> None:
        """All that was lost is there again."""
        self._counted.clear()

    def replaced(self, replaced: Replaced) -> None:
        """Devices were lost, or came back without memory; a change follows."""
        self.broken(replaced.devices)
        self._counted.clear()
        if replaced.devices:
            self._cause = f"lost {', '.join(replaced.devices)}"[:LONGEST_CAUSE]
        self._cause = self._cause or "the source began anew"

    def adopt(self, adopt: Adopt, now: float) -> None:
        """A placement is in force."""
        self._moves += adopt.wish is not None
        cause = self._cause if adopt.wish is None else adopt.wish.reason or "a client asked for it"
        self._cause = ""
        change = Change(epoch=adopt.role.epoch, age_s=0.0, cause=cause, stopped_s=adopt.stopped_s)
        self._changes.append((now, change))
        if self.watchers.is_watched:
            self.schedule.deadlines.patience.pace = Meter()

    # -- rounds

    def look(self, now: float) -> Iterator[Action]:
        """Ask all devices where it is time for that, and tell those who watch once the answers are here."""
        watchers, schedule = self.watchers, self.schedule
        if not watchers.is_watched:
            return
        if watchers.has_ended():
            schedule.deadlines.patience.pace = None
            yield from self._ask(Sense(ends=True))
        elif watchers.begins({self._role.device, *self.links.devices}, now):
            schedule.deadlines.patience.pace = schedule.deadlines.patience.pace or Meter()
            yield from self._ask(Sense())
        else:
            for watcher in watchers.answered(now):
                yield Send(watcher.origin, Status(ticket=watcher.ticket, ring=self._status(now)))

    # -- inner workings

    @property
    def _role(self) -> Role:
        return self.schedule.role

    def _ask(self, sense: Sense) -> Iterator[Action]:
        yield Broadcast(sense)
        yield Tell(self._role.device, sense)

    def _status(self, now: float) -> RingStatus:
        placement, pace = self._role.placement, self.schedule.deadlines.patience.pace
        running, waiting = self.schedule.queue.running, self.schedule.queue.waiting
        return RingStatus(
            epoch=placement.epoch,
            placement=placement.placement_id,
            predicted=dict(placement.predicted),
            steps=() if pace is None else pace.steps(),
            running=len(running),
            waiting=len(waiting),
            tokens_left=sum(job.max_new_tokens - job.step for job in (*running, *waiting)),
            devices=tuple(self._device(name, now) for name in self._names()),
            changes=tuple(replace(change, age_s=now - made) for made, change in self._changes),
            moves=self._moves,
        )

    def _names(self) -> list[str]:
        """The devices of the ring in the order of a step, then the others."""
        placement = self._role.placement
        return list(dict.fromkeys([*placement.ring, *sorted(placement.addresses)]))

    def _device(self, name: str, now: float) -> DeviceStatus:
        placement, told = self._role.placement, self.watchers.told.get(name)
        stages = placement.stages.get("decode") or placement.stages["prefill"]
        return DeviceStatus(
            device=name,
            submodules=tuple(stage.submodules for stage in stages if name in stage.devices),
            is_present=name == self._role.device or name in self.links.devices,
            age_s=None if told is None else now - told.at,
            answer_s=None if told is None else told.answer_s,
            vitals=None if told is None else told.vitals,
            away_s=now - self._away[name] if name in self._away else None,
            losses=self._losses[name],
            shares=self._shares(name),
        )

    def _shares(self, name: str) -> bool:
        own = name == self._role.device and self._role.model.step_requests > 1
        return own or self.schedule.sharing.takes(name)
