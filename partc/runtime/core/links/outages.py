"""Outages: devices and links that are down, how long a ring waits for them, and the errors that name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partc.errors import RunError


@dataclass(slots=True)
class Wait:
    """Deadline for the end of an outage."""

    limit_s: float
    """How long, seconds."""
    since: float | None = None
    """Since when; None: nobody waits."""

    @property
    def ends(self) -> float | None:
        """When it is over; None: nobody waits."""
        return None if self.since is None else self.since + self.limit_s

    def is_over(self, now: float) -> bool:
        """Whether nobody waits any longer."""
        return self.ends is not None and now >= self.ends


@dataclass(slots=True)
class Rejoin(Wait):
    """The wait for devices that were lost and that no other placement does without."""

    devices: tuple[str, ...] = ()

    def begin(self, devices: tuple[str, ...], now: float) -> None:
        """Devices were lost; the wait for earlier ones goes on."""
        if self.since is None:
            self.since, self.devices = now, devices

    def error(self) -> RunError:
        """About devices that did not come back."""
        names = ", ".join(self.devices)
        hint = "see what its runner says, start it again, and repeat the request"
        waited = f" and did not come back within {self.limit_s:g} s" if self.limit_s else ""
        return RunError(f"{names} closed its connection{waited}", where=names, hint=hint, cause="lost-peer")


@dataclass(slots=True)
class Cut(Wait):
    """The wait for links between devices that are both there: a network that carries nothing one way may never heal."""

    links: Sequence[tuple[str, str]] = ()
    """(sender, receiver) of each."""

    def found(self, links: Sequence[tuple[str, str]], now: float) -> bool:
        """Note what is cut now; whether the wait begins."""
        begins = bool(links) and self.since is None
        self.since = now if begins else self.since if links else None
        self.links = links
        return begins

    def error(self) -> RunError:
        """About a link that does not come back."""
        return not_reached(*self.links[0], self.limit_s)


def not_reached(sender: str, receiver: str, seconds: float) -> RunError:
    """About a link between two devices that are both there."""
    message = f"{sender} has not reached {receiver} for {seconds:g} s, though both are there"
    hint = f"see that {sender} may connect to the address of {receiver} (a firewall, another network)"
    return RunError(message, where=f"{sender} -> {receiver}", hint=hint, cause="lost-peer")


def not_joined(devices: Sequence[str]) -> RunError:
    """About devices for which a complete ring waits."""
    names = ", ".join(devices)
    hint = "start its partc-runner, and see that addresses and keys are those of this build"
    return RunError(f"{names} has not joined the ring", where=names, hint=hint, cause="lost-peer")


def lost_twice(device: str) -> RunError:
    """About a device that a request may have brought down."""
    hint = "see what its runner says before you repeat the request"
    message = f"{device} was lost twice while this request ran"
    return RunError(message, where=device, hint=hint, cause="lost-peer")
