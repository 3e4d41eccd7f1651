"""The rings in the log of a server: their states, and the changes that their sources tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from partc.format.capabilities import Facts, missing, of_ring
from partc.format.logs import Value
from partc.format.status import RingStatus
from partc.runtime.shell.log import SILENT, LogWriter
from partc.serve.ring import State


@dataclass(slots=True)
class RingLog:
    """Compares what is told of each ring with what was told before."""

    log: LogWriter = SILENT
    facts: dict[str, Facts] = field(default_factory=dict)
    """Ring → the facts of its build."""
    _present: dict[str, frozenset[str]] = field(default_factory=dict)
    """Ring → devices that were connected."""
    _epochs: dict[str, int] = field(default_factory=dict)
    """Ring → the last epoch that was told."""

    def is_in(self, ring: str, state: State, reason: str) -> None:
        """A ring is in a state; one that ends without a reason was told to, which is no news of the ring."""
        match state:
            case "ready":
                self.log.write("ring-ready", {"ring": ring})
            case "lost" | "ended":
                self._present.pop(ring, None)
                self._epochs.pop(ring, None)
                if state == "lost" or reason:
                    self.log.write(f"ring-{state}", {"ring": ring, "reason": reason})
            case "starting":
                return

    def told(self, ring: str, status: RingStatus) -> None:
        """A source tells how its ring is: the first time what it cannot do, later what is new."""
        if ring not in self._present:
            self._begin(ring, status)
        present = frozenset(device.device for device in status.devices if device.is_present)
        before = self._present.get(ring, present)
        self._present[ring] = present
        for peer in sorted(before - present):
            self.log.write("device-lost", {"ring": ring, "peer": peer})
        for peer in sorted(present - before):
            self.log.write("device-back", {"ring": ring, "peer": peer})
        last = self._epochs.get(ring, status.epoch)
        self._epochs[ring] = status.epoch
        for change in status.changes:
            if change.epoch > last:
                told: dict[str, Value] = {
                    "ring": ring,
                    "epoch": change.epoch,
                    "reason": change.cause,
                    "stopped_s": change.stopped_s,
                }
                self.log.write("changed", told)

    def _begin(self, ring: str, status: RingStatus) -> None:
        facts = self.facts.get(ring)
        for one in () if facts is None else missing(of_ring(facts, status)):
            self.log.write("cannot", {"ring": ring, "reason": one.sentence})
