"""The start of a device: facts that the build does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from partc.format.placement import Placement
from partc.runtime.core.liveness import LEAST_PATIENCE_S

Info = Mapping[str, bool | int | float | str]
"""Facts about a device, for whoever connects."""


@dataclass(frozen=True, slots=True)
class Start:
    """Facts about a device's process that the build does not know."""

    incarnation: int
    """64 random bits."""
    first_request: int = 0
    """Lowest number of a request at the source; its clock in milliseconds, so that numbers grow over restarts."""
    patience_s: float = LEAST_PATIENCE_S
    """The shortest time without progress after which a peer counts as gone, seconds."""
    rejoin_s: float = 0.0
    """The time that requests wait for a device that was lost, seconds; 0: they end at once."""
    linger_s: float = 0.0
    """The time that a request waits for its client to come back, seconds; 0: it is cancelled at once."""
    contingencies: Sequence[Placement] = ()
    """At the source: placements that do without a device."""
    info: Info = field(default_factory=dict)
    """Facts for everyone who connects."""
