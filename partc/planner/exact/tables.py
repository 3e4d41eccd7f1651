"""A planning problem as arrays, in the form that the solvers read.

Cuts are numbered 0..n: the interval [b, c) holds sub-modules b..c-1, so that every table is indexed by [b,
c].

Devices that can be exchanged without changing the problem (same memory, same times, same links) form one
*type*, so that twelve equal boards are one type of twelve members and not 2**12 sets. The source is a type
of its own, type 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from partc.planner.model.evaluate import ValueKey, value_key
from partc.planner.model.problem import Device, Problem

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


_MAX_KEPT = 1.5e7
"""Elements of traffic rows that are kept."""


@dataclass(frozen=True)
class Forced:
    """Plans that use fewer of the devices that are like `device` do not count."""

    device: str
    count: int


@dataclass(frozen=True)
class Value:
    """A value that one sub-module makes and later ones use, in one phase."""

    phase: int
    maker: int
    bytes: float
    users: tuple[int, ...]
    """Sub-modules, ascending."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """The message from one interval to the interval [b, c), for every c at once."""

    bytes: Array
    """Indexed by c."""
    exists: Mask
    """Whether there is a message at all, indexed by c."""


class Tables:
    """The arrays of one problem; n sub-modules, T types, P phases."""

    def __init__(self, problem: Problem, forced: Forced | None = None) -> None:
        """Builds the types; everything else is computed when it is first read."""
        self.problem = problem
        self.count = len(problem.submodules)
        self.types = group_devices(problem)
        self.least = tuple(
            forced.count if forced and forced.device in members else 0 for members in self.types
        )
        """The least number of members of each type; plans that use fewer do not count."""
        self.weights = [phase.weight for phase in problem.steps]
        self._traffic: dict[tuple[int, int, int, int], Traffic] = {}

    @cached_property
    def capacity(self) -> tuple[int, ...]:
        """Members of each type; the source's is 0, since it is always in use already."""
        return (0, *(len(members) for members in self.types[1:]))

    @cached_property
    def reach(self) -> Indices:
        """[type, b]: the farthest end of an interval from b whose memory, storage and times allow it; b if none.

        Memory and storage only grow with an interval, so that every end up to there is possible, too. O(T n^2).
        """
        devices = [self.problem.device_of[members[0]] for members in self.types]
        taken = np.array([[device.overhead_bytes] for device in devices], float)
        room = np.array([[device.memory_bytes] for device in devices], float)
        ends = np.repeat(np.arange(self.count + 1)[None, :], len(devices), axis=0)
        storage = np.array([[_storage(device)] for device in devices], float)
        for b, (need, disk) in enumerate(self._needs()):
            ends[:, b] += ((taken + need <= room) & (disk <= storage)).sum(axis=1)
        unknown = np.stack([self._first_unknown(device.name) for device in devices])
        ends = np.minimum(np.minimum(ends, unknown), self._busy_ends())
        return np.maximum(ends, np.arange(self.count + 1)[None, :])

    @cached_property
    def fits(self) -> list[Mask]:
        """[b, c] for each type: whether the interval is not empty, its memory suffices and every time is known."""
        cuts = np.arange(self.count + 1)
        return [(cuts[None, :] > cuts[:, None]) & (cuts[None, :] <= ends[:, None]) for ends in self.reach]

    @cached_property
    def elapsed(self) -> Array:
        """[type, phase, c]: seconds of all sub-modules before c; those that the type cannot run count 0."""
        phases = self.problem.steps
        result = np.zeros((len(self.types), len(phases), self.count + 1))
        for t, members in enumerate(self.types):
            for p, phase in enumerate(phases):
                result[t, p, 1:] = np.cumsum([times.get(members[0], 0.0) for times in phase.time_s])
        return result

    def seconds(self, kind: int, phase: int, cut: int) -> Array:
        """[c]: time of the interval [cut, c) on this type; meaningless where it cannot run it."""
        elapsed = self.elapsed[kind, phase]
        return np.asarray(np.maximum(elapsed - elapsed[cut], 0.0))

    def fits_from(self, kind: int, cut: int) -> Mask:
        """[c]: one row of `fits`."""
        cuts = np.arange(self.count + 1)
        return np.asarray((cuts > cut) & (cuts <= self.reach[kind, cut]))

    def weighted_from(self, kind: int, cut: int) -> Array:
        """[c]: the times of all phases by weight, infinite where the interval does not fit."""
        total = np.zeros(self.count + 1)
        for p, weight in enumerate(self.weights):
            total += weight * self.seconds(kind, p, cut)
        return np.where(self.fits_from(kind, cut), total, np.inf)

    def weighted_seconds(self, kind: int) -> Array:
        """[b, c]: all rows of `weighted_from`."""
        return np.stack([self.weighted_from(kind, cut) for cut in self._cuts])

    @cached_property
    def links(self) -> list[list[tuple[float, float] | None]]:
        """Latency and seconds per byte between members of two types; None without a link."""
        return [[self._link(a, b) for b in range(len(self.types))] for a in range(len(self.types))]

    @cached_property
    def values(self) -> list[Value]:
        """All values of all phases, ordered by maker."""
        users: dict[tuple[int, ValueKey], set[int]] = {}
        sizes: dict[tuple[int, ValueKey], float] = {}
        for p, phase in enumerate(self.problem.steps):
            for number, edge in enumerate(phase.edges):
                key = p, value_key(edge, number)
                users.setdefault(key, set()).add(edge.receiver)
                sizes[key] = edge.bytes
        values = [Value(p, key[0], sizes[p, key], tuple(sorted(users[p, key]))) for p, key in users]
        return sorted(values, key=lambda value: value.maker)

    @cached_property
    def made_before(self) -> list[int]:
        """The values made before each cut, as bits."""
        return [
            self._bits(i for i, value in enumerate(self.values) if value.maker < cut) for cut in self._cuts
        ]

    @cached_property
    def used_after(self) -> list[int]:
        """The values used after each cut, as bits."""
        return [
            self._bits(i for i, value in enumerate(self.values) if value.users[-1] >= cut)
            for cut in self._cuts
        ]

    @cached_property
    def path(self) -> tuple[int, ...]:
        """A longest chain of sub-modules, each using the one before in every phase, up to the last."""
        common = set.intersection(
            *({(e.sender, e.receiver) for e in phase.edges} for phase in self.problem.steps)
        )
        best: list[tuple[int, ...]] = [(j,) for j in range(self.count)]
        for sender, receiver in sorted(common, key=lambda pair: pair[::-1]):
            if len(best[sender]) >= len(best[receiver]):
                best[receiver] = (*best[sender], receiver)
        return best[-1]

    @cached_property
    def path_before(self) -> list[int]:
        """The last sub-module of the path before each cut, or -1."""
        return [max((j for j in self.path if j < cut), default=-1) for cut in self._cuts]

    @cached_property
    def on_path(self) -> Mask:
        """[b, c]: the interval holds a sub-module of the path."""
        before = np.array(self.path_before)
        return np.asarray(before[None, :] >= np.arange(self.count + 1)[:, None])

    @cached_property
    def return_seconds(self) -> Array:
        """The weighted message back to the source from each type; infinite without a link."""
        result = np.full(len(self.types), np.inf)
        result[0] = 0.0
        for t in range(1, len(self.types)):
            if link := self.links[t][0]:
                sending = [phase.return_bytes * link[1] for phase in self.problem.steps]
                if not any(self.sends_too_long(p, seconds) for p, seconds in enumerate(sending)):
                    result[t] = sum(
                        weight * (link[0] + seconds)
                        for weight, seconds in zip(self.weights, sending, strict=True)
                    )
        return result

    def traffic(self, phase: int, first: int, end: int, cut: int) -> Traffic:
        """The message of the interval [first, end) to [cut, c), for every c; cut >= end."""
        key = phase, first, end, cut
        if key not in self._traffic:
            if len(self._traffic) * self.count > _MAX_KEPT:
                self._traffic.clear()
            bytes_, exists = np.zeros(self.count + 2), np.zeros(self.count + 2)
            for value in self._made_in(phase, first, end):
                place = bisect_left(value.users, cut)
                if place < len(value.users):
                    bytes_[value.users[place] + 1] += value.bytes
                    exists[value.users[place] + 1] = 1
            self._traffic[key] = Traffic(np.cumsum(bytes_)[:-1], np.cumsum(exists)[:-1] > 0)
        return self._traffic[key]

    def _made_in(self, phase: int, first: int, end: int) -> list[Value]:
        low, high = (bisect_left(self._makers, cut) for cut in (first, end))
        return [value for value in self.values[low:high] if value.phase == phase]

    @cached_property
    def _makers(self) -> list[int]:
        return [value.maker for value in self.values]

    @cached_property
    def _cuts(self) -> range:
        return range(self.count + 1)

    @staticmethod
    def _bits(indices: Iterable[int]) -> int:
        return sum(1 << index for index in indices)

    def _link(self, a: int, b: int) -> tuple[float, float] | None:
        sender, receiver = self.types[a][0], self.types[b][-1]
        link = self.problem.link_of.get((sender, receiver))
        return (link.latency_s, 1.0 / link.bandwidth_bytes_per_s) if link else None

    def _first_unknown(self, name: str) -> Indices:
        """[b]: the first sub-module from b on that the device cannot run, or n."""
        result = np.full(self.count + 1, self.count)
        for j in range(self.count - 1, -1, -1):
            known = all(name in phase.time_s[j] for phase in self.problem.steps)
            result[j] = result[j + 1] if known else j
        return result

    def _busy_ends(self) -> Indices:
        """[type, b]: the farthest end of an interval from b that is busy for no longer than the problem allows."""
        most, decode = self.problem.most_busy_s, self.problem.decode
        if most is None or decode is None:
            return np.full((len(self.types), self.count + 1), self.count)
        elapsed = self.elapsed[:, decode]
        found = [np.searchsorted(each, each + most, side="right") - 1 for each in elapsed]
        return np.stack(found)

    def sends_too_long(self, phase: int, seconds: Array | float) -> Mask:
        """Whether links may not be busy for so long, in a step of this phase."""
        most = self.problem.most_busy_s
        if most is None or phase != self.problem.decode:
            return np.zeros(np.shape(seconds), bool)
        return np.asarray(np.asarray(seconds) > most)

    def _needs(self) -> Iterator[tuple[Array, Array]]:
        """Memory and disk of the intervals [b, b + 1), [b, b + 2) and so on up to the end, for each begin b: bytes."""
        parts = self.problem.submodules
        weights = np.array([part.memory_bytes for part in parts], float)
        peaks = np.array([part.peak_bytes for part in parts], float)
        disks = np.array([part.disk_bytes for part in parts], float)
        shared = np.array([part.shared.bytes if part.shared else 0 for part in parts], float)
        earlier = _last_of_group([part.shared.name if part.shared else None for part in parts])
        for b in range(self.count):
            once = np.cumsum(np.where(earlier[b:] < b, shared[b:], 0.0))
            memory = np.cumsum(weights[b:]) + np.maximum.accumulate(peaks[b:]) + once
            yield memory, np.cumsum(disks[b:]) + once


