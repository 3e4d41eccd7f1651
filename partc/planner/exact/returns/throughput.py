"""Labels of a throughput: busy times of devices and links, and where the values lie that are still read.

A busy time that can end at the limit or below it is left out of comparisons: labels answer whether there is a plan
below one limit. A run knows which of its messages have begun, since each pays the latency of its link once.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import NamedTuple

from partc.planner.exact.returns.busy import BusyPrices
from partc.planner.exact.returns.labels import Holding, Holdings
from partc.planner.exact.returns.space import Space
from partc.planner.exact.returns.sweep import Resources

Run = tuple[int, int]
"""(number of a run, its device)"""


class Label(NamedTuple):
    """A beginning of a plan."""

    device: int
    cost: float
    """The longest busy time so far."""
    busy: tuple[float, ...]
    """[device]: weighted seconds."""
    links: tuple[tuple[int, float], ...]
    """(sender * devices + receiver, weighted seconds) of links in use, in their order."""
    holding: Holding
    places: tuple[tuple[int, int, Run], ...]
    """(value, devices that have it as bits, the run that made it) of values that are still read."""
    opened: frozenset[tuple[Run, int]]
    """(run, phase) of messages to the present run that have begun."""
    run: int
    """Number of the present run."""
    estimate: float
    parent: Label | None


class ThroughputLabels:
    """Beginnings of plans for a throughput, whose busy times are all below a limit."""

    def __init__(self, space: Space, prices: BusyPrices, limit: float) -> None:
        """Prices must be `ready`."""
        self.space, self.prices, self.rules, self._limit = space, prices, Holdings(space), limit
        self._weighted, self._back = space.weighted.tolist(), space.back.tolist()
        self._latency, self._per_byte = space.latency.tolist(), space.per_byte.tolist()
        self._left = self._work_left()

    def root(self) -> Label | None:
        """The first sub-module, on the source; None: it does not fit."""
        holding = self.rules.with_submodule(self.rules.empty(), 0, 0, begins=True)
        if holding is None or not self.space.able[0, 0]:
            return None
        seconds = self._weighted[0][0]
        busy = (seconds, *(0.0,) * (self.space.devices - 1))
        places = tuple(
            (value, 1, (0, 0)) for value in self.space.makes[0] if self.space.values[value].last > 0
        )
        return Label(0, seconds, busy, (), holding, places, frozenset(), 0, seconds, None)

    def children(self, label: Label, cut: int, upper: float) -> list[Label]:
        """The label with the sub-module behind its cut on each device, as far as no busy time reaches `upper`."""
        found = (self._child(label, cut, device, upper) for device in self.rules.choices(label.holding))
        return [child for child in found if child is not None]

    def value(self, label: Label) -> float:
        """The longest busy time of a complete plan; infinite where it does not use what it must."""
        links = dict(label.links)
        if label.device:
            way = label.device * self.space.devices
            links[way] = links.get(way, 0.0) + self._back[label.device]
        longest = max([*label.busy, *links.values()])
        return longest if self.rules.is_complete(label.holding) else math.inf

    def key(self, label: Label) -> object:
        """Only labels with equal keys are compared: whose values lie in the same places, from like runs."""
        runs = dict.fromkeys([(label.run, label.device), *(run for _, _, run in label.places)])
        number = {run: place for place, run in enumerate(runs)}
        places = tuple((value, where, number[run], run[1]) for value, where, run in label.places)
        opened = frozenset((number[run], phase) for run, phase in label.opened if run in number)
        return label.device, places, opened

    def resources(self, label: Label, cut: int) -> Resources:
        """The memory that it uses, and the time up to the limit."""
        found = [*chain(*self.rules.binding(label.holding, cut))]
        for seconds, left in zip(label.busy, self._left[cut], strict=True):
            found.append(seconds if seconds + left > self._limit else 0.0)
        links = [0.0] * self.space.devices**2
        for way, seconds in label.links:
            links[way] = seconds
        found += links
        return found, found

    def is_simple(self, label: Label, cut: int) -> bool:
        """Devices that are alike do not change places: links and values tell them apart."""
        return False

    def beats(self, one: Label, other: Label, cut: int) -> bool:
        """Whether whatever follows the other is below the limit behind the one, which uses no more."""
        return self.rules.may_replace(one.holding, other.holding)

    def _child(self, label: Label, cut: int, device: int, upper: float) -> Label | None:
        space, goes_on = self.space, device == label.device
        seconds = label.busy[device] + self._weighted[cut][device]
        if not seconds < upper:
            return None
        holding = self.rules.with_submodule(label.holding, cut, device, begins=not goes_on)
        if holding is None:
            return None
        run = (label.run if goes_on else label.run + 1, device)
        links, opened = dict(label.links), set(label.opened) if goes_on else set()
        places = {value: (where, maker) for value, where, maker in label.places}
        for value in space.reads[cut]:
            where, maker = places[value]
            if where >> device & 1:
                continue
            places[value] = where | 1 << device, maker
            way = maker[1] * space.devices + device
            links[way] = links.get(way, 0.0) + self._sending(value, maker, device, opened)
            if not links[way] < upper:
                return None
        places |= dict.fromkeys(space.makes[cut], (1 << device, run))
        kept = tuple(
            (value, where, maker)
            for value, (where, maker) in sorted(places.items())
            if space.values[value].last > cut
        )
        busy = (*label.busy[:device], seconds, *label.busy[device + 1 :])
        cost = max(label.cost, seconds, *links.values()) if links else max(label.cost, seconds)
        least = max(cost, label.estimate, self._least(cut + 1, device, busy, links, holding))
        if not least < upper:
            return None
        ways = tuple(sorted(links.items()))
        return Label(device, cost, busy, ways, holding, kept, frozenset(opened), run[0], least, label)

    def _sending(self, value: int, maker: Run, device: int, opened: set[tuple[Run, int]]) -> float:
        """Weighted seconds that a value adds to a message, and the latency of the link to the first one."""
        what = self.space.values[value]
        latency = self._latency[maker[1]][device]
        if math.isinf(latency):
            return math.inf
        seconds = what.bytes * self._per_byte[maker[1]][device]
        if (maker, what.phase) not in opened:
            opened.add((maker, what.phase))
            seconds += latency
        return float(self.space.weights[what.phase] * seconds)

    def _least(
        self, cut: int, device: int, busy: tuple[float, ...], links: dict[int, float], holding: Holding
    ) -> float:
        """A bound on the longest busy time of every plan that begins like this."""
        found = 0.0
        for table in self.prices.tables:
            load = table.rest[cut][device] - table.base
            load += sum(price * seconds for price, seconds in zip(table.device, busy, strict=True))
            load += sum(price * use for price, use in zip(table.memory, holding.load, strict=True))
            for way, seconds in links.items():
                sender, receiver = divmod(way, self.space.devices)
                load += table.link[sender][receiver] * seconds
            found = max(found, load)
        return found

    def _work_left(self) -> list[list[float]]:
        """[cut][device]: weighted seconds of all that is behind the cut, where the device can run it."""
        found = [[0.0] * self.space.devices]
        for j in range(self.space.count - 1, -1, -1):
            own = [seconds if math.isfinite(seconds) else 0.0 for seconds in self._weighted[j]]
            found.append([left + more for left, more in zip(found[-1], own, strict=True)])
        return found[::-1]
