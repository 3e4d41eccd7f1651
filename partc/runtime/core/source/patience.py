"""Patience of the source with a step that does not end."""

from __future__ import annotations

from dataclasses import dataclass, field

from partc.errors import RunError
from partc.format.messages import Pong
from partc.format.role import Role
from partc.runtime.core.liveness import COMPUTING_FACTOR, patience_s, step_s
from partc.runtime.core.meter import Meter
from partc.runtime.core.source.job import Job


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

    def took(self, phase: str, seconds: float, tokens: int) -> None:
        """A step is over, of so many tokens; the pace is that of steps of one."""
        if self.pace is not None and tokens == 1:
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
