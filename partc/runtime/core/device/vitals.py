"""The vitals of a device, which it reports while somebody watches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from partc.format.messages import Sense, Sensed
from partc.format.readings import Readings, reached
from partc.format.status import Vitals
from partc.runtime.core.actions import Action, Tell
from partc.runtime.core.commands import ReadSensors
from partc.runtime.core.device.requests import Requests
from partc.runtime.core.links.links import Links
from partc.runtime.core.links.outgoing import peers_of
from partc.runtime.core.meter import Meter


@dataclass(slots=True)
class Monitor:
    """Report of a device about itself while somebody watches."""

    links: Links
    requests: Requests
    meter: Meter | None = None
    """Times of its sub-modules; None: nobody watches."""

    def computed(self, seconds: float) -> None:
        """The engine has done what it works at; to be told before the requests are."""
        name, phase = self.requests.works_at
        if self.meter is not None and name:
            self.meter.took(name, phase, seconds)

    def sense(self, sense: Sense) -> Iterator[Action]:
        """The source asks how this device is, or does not want to know any more."""
        self.meter = None if sense.ends else self.meter or Meter()
        if not sense.ends:
            yield ReadSensors()

    def read(self, readings: Readings) -> Iterator[Action]:
        """The sensors have been read."""
        role, missing = self.requests.script.role, self.links.missing
        vitals = Vitals(
            readings=readings,
            reached=tuple(reached(role.build.limits, readings)),
            work=() if self.meter is None else self.meter.work(),
            requests=self.requests.in_flight,
            queue=self.requests.queue,
            links={peer: peer not in missing for peer in peers_of(role)},
        )
        yield Tell(role.source, Sensed(vitals=vitals))

    def adopt(self) -> None:
        """Another placement is in force: times of the one before say nothing of it."""
        if self.meter is not None:
            self.meter = Meter()
