"""The load on the devices, and the noise of their times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """Requests to the devices."""

    requests: int
    """The number of requests."""
    tokens: int
    """Steps of each request."""
    mode: str
    """One of `MODES`."""
    in_flight: int
    """Requests that may be open at once; the others wait, and `sequential` opens one."""
    jitter: float = 0.0
    """Standard deviation of the factor (log-normal, mean 1) on every run and transfer."""
    seed: int = 0
    arrivals_s: tuple[float, ...] = ()
    """The time at which each request comes, ascending; empty: all at time 0."""


class Noise:
    """Seeded factors: a request meets the same ones on a device or link in every mode."""

    def __init__(self, jitter: float, seed: int) -> None:
        """`jitter` is the standard deviation."""
        self._sigma = math.sqrt(math.log1p(jitter * jitter))
        self._seed = seed
        self._streams: dict[tuple[str, int], random.Random] = {}

    def factor(self, name: str, request: int) -> float:
        """The next factor of a device or link for a request: log-normal with mean 1."""
        if not self._sigma:
            return 1.0
        key = (name, request)
        if key not in self._streams:
            self._streams[key] = random.Random(f"{self._seed}/{name}/{request}")
        return math.exp(self._streams[key].gauss(-self._sigma * self._sigma / 2, self._sigma))
