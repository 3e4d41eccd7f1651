"""Windows out of the states that a ring tells: one after every 32 steps under one placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from partc.balance.events import Window
from partc.config.units import format_bytes
from partc.format.placement import Stage, Stages
from partc.format.readings import LimitName, Limits, Readings
from partc.format.status import SAMPLE, WINDOW_STEPS, DeviceStatus, RingStatus, Vitals


class Windows:
    """The windows of one ring.

    Devices and the source tell medians of the last 32 runs and steps, and begin anew with every placement; so a state
    is a window as soon as 32 steps have passed since the last one.
    """

    def __init__(self, limits: Mapping[str, Limits | None]) -> None:
        """`limits`: device → its limits, as its build says."""
        self._limits = limits
        self._epoch = self._steps = 0

    def take(self, ring: RingStatus) -> Window | None:
        """The window that ends with this state, if one does."""
        steps = ring.main_steps
        if ring.epoch != self._epoch:
            self._epoch, self._steps = ring.epoch, 0
        if steps is None or steps.steps - self._steps < WINDOW_STEPS:
            return None
        stages = stages_in(ring)
        known = {device.device: device.vitals for device in ring.devices if device.vitals is not None}
        compute_s = {name: _seconds(vitals, steps.phase, sampling=False) for name, vitals in known.items()}
        if not all(compute_s.get(stage.device) for stage in stages):
            return None  # somebody has not told yet what it does under this placement
        self._steps = steps.steps
        return Window(
            stages=stages,
            step_s=steps.seconds,
            compute_s={stage.device: compute_s[stage.device] for stage in stages},
            remaining_tokens=ring.tokens_left,
            fixed_s=sum(_seconds(vitals, steps.phase, sampling=True) for vitals in known.values()),
            requests=ring.running,
            free_bytes={
                name: free
                for name, vitals in known.items()
                if (free := vitals.readings.memory_available_bytes) is not None
            },
            limits={name: text for name, vitals in known.items() if (text := self._reached(name, vitals))},
        )

    def _reached(self, device: str, vitals: Vitals) -> str:
        limits = self._limits.get(device) or Limits()
        return ", ".join(_say(name, vitals.readings, limits) for name in vitals.reached)


def stages_in(ring: RingStatus) -> Stages:
    """The stages of the placement in force."""
    return tuple(sorted(_stages(ring.devices), key=lambda stage: stage.first))


def _stages(devices: tuple[DeviceStatus, ...]) -> Iterator[Stage]:
    for device in devices:
        for span in device.submodules:
            yield Stage(span, (device.device,))


def _seconds(vitals: Vitals, phase: str, *, sampling: bool) -> float:
    """Seconds of one step on a device: in its pieces, or for the choice of tokens."""
    return sum(
        work.seconds for work in vitals.work if work.phase == phase and (work.submodule == SAMPLE) == sampling
    )


def _say(name: LimitName, readings: Readings, limits: Limits) -> str:
    """A limit that is reached: `battery 28% (limit 30%)`."""
    match name:
        case "battery":
            return f"battery {readings.battery or 0:.0%} (limit {limits.battery or 0:.0%})"
        case "temperature":
            return f"{readings.temperature_c or 0:.0f} C (limit {limits.temperature_c or 0:.0f} C)"
        case "memory":
            free, limit = readings.memory_available_bytes or 0, limits.memory_bytes or 0
            return f"{format_bytes(free)} of memory available (limit {format_bytes(limit)})"
        case _:
            assert_never(name)
