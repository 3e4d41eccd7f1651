"""The devices that are connected to the source: their lives, and whether they know the placement in force.

A device that comes back in another life, or with another epoch, has forgotten the rows that it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from partc.format.role import Role


@dataclass(slots=True)
class Member:
    """A device that is connected."""

    incarnation: int
    epoch: int
    """Epoch of the placement that it runs."""
    placement: bytes
    """Id of that placement."""


@dataclass(slots=True)
class Members:
    """All devices that are connected."""

    role: Role
    """The role of the source in the placement in force."""
    _members: dict[str, Member] = field(default_factory=dict)
    _lives: dict[str, int] = field(default_factory=dict)
    """Device of the ring → its incarnation when the placement came into force."""
    _suspects: set[str] = field(default_factory=set)
    """Devices that are connected and do not answer."""
    _losses: dict[str, int | None] = field(default_factory=dict)
    """Device that was lost since → the incarnation in which it is back, if it is: nothing is told of a loss twice."""

    # -- what happens

    def came(self, device: str, member: Member) -> None:
        """A device is connected, or the source itself has loaded."""
        self._members[device] = member
        self._suspects.discard(device)

    def gone(self, device: str) -> None:
        """The connection of a device is closed."""
        self._members.pop(device, None)
        self._suspects.discard(device)

    def suspect(self, silent: Iterable[str]) -> None:
        """These devices do not answer."""
        self._suspects.update(silent)

    def answered(self, device: str) -> bool:
        """A device gives a sign of life; whether it was missed."""
        was_missed = device in self._suspects
        self._suspects.discard(device)
        return was_missed

    def stand(self) -> None:
        """All devices of the ring are there, and know the placement in force."""
        self._lives = {name: self._members[name].incarnation for name in self.role.ring}
        self._losses = {}

    def adopt(self, role: Role, asked: Mapping[str, int]) -> None:
        """Another placement is in force, for these devices in these incarnations."""
        self.role = role
        self._lives = {name: asked[name] for name in role.ring}
        self._losses = {}
        for name, incarnation in asked.items():
            self._members[name] = Member(incarnation, role.epoch, role.placement_digest)

    # -- what follows

    @property
    def connected(self) -> set[str]:
        """The devices that are connected."""
        return set(self._members)

    @property
    def present(self) -> set[str]:
        """The devices that are connected, and answer."""
        return self._members.keys() - self._suspects

    @property
    def any_suspect(self) -> bool:
        """Whether a device does not answer."""
        return bool(self._suspects)

    @property
    def ever_stood(self) -> bool:
        """Whether the ring has ever stood."""
        return bool(self._lives)

    def life(self, device: str) -> int:
        """The incarnation of a device that is connected."""
        return self._members[device].incarnation

    def is_there(self, device: str, incarnation: int) -> bool:
        """Whether a device is present in a certain life."""
        return device in self.present and self.life(device) == incarnation

    def remembers(self, device: str, incarnation: int) -> bool:
        """Whether a device that connects is in the ring, and has been since the placement came into force."""
        return self._lives.get(device) == incarnation

    def runs_it(self, device: str) -> bool:
        """Whether a device runs the placement in force; a former life of the source may have given out its epoch."""
        member = self._members[device]
        return (member.epoch, member.placement.hex()) == (self.role.epoch, self.role.placement_id)

    def has_forgotten(self, device: str) -> bool:
        """Whether a device that is present does not know the placement in force, or lost what it had in it."""
        life = self.life(device)
        return not self.runs_it(device) or life != self._lives.get(device, life)

    def missing(self) -> list[str]:
        """The devices of the ring that are not present."""
        return [name for name in self.role.ring if name not in self.present]

    def forgetful(self) -> list[str]:
        """The devices of the ring that are present and have forgotten what they had."""
        return [name for name in self.role.ring if name in self.present and self.has_forgotten(name)]

    def newly_lost(self, missing: Sequence[str], forgetful: Sequence[str]) -> list[str]:
        """Those that were not lost before, or were back since.

        A device that runs another placement in its old life was never away: this source may have begun anew.
        """
        lives: dict[str, int | None] = dict.fromkeys(missing)
        lives |= {name: self.life(name) for name in forgetful}
        before, self._losses = self._losses, self._losses | lives
        return [
            name
            for name, life in lives.items()
            if before.get(name, -1) not in (None, life)
            and (life is None or life != self._lives.get(name, life))
        ]
