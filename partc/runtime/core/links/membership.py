"""Whether the ring stands, as one device sees it.

| state | meaning |
| --- | --- |
| loading | the engine has not loaded all sub-modules |
| joining | a link of this device has never stood, or at the source: a device has never been ready |
| complete | all links stand; at the source: all devices are ready as well |
| degraded | it was complete, and a link broke or a device left |

| event | loading | joining, degraded | complete |
| --- | --- | --- | --- |
| loaded | joining, then as below | | |
| all links stand | | complete (the source: once all are ready) | |
| a device is ready (the source) | noted | complete, if it was the last | noted |
| a link breaks, a device is unready | noted | noted | degraded |

A device that gets complete tells the source by `ready`, and whoever started it, the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from partc.format.messages import Ready
from partc.format.role import Role
from partc.runtime.core.actions import Action
from partc.runtime.core.commands import Announce, Send
from partc.runtime.core.events import Origin


class State(Enum):
    """State of the ring, as one device sees it."""

    LOADING = "loading"
    JOINING = "joining"
    COMPLETE = "complete"
    DEGRADED = "degraded"


@dataclass(slots=True)
class Membership:
    """The ring as one device sees it."""

    role: Role
    incarnation: int
    state: State = State.LOADING
    joined: dict[str, Origin] = field(default_factory=dict)
    """Devices that are ready → where messages to them go; at the source."""
    _announced: bool = False

    @property
    def was_complete(self) -> bool:
        """Whether the ring ever stood."""
        return self._announced

    def loaded(self) -> None:
        """The engine has loaded all sub-modules."""
        self.state = State.JOINING

    def ready(self, device: str, origin: Origin) -> None:
        """A device is ready, with all its links."""
        self.joined[device] = origin

    def left(self, device: str, origin: Origin) -> None:
        """A connection to or from a device is closed, or the device is not ready any more.

        The source forgets a device when the connection is the one by which it was ready; a link to it that breaks can
        come back alone, and then no second `ready` follows.
        """
        if self.joined.get(device) == origin:
            del self.joined[device]
        if self.state is State.COMPLETE:
            self.state = State.DEGRADED

    def adopt(self, role: Role, joined: Mapping[str, Origin]) -> None:
        """Another placement is in force, and these devices are ready for it."""
        self.role, self.joined = role, dict(joined)

    def absent(self, missing: Iterable[str]) -> list[str]:
        """Devices that are not in the ring yet, where no link stands to those `missing`; at the source."""
        loaded = () if self.state is State.LOADING else (self.role.device,)
        outside = [name for name in self.role.ring if name not in self.joined and name not in loaded]
        return list(dict.fromkeys([*outside, *missing]))

    def look(self, missing: list[str], next_request: int) -> Iterator[Action]:
        """Find out whether the ring stands now, and tell of it."""
        if self.state is State.LOADING:
            return
        role = self.role
        if self.absent(missing) if role.is_source else missing:
            return
        self.state = State.COMPLETE
        if not role.is_source:
            yield Send(
                role.source,
                Ready(
                    next_request=next_request,
                    placement=role.placement_digest,
                    epoch=role.epoch,
                    incarnation=self.incarnation,
                ),
            )
        if not self._announced:
            self._announced = True
            yield Announce()
