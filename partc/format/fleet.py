"""A fleet: rings of one model that answer a demand together, as `partc plan --fleet --json` prints it.

`form-rings` decides it (`partc.planner.rings`); the module carries it in its plan.
"""

from __future__ import annotations

from msgspec import Struct

Number = int | float


class Latency(Struct, frozen=True):
    """Seconds that requests take."""

    median_s: Number
    most_s: Number
    """99 of 100 requests take no longer."""


class Arrivals(Struct, frozen=True):
    """The simulation of one wish under requests that come at random."""

    requests: int
    """Those that are counted: the second half of each ring's."""
    tokens_per_s: Number
    """Tokens of all rings, from the first arrival to the last token."""
    first_token: Latency
    """From a request's arrival to its first token."""
    per_token: Latency | None
    """The mean time between two tokens of a request; None where requests make one."""
    as_wished: Number
    """The part of the requests that were answered as soon as wished for."""


class Wanted(Struct, frozen=True):
    """A line of the demand, and what the rings for it come to."""

    rate_per_s: Number
    prompt: int
    answer: int
    first_token_s: Number | None
    """Wished for; None: any."""
    per_token_s: Number | None
    rings: int
    capacity_per_s: Number
    """Requests per second of its rings, if they were never idle."""
    tokens_per_s: Number
    """Tokens per second at that."""
    simulated: Arrivals


class RingStage(Struct, frozen=True):
    """One stage of a kind of ring."""

    kind: str
    """The device that stands for all of its kind."""
    first: int
    last: int
    """Inclusive."""


class RingGroup(Struct, frozen=True):
    """Rings that are alike."""

    demand: int
    """The line of the demand that they answer, counted from 0."""
    stages: tuple[RingStage, ...]
    rings: tuple[tuple[str, ...], ...]
    """Devices of each ring, in the order of the stages; the first is its source."""
    capacity_per_s: Number
    """Requests per second of one ring, if it is never idle."""
    first_token_s: Number
    """Of a request that is alone."""
    per_token_s: Number | None


class Fleet(Struct, frozen=True):
    """Rings for a demand."""

    utilisation: Number
    """The part of the capacity that was planned with."""
    devices_per_ring: int
    """The most devices of a ring that were considered."""
    wanted: tuple[Wanted, ...]
    groups: tuple[RingGroup, ...]
    kinds: dict[str, tuple[str, ...]]
    """The device that stands for a kind → all devices of it."""
    left_over: tuple[str, ...]
    """Devices that are in no ring."""
    devices: int
    """Devices in rings."""
    bound: int
    """No fleet of rings of at most so many devices answers the demand with fewer."""
    gap: Number
    """(devices - bound) / devices."""
    method: str