def group_devices(problem: Problem) -> list[list[str]]:
    """The types: lists of device names, in the order of the devices, the source first and alone. O(D^3)."""
    types = [[problem.source]]
    for name in problem.device_of:
        if name == problem.source:
            continue
        same = next((members for members in types[1:] if _exchangeable(problem, name, members[0])), None)
        if same is None:
            types.append([name])
        else:
            same.append(name)
    return types


def _exchangeable(problem: Problem, a: str, b: str) -> bool:
    """Whether the problem stays the same when two devices change places."""
    first, second = problem.device_of[a], problem.device_of[b]
    if replace(first, name="") != replace(second, name=""):
        return False
    if any(times.get(a) != times.get(b) for phase in problem.steps for times in phase.time_s):
        return False

    def figures(x: str, y: str) -> tuple[float, float] | None:
        link = problem.link_of.get((x, y))
        return (link.bandwidth_bytes_per_s, link.latency_s) if link else None

    others = (name for name in problem.device_of if name not in (a, b))
    return figures(a, b) == figures(b, a) and all(
        figures(a, x) == figures(b, x) and figures(x, a) == figures(x, b) for x in others
    )


def _storage(device: Device) -> float:
    return math.inf if device.storage_bytes is None else device.storage_bytes


def _last_of_group(names: list[str | None]) -> npt.NDArray[np.int64]:
    """The sub-module before each one with the same name, or -1."""
    seen: dict[str | None, int] = {}
    result = []
    for j, name in enumerate(names):
        result.append(-1 if name is None else seen.get(name, -1))
        seen[name] = j
    return np.array(result, np.int64)
