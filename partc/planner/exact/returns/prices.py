"""A bound on the latency of all plans: a shortest path over intervals, in which the memory of a device has a price.

What a device holds, over all its intervals, is priced by Lagrange multipliers; each interval alone must still fit. By
that the path pays for messages: priced sub-module by sub-module, the relaxation mixes paths that stay on one device
each. Counted are the times and messages behind the last sub-module of a phase that hands nothing to the next: before
it, intervals may run side by side. Shared groups are divided among their members, so that none is counted twice.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from partc.planner.exact.returns.space import Space, weighed
from partc.planner.exact.tables import Array, Indices
from partc.planner.model.effort import CALL, Budget

_PATIENCE = 12
"""Rounds without a better bound before steps are halved."""


@dataclass(frozen=True, slots=True)
class Table:
    """Least costs under some prices."""

    price: list[float]
    """[device]: seconds per byte."""
    base: float
    """The priced room of all devices."""
    rest: Array
    """[cut, device, ahead]: least cost behind a cut whose interval goes on for so many sub-modules at most."""


class Prices:
    """The best prices found so far, and their bound."""

    def __init__(self, space: Space) -> None:
        """No prices yet."""
        self.space = space
        self.bound = -math.inf
        self.best = np.zeros(space.devices)
        self.tables: list[Table] = []
        self._pool: list[Array] = []
        self._room = np.maximum(np.array(space.room) - min(space.peak), 0.0)
        self._before = np.concatenate([np.zeros((1, space.devices)), np.cumsum(space.alone, 0)])
        self._reach = self._reaches()
        self.span = max(1, int((self._reach - np.arange(space.count)[:, None]).max()))
        self.seconds, self.messages = self._costs()
        """[sub-module, device] and [cut, sender, receiver]: weighted seconds that bounds count."""
        self._sums = [column.tolist() for column in self._before.T]

    def ascend(self, rounds: int, upper: float, budget: Budget) -> list[list[int]]:
        """Better prices by subgradients; the plans met on the way that fit as far as prices see."""
        price, step, since = self.best.copy(), 1.0, 0
        load, scale, met = self.space.charged, np.maximum(self._room, 1.0), []
        for number in range(rounds):
            if budget.is_spent:
                break
            bound, plan = self._solve(price, budget)[:2]
            if plan is None:
                self.bound = math.inf
                break
            if bound > self.bound + 1e-9 * abs(bound):
                self.bound, self.best, since = bound, price.copy(), 0
            else:
                since += 1
                if since >= _PATIENCE:
                    step, since, price = step / 2, 0, self.best.copy()
            if number % max(1, rounds // 8) == 0:
                self._pool.append(price.copy())
            use = np.bincount(plan, load[np.arange(len(plan)), plan], self.space.devices)
            if (use <= self._room * (1 + 1e-9)).all():
                met.append(plan)
            over = (use - self._room) / scale
            slope = np.where((price <= 0) & (over < 0), 0.0, over)
            norm = float(slope @ slope)
            if norm < 1e-18 or step < 1e-3 or bound >= upper:
                break
            target = upper if math.isfinite(upper) else bound * 1.1 + 1e-12
            price = np.maximum(
                0.0, price + step * max(target - bound, 1e-9 * abs(target)) / norm * slope / scale
            )
        return met

    @property
    def table_size(self) -> int:
        """Numbers of a table."""
        return self.space.count * self.space.devices * (self.span + 1)

    def ready(self, budget: Budget) -> None:
        """Tabulate the best prices, none, and some met on the way."""
        self.tables = []
        for price in (self.best, np.zeros_like(self.best), *self._pool[-4:]):
            rest, before = self._solve(price, budget)[2:]
            windows = np.lib.stride_tricks.sliding_window_view(rest, self.span + 1, axis=0)[
                : self.space.count + 1
            ]
            least = np.minimum.accumulate(windows, axis=2) - before[:, :, None]
            self.tables.append(Table(price.tolist(), float(price @ self._room), least))

    def ahead(self, cut: int, device: int, room: float) -> int:
        """By how many sub-modules an interval may go on behind a cut, with so much memory left on its device."""
        sums = self._sums[device]
        return min(
            max(bisect_right(sums, (sums[cut] + max(room, 0.0)) * (1 + 1e-12)) - 1 - cut, 0), self.span
        )

    def least(self, cut: int, device: int, room: float, load: tuple[float, ...]) -> float:
        """The least cost behind a cut of a plan that is on a device with so much room there, and has this load."""
        far = self.ahead(cut, device, room)
        return max(
            float(table.rest[cut, device, far])
            + sum(price * use for price, use in zip(table.price, load, strict=True))
            - table.base
            for table in self.tables
        )

    def _solve(self, price: Array, budget: Budget) -> tuple[float, list[int] | None, Array, Array]:
        """(bound, its path, costs, sums).

        `sums` [cut, device] are the priced times before a cut, and `costs` [end, device] these plus the least cost
        behind an interval that ends there.
        """
        space, reach, span = self.space, self._reach, self.span
        count, devices = space.count, np.arange(space.devices)
        budget.spend(count * (6 * CALL + space.devices * (span + space.devices)))
        sums = np.zeros((count + 1, space.devices))
        np.cumsum(self.seconds + space.charged * price, 0, out=sums[1:])
        costs = np.full((count + 1 + span, space.devices), np.inf)
        costs[count] = sums[count] + space.back
        ends, following = np.zeros((count, space.devices), int), np.zeros((count + 1, space.devices), int)
        offsets = np.arange(1, span + 1)[:, None]
        for cut in range(count - 1, 0, -1):
            far = min(span, count - cut)
            block = np.where(offsets[:far] + cut <= reach[cut], costs[cut + 1 : cut + 1 + far], np.inf)
            first = block.argmin(0)
            ends[cut] = cut + 1 + first
            choices = self.messages[cut] + (block[first, devices] - sums[cut])
            following[cut] = choices.argmin(1)
            costs[cut] = sums[cut] + choices[devices, following[cut]]
        last = int(reach[0, 0])
        if last < 1:
            return math.inf, None, costs, sums
        end = 1 + int(costs[1 : last + 1, 0].argmin())
        bound = float(costs[end, 0] - price @ self._room)
        if not math.isfinite(bound):
            return math.inf, None, costs, sums
        plan, device = [0] * end, 0
        while end < count:
            device, begin = int(following[end, device]), end
            end = int(ends[begin, device])
            plan += [device] * (end - begin)
        return bound, plan, costs, sums

    def _reaches(self) -> Indices:
        """[begin, device]: the farthest end of an interval whose memory and times allow it; begin if none."""
        space = self.space
        found = np.empty((space.count, space.devices), np.int64)
        for device in range(space.devices):
            sums = self._before[:, device]
            limit = sums[:-1] + self._room[device] * (1 + 1e-12)
            found[:, device] = np.searchsorted(sums, limit, side="right") - 1
            stop = space.count
            for j in range(space.count - 1, -1, -1):
                stop = stop if space.able[j, device] else j
                found[j, device] = max(j, min(found[j, device], stop))
        return found

    def _costs(self) -> tuple[Array, Array]:
        """Seconds [sub-module, device] and [cut, sender, receiver] that count; a device sends itself nothing."""
        space = self.space
        seconds = np.zeros((space.count, space.devices))
        messages = np.zeros((space.count + 1, space.devices, space.devices))
        cuts = np.arange(space.count + 1)
        for phase, weight in enumerate(space.weights):
            serial = space.serial_from[phase]
            own = np.where(space.able, np.array(space.time[phase]), 0.0)
            seconds += weight * np.where((np.arange(space.count) >= serial)[:, None], own, 0.0)
            is_sent = (cuts - 1 >= serial) & (cuts < space.count)
            sizes = space.chain_bytes(phase)[:, None, None]
            own_messages = weighed(weight, space.latency + sizes * space.per_byte)
            messages += np.where(is_sent[:, None, None], own_messages, 0.0)
        messages[:, np.arange(space.devices), np.arange(space.devices)] = np.inf  # such intervals are one
        return seconds, messages
