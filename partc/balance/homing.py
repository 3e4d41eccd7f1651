"""The way back to the plan, for builds whose stages devices share: nothing else moves there.

| state | left by |
| --- | --- |
| home | another placement is in force, and all devices of the plan's are there → waiting |
| waiting | a device is lost, or the plan's is in force → home; the wait is over: the plan's is asked for → asked |
| asked | it is in force, or is refused → home |

The first wait is that between two moves of the balancer; each further one is twice as long, so that a device that comes
and goes costs less and less.
"""

from __future__ import annotations

from partc.balance.order import Order
from partc.balance.pauses import COOL_DOWN_S
from partc.format.placement import Placement
from partc.format.status import RingStatus

TEXT = "everything back to the plan: all its devices are there"
LONGEST_S = 3600.0
"""No wait is longer."""


class Homing:
    """Asks for the compiled placement when all its devices are back."""

    def __init__(self, compiled: Placement, wait_s: float = COOL_DOWN_S) -> None:
        """`wait_s`: seconds for which they must have been there."""
        self._compiled = compiled
        stages = compiled.stages.get("decode") or compiled.stages["prefill"]
        self._held = {
            name: tuple(stage.submodules for stage in stages if name in stage.devices)
            for name in compiled.ring
        }
        self._wait_s = wait_s
        self._since: float | None = None
        self._is_asked = False

    def on_status(self, ring: RingStatus, now: float) -> Order | None:
        """Take a state of the ring; `now` is in seconds on one clock."""
        held = {device.device: device.submodules for device in ring.devices if device.submodules}
        present = {device.device for device in ring.devices if device.is_present}
        if held == self._held or self._is_asked or not present.issuperset(self._compiled.ring):
            self._since = None
            return None
        if self._since is None:
            self._since = now
        if now - self._since < self._wait_s:
            return None
        self._is_asked = True
        return Order(self._compiled, TEXT)

    def placed(self, seconds: float, now: float) -> None:
        """The last order is in force."""
        self._end()

    def refused(self, reason: str, now: float) -> None:
        """The last order will not be in force."""
        self._end()

    def _end(self) -> None:
        self._is_asked, self._since = False, None
        self._wait_s = min(2 * self._wait_s, LONGEST_S)
