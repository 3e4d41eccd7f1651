"""Patience of the source: with a step that does not end, and with devices that were lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from partc.errors import RunError
from partc.format.messages import Pong
from partc.format.role import Role
from partc.runtime.core.job import Job
from partc.runtime.core.liveness import COMPUTING_FACTOR, patience_s, step_s
from partc.runtime.core.watch import Meter


@dataclass(slots=True)
class Patience:
    """Times that steps take, and the devices' signs of life."""

    role: Role
    floor_s: float
    """The shortest patience with a silent ring, seconds."""
    pace: Meter | None = None
    """Times of steps, while somebody watches."""
    _slowest: dict[str, float] = field(default_factory=dict)
    """Phase → seconds of its slowest step."""
    _heard: dict[str, tuple[float, Pong]] = field(default_factory=dict)
    """Device → when it last answered a ping, and how."""

    def took(self, phase: str, seconds: float) -> None:
        """A step is over."""
        if self.pace is not None:
            self.pace.took("", phase, seconds)
        self._slowest[phase] = max(self._slowest.get(phase, 0.0), seconds)

    def answered(self, device: str, pong: Pong, now: float) -> None:
        """A device's loop is alive."""
        self._heard[device] = now, pong

    def of(self, job: Job, running: int, now: float) -> float:
        """Seconds that a request may stand still.

        Requests in flight take turns on a device, so a step may take as many times longer; and a device that says that
        it computes is slow, as on a busy machine, but not gone.
        """
        phase = "decode" if job.step else "prefill"
        tokens = 1 if job.step else max(job.length, default=1)
        expected = step_s(self.role.predicted, phase, max(1, len(job.length)), tokens)
        patience = patience_s(expected * max(1, running), self.floor_s, self._slowest.get(phase, 0.0))
        works = any(pong.computing for pong in self._answers(job, now).values())
        is_slow = works and not self.silent(job, now)
        return COMPUTING_FACTOR * patience if is_slow else patience

    def silent(self, job: Job, now: float) -> tuple[str, ...]:
        """The devices that have not answered lately, while the request stands still."""
        answers = self._answers(job, now)
        return tuple(name for name in self.role.ring if name != self.role.device and name not in answers)

    def stalled(self, job: Job, patience: float, now: float) -> RunError:
        """About a request that stands still, naming the device that is to blame."""
        answers, silent = self._answers(job, now), self.silent(job, now)
        if silent:
            what = f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
        else:
            what = "; ".join(f"{name} {pong.doing}" for name, pong in answers.items())
        culprits = silent or tuple(name for name, pong in answers.items() if pong.computing)
        message = f"no progress for {patience:.1f} s in step {job.step}: {what}"
        hint = "start its runner again if it hangs; give the runners a larger --patience if it is only slow"
        return RunError(
            message, where=culprits[0] if len(culprits) == 1 else None, hint=hint, cause="stalled"
        )

    def _answers(self, job: Job, now: float) -> dict[str, Pong]:
        """Device → what it said last; it has been asked several times within the shortest patience."""
        since = max(job.progress.since, now - self.floor_s)
        return {name: pong for name, (at, pong) in self._heard.items() if at >= since}


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
