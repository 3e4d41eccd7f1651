"""Labels of a latency: a beginning of a plan, when its last run ends, and what of the runs before may still matter.

Sub-modules are added one by one: to the device at hand, whose run goes on, or to another one, where a run begins.
Behind the last break of a phase each sub-module hands something to the next, so no run begins before the one before has
ended. A value of a run long past is then forgotten as soon as it would be everywhere before the present run ends: it
can delay nothing (`_settled`). So few labels know more than the present run, and those compare by their cost alone.

The value of a plan is that of `partc.planner.model.evaluate`: a run begins when its messages are there and its device
is free; a message goes from a run to a later one with all values that its device has not had yet.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import NamedTuple

from partc.planner.exact.objective import TIE, compute_scale
from partc.planner.exact.returns.labels import Holding, Holdings
from partc.planner.exact.returns.prices import Prices
from partc.planner.exact.returns.space import Space
from partc.planner.exact.returns.sweep import Resources

Places = tuple[tuple[int, int], ...]
"""(value, devices that have it as bits)."""


class Past(NamedTuple):
    """A run that is over, some of whose values are still read."""

    device: int
    finish: tuple[float, ...]
    """[phase]: seconds."""
    sent: tuple[float, ...]
    """[phase]: bytes of its message to the present run so far."""
    values: Places


class Label(NamedTuple):
    """A beginning of a plan."""

    device: int
    cost: float
    """Weighted seconds of the phases that bounds count at its cut, and a trifle for each run."""
    finish: tuple[float, ...]
    """[phase]: end of the present run."""
    work: tuple[float, ...]
    """[phase]: seconds of computing in the present run."""
    free: tuple[tuple[float, ...], ...]
    """[phase][device]: when a device is free, where that may keep a later run waiting; empty: nowhere."""
    holding: Holding
    past: tuple[Past, ...]
    own: frozenset[int]
    """Values of the present run that are still read."""
    estimate: float
    """At least the cost of every plan that begins like this."""
    parent: Label | None


class LatencyLabels:
    """Beginnings of plans for a latency."""

    def __init__(self, space: Space, prices: Prices) -> None:
        """Prices must be `ready`."""
        self.space, self.prices, self.rules = space, prices, Holdings(space)
        self._phases = range(len(space.weights))
        self._latency, self._per_byte = space.latency.tolist(), space.per_byte.tolist()
        self._seconds, self._messages = prices.seconds.tolist(), prices.messages.tolist()
        self._trifle = max(compute_scale(space.problem) * TIE, 1e-30)

    def root(self) -> Label | None:
        """The first sub-module, on the source; None: it does not fit."""
        holding = self.rules.with_submodule(self.rules.empty(), 0, 0, begins=True)
        if holding is None or not self.space.able[0, 0]:
            return None
        work = tuple(self.space.time[phase][0][0] for phase in self._phases)
        own = frozenset(value for value in self.space.makes[0] if self.space.values[value].last > 0)
        return self._label(1, Label(0, 0.0, work, work, (), holding, (), own, 0.0, None))

    def children(self, label: Label, cut: int, upper: float) -> list[Label]:
        """The label with the sub-module behind its cut on each device, as far as they may cost less than `upper`."""
        found = (self._child(label, cut, device, upper) for device in self.rules.choices(label.holding))
        return [child for child in found if child is not None and child.estimate < upper]

    def value(self, label: Label) -> float:
        """The cost of a complete plan; infinite where it does not use what it must."""
        whole = label.cost + float(self.space.back[label.device])
        return whole if self.rules.is_complete(label.holding) else math.inf

    def key(self, label: Label) -> int:
        """Only labels with equal keys are compared."""
        return label.device

    def resources(self, label: Label, cut: int) -> Resources:
        """What it uses: with devices as they are, and with those that are alike in a common order."""
        binding = self.rules.binding(label.holding, cut)
        return [*chain(*binding)], [*chain(*self.rules.exchanged(binding, label.device))]

    def is_simple(self, label: Label, cut: int) -> bool:
        """Whether nothing before its present run matters, so that devices that are alike may change places."""
        return not label.past and not label.free and self._counts_all(cut)

    def beats(self, one: Label, other: Label, cut: int) -> bool:
        """Whether whatever follows the other costs no less behind the one, which costs and uses no more."""
        if not self.rules.may_replace(one.holding, other.holding):
            return False
        if self.is_simple(one, cut):
            return one.own <= other.own and (self.space.links_all or _lies_alike(one, other))
        if one.own != other.own or len(one.past) != len(other.past):
            return False
        is_later = self._is_later if self._counts_all(cut) else _is_later_in_all
        return not is_later(one, other)

    def _counts_all(self, cut: int) -> bool:
        """Whether bounds count every phase at a cut."""
        return self.space.is_serial or cut > max(self.space.serial_from)

    def _is_later(self, one: Label, other: Label) -> bool:
        """Whether something of one is later than of the other, beside the ends of their present runs."""
        ends = list(zip(one.finish, other.finish, strict=True))
        for mine, theirs in zip(one.past, other.past, strict=True):
            if mine.device != theirs.device or mine.values != theirs.values:
                return True
            for phase, (end, other_end) in enumerate(ends):
                late, other_late = mine.finish[phase] - end, theirs.finish[phase] - other_end
                if late > other_late or mine.sent[phase] > theirs.sent[phase]:
                    return True
                if late + one.work[phase] > other_late + other.work[phase]:
                    return True
        return any(
            time > 0 and time - end > _free(other, phase, device) - other_end
            for phase, (end, other_end) in enumerate(ends)
            for device, time in enumerate(one.free[phase] if one.free else ())
        )

    def _child(self, label: Label, cut: int, device: int, upper: float) -> Label | None:
        space, goes_on = self.space, device == label.device
        if not space.able[cut, device]:
            return None
        holding = self.rules.with_submodule(label.holding, cut, device, begins=not goes_on)
        if holding is None:
            return None
        least = label.cost + self._seconds[cut][device]
        least += 0.0 if goes_on else self._messages[cut][label.device][device]
        room = self.rules.room(holding, device)
        if least + self.prices.least(cut + 1, device, room, holding.load) >= upper:
            return None
        own = label.own
        past = label.past
        if not goes_on:
            past = tuple(run._replace(sent=(0.0,) * len(self._phases)) for run in past)
            if own:
                places = tuple((value, 1 << label.device) for value in sorted(own))
                past = (*past, Past(label.device, label.finish, (0.0,) * len(self._phases), places))
            own = frozenset()
        reached, start = self._received(label, past, cut, device, goes_on=goes_on)
        if reached is None:
            return None
        work, finish = [], []
        for phase in self._phases:
            seconds = space.time[phase][cut][device] + (label.work[phase] if goes_on else 0.0)
            work.append(seconds)
            finish.append(start[phase] + seconds)
        made = (value for value in (*own, *space.makes[cut]) if space.values[value].last > cut)
        free = self._freed(label, cut + 1, device, tuple(finish))
        child = Label(
            device,
            0.0,
            tuple(finish),
            tuple(work),
            free,
            holding,
            reached,
            frozenset(made),
            label.estimate,
            label,
        )
        return self._label(cut + 1, child)

    def _received(
        self, label: Label, past: tuple[Past, ...], cut: int, device: int, *, goes_on: bool
    ) -> tuple[tuple[Past, ...] | None, list[float]]:
        """Past runs with what the sub-module reads sent to its device, and the begin of its run in each phase."""
        if goes_on:
            start = [end - work for end, work in zip(label.finish, label.work, strict=True)]
        else:
            start = [_free(label, phase, device) for phase in self._phases]
        reads = self.space.reads[cut]
        if not reads or not past:
            return past, start
        found = []
        for run in past:
            sent, values, touched = None, None, set()
            for place, (value, where) in enumerate(run.values):
                if value not in reads or where >> device & 1:
                    continue
                if sent is None or values is None:
                    sent, values = list(run.sent), list(run.values)
                what = self.space.values[value]
                sent[what.phase] += what.bytes
                values[place] = value, where | 1 << device
                touched.add(what.phase)
            if sent is None or values is None:
                found.append(run)
                continue
            latency, per_byte = self._latency[run.device][device], self._per_byte[run.device][device]
            if math.isinf(latency):
                return None, start
            for phase in touched:
                start[phase] = max(start[phase], run.finish[phase] + latency + sent[phase] * per_byte)
            found.append(Past(run.device, run.finish, tuple(sent), tuple(values)))
        return tuple(found), start

    def _freed(
        self, label: Label, cut: int, device: int, finish: tuple[float, ...]
    ) -> tuple[tuple[float, ...], ...]:
        """When devices are free that may keep a later run waiting."""
        if self.space.is_serial:
            return ()
        found = []
        for phase in self._phases:
            times = list(label.free[phase]) if label.free else [0.0] * self.space.devices
            if label.device != device:
                times[label.device] = label.finish[phase]
            times[device] = 0.0
            least = finish[phase] if cut > self.space.serial_from[phase] else 0.0
            found.append(tuple(time if time > least else 0.0 for time in times))
        return tuple(found) if any(map(any, found)) else ()

    def _label(self, cut: int, label: Label) -> Label:
        """The label with its cost, its estimate, and without what can delay nothing any more."""
        cost = label.holding.runs * self._trifle
        for phase, weight in enumerate(self.space.weights):
            if cut > self.space.serial_from[phase]:
                cost += weight * label.finish[phase]
        room = self.rules.room(label.holding, label.device)
        least = cost + self.prices.least(cut, label.device, room, label.holding.load)
        past = tuple(run for old in label.past if (run := self._settled(old, label, cut)) is not None)
        return label._replace(cost=cost, past=past, estimate=max(label.estimate, least))

    def _settled(self, run: Past, label: Label, cut: int) -> Past | None:
        """A past run with the values that are still read; None where it can delay nothing any more."""
        values = tuple((value, where) for value, where in run.values if self.space.values[value].last >= cut)
        if not values:
            return None
        everywhere = (1 << self.space.devices) - 1
        for phase in self._phases:
            mine = [(value, where) for value, where in values if self.space.values[value].phase == phase]
            missing = everywhere
            for _, where in mine:
                missing &= where
            missing = everywhere & ~missing
            if not mine or not missing:
                continue
            if cut <= self.space.serial_from[phase]:
                return run._replace(values=values)
            left = sum(self.space.values[value].bytes for value, _ in mine)
            for device in range(self.space.devices):
                if not missing >> device & 1:
                    continue
                is_here = device == label.device
                size = left + (run.sent[phase] if is_here else 0.0)
                arrives = run.finish[phase] + self._latency[run.device][device]
                arrives += size * self._per_byte[run.device][device]
                if arrives + (label.work[phase] if is_here else 0.0) > label.finish[phase]:
                    return run._replace(values=values)
        return None


def _free(label: Label, phase: int, device: int) -> float:
    return label.free[phase][device] if label.free else 0.0


def _lies_alike(one: Label, other: Label) -> bool:
    """Whether the values that are still read lie in the same places: links may be missing."""
    return one.own == other.own and one.past == other.past


def _is_later_in_all(one: Label, other: Label) -> bool:
    """Whether something of one is later than of the other: where runs go on side by side, each time counts alone."""
    for mine, theirs in zip(one.past, other.past, strict=True):
        if mine.device != theirs.device or mine.values != theirs.values:
            return True
        pairs = (*zip(mine.finish, theirs.finish, strict=True), *zip(mine.sent, theirs.sent, strict=True))
        if any(time > bound for time, bound in pairs):
            return True
    for phase, (end, other_end) in enumerate(zip(one.finish, other.finish, strict=True)):
        begin, other_begin = end - one.work[phase], other_end - other.work[phase]
        if end > other_end or begin > other_begin:
            return True
        times = one.free[phase] if one.free else ()
        if any(time > _free(other, phase, device) for device, time in enumerate(times)):
            return True
    return False
