"""A planning problem as the searches for plans that return read it: devices by number, the source first.

n sub-modules, D devices, P phases. What cannot be (a time, a link) is infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from partc.format.placement import Stages, stages_of
from partc.planner.exact.tables import Array, Forced, Mask, group_devices
from partc.planner.model.evaluate import value_key
from partc.planner.model.problem import Problem


@dataclass(frozen=True, slots=True)
class Value:
    """A value that one sub-module makes and later ones read, in one phase."""

    phase: int
    maker: int
    bytes: float
    last: int
    """The last sub-module that reads it."""


def weighed(weight: float, seconds: Array) -> Array:
    """Weighted seconds; what cannot be stays infinite, whatever its weight."""
    return np.where(np.isfinite(seconds), weight * np.where(np.isfinite(seconds), seconds, 0.0), np.inf)


class Space:
    """The arrays of one problem."""

    def __init__(self, problem: Problem, forced: Forced | None = None) -> None:
        """O(D (n + D) + edges)."""
        self.problem = problem
        self.names = [problem.source, *(name for name in problem.device_of if name != problem.source)]
        self.count, self.devices = len(problem.submodules), len(self.names)
        self.forced = self._forced(forced)
        """(devices as bits, how many of them a plan must use)."""
        devices, parts = [problem.device_of[name] for name in self.names], problem.submodules
        self.room = [device.room_bytes for device in devices]
        self.storage = [
            math.inf if device.storage_bytes is None else device.storage_bytes for device in devices
        ]
        self.memory = [float(part.memory_bytes) for part in parts]
        self.peak = [float(part.peak_bytes) for part in parts]
        self.disk = [float(part.disk_bytes) for part in parts]
        groups = list(dict.fromkeys(part.shared.name for part in parts if part.shared))
        self.group = [groups.index(part.shared.name) if part.shared else -1 for part in parts]
        sizes = {part.shared.name: float(part.shared.bytes) for part in parts if part.shared}
        self.group_bytes = [sizes[name] for name in groups]
        self.weights = [phase.weight for phase in problem.steps]
        self.time = self._times()
        """[phase][sub-module][device]: seconds; infinite in every phase where one is missing."""
        self.latency, self.per_byte = self._links()
        """[sender][receiver]: seconds, and seconds per byte; 0 within a device."""
        self.values, self.reads, self.makes = self._values()
        """The values, and for each sub-module the numbers of those that it reads and makes."""

    def stages(self, assignment: list[int]) -> Stages:
        """The stages of a plan that gives each sub-module a device."""
        return stages_of([self.names[device] for device in assignment])

    @cached_property
    def back(self) -> Array:
        """[device]: weighted seconds of the message back to the source."""
        seconds = np.zeros(self.devices)
        for phase in self.problem.steps:
            seconds += weighed(phase.weight, self.latency[:, 0] + phase.return_bytes * self.per_byte[:, 0])
        seconds[0] = 0.0
        return seconds

    @cached_property
    def weighted(self) -> Array:
        """[sub-module, device]: seconds of all phases by weight; infinite where it cannot run there."""
        known = np.where(self.able, np.array(self.time), 0.0)
        return np.where(self.able, np.einsum("p,pjd->jd", self.weights, known), np.inf)

    @cached_property
    def chained(self) -> list[list[bool]]:
        """[phase][cut]: whether the sub-module before the cut hands something to the one behind it."""
        found = [[False] * (self.count + 1) for _ in self.weights]
        for j, numbers in enumerate(self.reads):
            for number in numbers:
                value = self.values[number]
                found[value.phase][j] |= value.maker == j - 1
        return found

    @cached_property
    def serial_from(self) -> list[int]:
        """[phase]: from this sub-module on each hands something to the next: no run begins before the last one ends."""
        found = []
        for chained in self.chained:
            breaks = [cut for cut in range(1, self.count) if not chained[cut]]
            found.append(max(breaks, default=0))
        return found

    @property
    def is_serial(self) -> bool:
        """Whether that holds from the first sub-module on in every phase."""
        return not any(self.serial_from)

    @cached_property
    def links_all(self) -> bool:
        """Whether every device can send to every other one."""
        return bool(np.isfinite(self.latency).all())

    def chain_bytes(self, phase: int) -> Array:
        """[cut]: bytes that the sub-module before the cut hands to the one behind it."""
        found = np.zeros(self.count + 1)
        for j, numbers in enumerate(self.reads):
            for number in numbers:
                value = self.values[number]
                if value.phase == phase and value.maker == j - 1:
                    found[j] += value.bytes
        return found

    @cached_property
    def charged(self) -> Array:
        """[sub-module, device]: memory that it surely adds; a group is divided among the members that may lie there."""
        load = np.repeat(np.array(self.memory)[:, None], self.devices, axis=1)
        for group, size in enumerate(self.group_bytes):
            members = [j for j in range(self.count) if self.group[j] == group]
            is_at_source = members[0] == 0
            elsewhere = members[1:] if is_at_source else members
            if is_at_source:
                load[0, 0] += size
            for j in elsewhere:
                load[j, 1:] += size / len(elsewhere)
                load[j, 0] += 0.0 if is_at_source else size / len(elsewhere)
        return load

    @cached_property
    def alone(self) -> Array:
        """[sub-module, device]: memory that it adds to any interval; a head alone has its group beside no embedding."""
        needs = np.repeat(np.array(self.memory)[:, None], self.devices, axis=1)
        for group, size in enumerate(self.group_bytes):
            members = [j for j in range(self.count) if self.group[j] == group]
            if len(members) == 2 and members[0] == 0:
                needs[members[1], 1:] += size
        return needs

    @cached_property
    def able(self) -> Mask:
        """[sub-module, device]: whether it has a time in every phase."""
        return np.asarray(np.isfinite(np.array(self.time[0])))

    def _forced(self, forced: Forced | None) -> tuple[int, int]:
        if forced is None:
            return 0, 0
        alike = next(
            (names for names in group_devices(self.problem) if forced.device in names), [forced.device]
        )
        return sum(1 << self.names.index(name) for name in alike), forced.count

    def _times(self) -> list[list[list[float]]]:
        steps = self.problem.steps
        able = [
            [all(name in phase.time_s[j] for phase in steps) for name in self.names]
            for j in range(self.count)
        ]
        return [
            [
                [
                    phase.time_s[j][name] if can else math.inf
                    for name, can in zip(self.names, able[j], strict=True)
                ]
                for j in range(self.count)
            ]
            for phase in steps
        ]

    def _links(self) -> tuple[Array, Array]:
        latency = np.full((self.devices, self.devices), np.inf)
        per_byte = np.zeros((self.devices, self.devices))
        np.fill_diagonal(latency, 0.0)
        for (sender, receiver), link in self.problem.link_of.items():
            if sender != receiver and {sender, receiver} <= set(self.names):
                place = self.names.index(sender), self.names.index(receiver)
                latency[place], per_byte[place] = link.latency_s, 1.0 / link.bandwidth_bytes_per_s
        return latency, per_byte

    def _values(self) -> tuple[list[Value], list[list[int]], list[list[int]]]:
        readers: dict[tuple[int, object], tuple[int, float, set[int]]] = {}
        for number, phase in enumerate(self.problem.steps):
            for place, edge in enumerate(phase.edges):
                key = number, value_key(edge, place)
                _, _, found = readers.setdefault(key, (edge.sender, edge.bytes, set()))
                found.add(edge.receiver)
                readers[key] = edge.sender, edge.bytes, found
        values: list[Value] = []
        reads: list[list[int]] = [[] for _ in range(self.count)]
        makes: list[list[int]] = [[] for _ in range(self.count)]
        for (phase_number, _), (maker, size, found) in readers.items():
            makes[maker].append(len(values))
            for reader in found:
                reads[reader].append(len(values))
            values.append(Value(phase_number, maker, size, max(found)))
        return values, reads, makes
