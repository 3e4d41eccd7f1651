"""Structs of the messages `sensed` and `status`: devices as they are, and the changes of their placement."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from partc.format import fields
from partc.format.fields import Count
from partc.format.readings import LimitName, Readings

SAMPLE = "sample"
"""Stands for the choice of tokens among sub-modules."""
WINDOW_STEPS = 32
"""Last runs, or last steps, whose median counts."""

KEPT_CHANGES = 8
"""Last changes of placement that are told."""

Seconds = Annotated[float, Meta(ge=0)]


class Work(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`[submodule, phase, runs, seconds]`: how long a sub-module takes."""

    submodule: str
    """Its name; `sample` for the choice of tokens."""
    phase: str
    """`chunk`, `prefill` or `decode`."""
    runs: Count
    """Runs since somebody began to watch."""
    seconds: Seconds
    """Median of the last 32."""


class Steps(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`[phase, steps, seconds]`: how long the steps of a phase take."""

    phase: str
    """`prefill`, with all parts of a prompt, or `decode`."""
    steps: Count
    """Steps since somebody began to watch."""
    seconds: Seconds
    """Median of the last 32."""


class Vitals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A device as it is."""

    readings: Readings
    """Values of its sensors."""
    reached: tuple[LimitName, ...] = ()
    """Limits of devices.yaml that it has reached."""
    work: tuple[Work, ...] = ()
    """Times of all that its engine computes."""
    requests: Count = 0
    """Requests in flight that it takes part in."""
    queue: Count = 0
    """Those of them that could go on, and wait for its engine."""
    links: dict[str, bool] = {}
    """Device that it sends to, and the source → whether the link stands."""


class DeviceStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device, as the source knows it."""

    device: str
    """Its name."""
    submodules: tuple[tuple[Count, Count], ...] = ()
    """Sub-modules that it computes, as (first, last)."""
    is_present: bool = False
    """Whether it is connected and ready."""
    age_s: Seconds | None = None
    """Seconds since it told its vitals; null: it never has."""
    answer_s: Seconds | None = None
    """Seconds from the source's last question to its answer; null: there was none yet."""
    vitals: Vitals | None = None
    """Its vitals as it last told them; null as well while it is not connected."""
    away_s: Seconds | None = None
    """Seconds since its connection ended; null: it is connected, or never was."""
    losses: Count = 0
    """Number of times that it was lost since the source started: its connection ended, or it was silent too long."""
    shares: bool = False
    """Whether its runner takes steps of several requests."""

    def step_s(self, phase: str) -> float | None:
        """Seconds that it computes in a step of a phase; None: nothing has been measured."""
        works = () if self.vitals is None else self.vitals.work
        found = [work.seconds for work in works if work.phase == phase]
        return sum(found) if found else None


class Change(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of placement."""

    epoch: fields.Epoch
    age_s: Seconds
    """Seconds since it was made."""
    cause: fields.Cause
    """Why, for people: the device that was lost, or what whoever asked for it said."""
    stopped_s: Seconds
    """Seconds for which requests stood still."""


class RingStatus(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ring, as its source knows it."""

    epoch: fields.Epoch
    placement: str
    """`placement_id` of the placement in force."""
    predicted: dict[str, float] = {}
    """Seconds of a step round the ring that the placement predicts."""
    steps: tuple[Steps, ...] = ()
    """Time of a step round the ring."""
    running: Count = 0
    """Requests in flight."""
    waiting: Count = 0
    """Requests that wait for a slot, or for the ring to stand."""
    tokens_left: Count = 0
    """Tokens that all of these may still get."""
    devices: tuple[DeviceStatus, ...]
    """Those of the ring in the order of a step, then the others."""
    changes: tuple[Change, ...] = ()
    """The last 8 changes, the newest last."""
    moves: Count = 0
    """Changes that clients asked for, since the source started."""

    @property
    def phase(self) -> str:
        """The phase that most steps are of: `decode` for a model that generates, else `prefill`."""
        generates = "decode_s" in self.predicted or any(steps.phase == "decode" for steps in self.steps)
        return "decode" if generates else "prefill"

    @property
    def main_steps(self) -> Steps | None:
        """The steps of that phase; None: there were none so far."""
        return next((steps for steps in self.steps if steps.phase == self.phase), None)
