"""The problem along one chain of messages: what is left of it when residual messages are dropped.

Every plan's value, counted along the longest chain of sub-modules that use one another (`Tables.path`), is
a lower bound on its true value, exact where no residual message is late. What remains is small: seconds per
sub-module and device, how far an interval may reach, bytes at each cut. Seconds are weighted by phase.

A chain can be *capped* for a throughput: with no stage, message or return longer than some seconds. Then
nothing costs anything any more, and the question is only whether the devices can cover the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from partc.planner.exact.tables import Array, Indices, Mask, Tables
from partc.planner.exact.windows import Windows

_MAX_CACHED = 1.2e7
"""Elements of message matrices that are kept."""


@dataclass(frozen=True, eq=False)
class Chain:
    """n sub-modules, T types of devices (the source is type 0 and holds the first interval)."""

    capacity: Indices
    """[type]: members; 0 for the source, which is always in use."""
    elapsed: Array
    """[c, type]: weighted seconds of all sub-modules before c."""
    reach: Indices
    """[b, type]: the farthest end of an interval from b; b where there is none."""
    least_end: Indices
    """[b]: the nearest end with a sub-module of the path in [b, end); n + 1 for b = n."""
    bytes: Array
    """[b]: weighted bytes of the path's message across the cut b."""
    begun: Mask
    """[b]: whether there is such a message."""
    delay: Array
    """[from, to]: weighted latency; infinite without a link."""
    rate: Array
    """[from, to]: seconds per byte."""
    back: Array
    """[type]: the weighted message back to the source."""
    limit_s: float | None = None
    """On a capped chain: messages that take longer are impossible, and all others cost nothing."""

    @property
    def count(self) -> int:
        """Number of sub-modules."""
        return len(self.least_end) - 1

    @property
    def kinds(self) -> int:
        """Number of types."""
        return len(self.capacity)

    @cached_property
    def ends(self) -> Windows:
        """The ends that an interval may have, for each begin."""
        return Windows(np.repeat(self.least_end[:, None], self.kinds, axis=1), self.reach)

    @cached_property
    def begins(self) -> Windows:
        """The begins that an interval may have, for each end."""
        cuts = np.arange(self.count + 1)
        first = np.stack([np.searchsorted(self.reach[:, t], cuts) for t in range(self.kinds)], axis=1)
        last = np.searchsorted(self.least_end[:-1], cuts, side="right") - 1
        return Windows(first, np.repeat(last[:, None], self.kinds, axis=1))

    def message(self, sender: int | slice, receiver: int | slice, cuts: slice = slice(None)) -> Array:
        """[cut, ...]: the path's message between types, for all cuts at once."""
        amounts, begun = self.bytes[cuts], self.begun[cuts]
        delay, rate = self.delay[sender, receiver], self.rate[sender, receiver]
        seconds = delay + np.multiply.outer(amounts, rate)
        return self._cut_off(np.where(begun.reshape(-1, *[1] * np.ndim(delay)), seconds, 0.0))

    def matrix(self, cut: int) -> Array:
        """[from, to]: the path's message across one cut."""
        if not self.begun[cut]:
            return np.zeros((self.kinds, self.kinds))
        amount = float(self.bytes[cut])
        found = self._matrices.get(amount)
        if found is None:
            found = self._cut_off(self.delay + amount * self.rate)
            if (len(self._matrices) + 1) * self.kinds**2 <= _MAX_CACHED:
                self._matrices[amount] = found
        return found

    @cached_property
    def _matrices(self) -> dict[float, Array]:
        return {}

    def _cut_off(self, seconds: Array) -> Array:
        if self.limit_s is None:
            return seconds
        return np.where((seconds <= self.limit_s) & np.isfinite(seconds), 0.0, np.inf)

    def capped(self, limit_s: float) -> Chain:
        """The question whether the devices can cover the model with nothing busy for longer than this."""
        limit = limit_s * (1 + 1e-12)
        reach = np.stack(
            [
                np.searchsorted(self.elapsed[:, t], self.elapsed[:, t] + limit, side="right") - 1
                for t in range(self.kinds)
            ],
            axis=1,
        )
        cuts = np.arange(self.count + 1)[:, None]
        return replace(
            self,
            elapsed=np.zeros_like(self.elapsed),
            reach=np.maximum(np.minimum(self.reach, reach), cuts),
            back=np.where((self.back <= limit) & np.isfinite(self.back), 0.0, np.inf),
            limit_s=limit,
        )


def chain_of(tables: Tables, likely_length: int = 0) -> Chain:
    """Reads the tables. O(T n + T^2).

    `likely_length` makes it an estimate instead of a relaxation: messages then hold all that crosses a cut
    between intervals of so many sub-modules.
    """
    weights = np.array(tables.weights)
    kinds = range(len(tables.types))
    links = [[tables.links[a][b] for b in kinds] for a in kinds]
    inside = np.array(sorted(tables.path))
    nearest = inside[np.searchsorted(inside, np.arange(tables.count))] + 1
    amounts, begun = _messages(tables)
    if likely_length:
        amounts = np.maximum(amounts, _crossing(tables, likely_length))
    return Chain(
        capacity=np.array(tables.capacity),
        elapsed=np.tensordot(weights, tables.elapsed, axes=(0, 1)).T.copy(),
        reach=tables.reach.T.copy(),
        least_end=np.append(nearest, tables.count + 1),
        bytes=amounts,
        begun=begun,
        delay=np.array([[link[0] if link else np.inf for link in row] for row in links]) * weights.sum(),
        rate=np.array([[link[1] if link else 0.0 for link in row] for row in links]),
        back=tables.return_seconds,
    )


def _messages(tables: Tables) -> tuple[Array, Mask]:
    """The least bytes that the path's last sub-module before each cut sends, and whether there is one."""
    amounts, begun = np.zeros(tables.count + 1), np.zeros(tables.count + 1, bool)
    following = dict(zip(tables.path[:-1], tables.path[1:], strict=True))
    for maker, user in following.items():
        begun[maker + 1 : user + 1] = True
    for value in tables.values:
        user = following.get(value.maker, -1)
        for cut in range(value.maker + 1, user + 1):
            if any(cut <= use <= user for use in value.users):
                amounts[cut] += tables.weights[value.phase] * value.bytes
    return amounts, begun


def _crossing(tables: Tables, length: int) -> Array:
    """Weighted bytes, for each cut, of the values that are made and next used within `length` sub-modules of it."""
    changes = np.zeros(tables.count + 2)
    for value in tables.values:
        weighted, begin = tables.weights[value.phase] * value.bytes, value.maker + 1
        for user in value.users:
            if user - value.maker > length:
                break
            changes[begin] += weighted
            changes[user + 1] -= weighted
            begin = user + 1
    return np.asarray(np.maximum(np.cumsum(changes)[:-1], 0.0))
