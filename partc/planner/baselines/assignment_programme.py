"""LinguaLinked's Eq. 5 (section 3.2.3) written down as a mixed-integer linear programme.

    minimise  T_compute + T_data  =  sum of E(d, j) x(j, d)  +  sum over pairs of devices of L + O_d2d / B

x(j, d) says that sub-module j is on device d; any assignment is allowed. As printed it is no linear
programme: O_d2d = X O_m2m X^T is a product of variables. Here each pair (i, k) of sub-modules with an edge has
continuous variables z(i, k, a, b) = x(i, a) x(k, b), which the rows sum_b z = x(i, a) and sum_a z = x(k, b)
enforce for binary x; they also make the relaxation tight (along a chain without memory limits it is a
shortest path). Further differences:

- L is printed as a constant that no assignment changes. Here it is paid at each boundary j | j + 1 between
  two devices where an edge crosses it, once for each message of the chain. A residual pays its bytes only:
  it travels beside.
- A value with several readers is sent once to each device that reads it.
- The message back to the source counts like every transfer, with latency and bytes.
- Memory is that of `evaluate`: overhead, the largest peak, shared weights once; beta is applied already.
- For throughput, which the paper has not: the largest busy time of a device or a link instead of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import assert_never

from partc.planner.exact.objective import compute_scale
from partc.planner.model.evaluate import ValueKey, value_key
from partc.planner.model.problem import Phase, Problem

_UNIT = 100.0
"""The whole model's least computing time, in the programme's unit of time."""
_MAX_SCALE = 1e12
"""Units of time per second at most: times of less than a picosecond are not told apart."""
_MAX_COST = 1e14
"""The largest cost that the solver tells from infinity. Larger ones count as this, so that the bound stays a bound."""


@dataclass(frozen=True)
class Traffic:
    """The traffic between sub-modules in a step, weighted over the phases."""

    chained: bool
    """Whether each sub-module hands something to the next in every phase that counts."""
    latencies: Mapping[int, float]
    """j -> weight of the phases with an edge from j to j + 1."""
    outputs: Mapping[tuple[int, tuple[int, ...]], float]
    """(sub-module that makes values, those that read them) -> bytes."""

    @property
    def is_chain(self) -> bool:
        """Whether, besides, nothing skips a sub-module: then Eq. 5 is exactly the latency."""
        return self.chained and all(readers == (i + 1,) for i, readers in self.outputs)

    @classmethod
    def of(cls, problem: Problem, residuals: bool = True) -> Traffic:
        """The traffic of a problem; without `residuals` that between neighbours alone. O(edges)."""
        last = len(problem.submodules) - 1
        chained, latencies = True, dict.fromkeys(range(last), 0.0)
        outputs: dict[tuple[int, tuple[int, ...]], float] = {}
        for phase in problem.steps:
            values = _readers(phase, residuals)
            for (maker, _, _), (size, readers) in values.items():
                key = maker, tuple(sorted(readers))
                outputs[key] = outputs.get(key, 0.0) + phase.weight * size
            crossed = {maker for (maker, _, _), (_, readers) in values.items() if maker + 1 in readers}
            for maker in crossed:
                latencies[maker] += phase.weight
            chained = chained and (phase.weight == 0 or len(crossed) == last)
        return cls(chained, latencies, outputs)


def _readers(phase: Phase, residuals: bool) -> dict[ValueKey, tuple[float, set[int]]]:
    """Value -> its bytes and the sub-modules that read it."""
    values: dict[ValueKey, tuple[float, set[int]]] = {}
    for number, edge in enumerate(phase.edges):
        if residuals or edge.receiver == edge.sender + 1:
            values.setdefault(value_key(edge, number), (edge.bytes, set()))[1].add(edge.receiver)
    return values


@dataclass
class Row:
    """lower <= sum of coefficient * column <= upper."""

    lower: float
    upper: float
    terms: dict[int, float] = field(default_factory=dict)


class Programme:
    """Columns from 0 to `upper`, those of `x` binary; rows; costs to be minimised.

    O(sub-modules * devices + pairs with an edge * devices^2) columns.
    """

    def __init__(self, problem: Problem, residuals: bool = True) -> None:
        """The programme for a problem; without `residuals` what skips a sub-module costs nothing."""
        self.problem = problem
        self.traffic = Traffic.of(problem, residuals)
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.rows: list[Row] = []
        self.x: dict[tuple[int, str], int] = {}
        self._pairs: dict[tuple[int, int, str, str], int] = {}
        self._busy: dict[str, Row] = {}
        self._room = {device.name: device.room_bytes for device in problem.devices}
        self._able = [self._able_to_hold(j) for j in range(len(problem.submodules))]
        self._place()
        self._send_back()
        for i, k in sorted({(i, k) for i, readers in self.traffic.outputs for k in readers}):
            self._pair(i, k)
        for (i, readers), size in self.traffic.outputs.items():
            self._output(i, readers, size)
        for name in self._room:
            self._limit_memory(name)
        match problem.objective:
            case "latency":
                pass  # each column has its cost
            case "throughput":
                slowest = self._column(upper=math.inf, cost=1.0)
                for row in self._busy.values():
                    self.rows.append(Row(row.lower, row.upper, {**row.terms, slowest: -1.0}))
            case _:
                assert_never(problem.objective)

    @cached_property
    def scale(self) -> float:
        """Units of time per second."""
        least = compute_scale(self.problem)
        return min(_UNIT / least, _MAX_SCALE) if least > 0 else 1.0

    def _able_to_hold(self, j: int) -> list[str]:
        """The devices that may hold a sub-module: the first one the source alone."""
        need = self.problem.memory_of([j])
        return [
            name
            for name in self.problem.device_of
            if (j > 0 or name == self.problem.source)
            and need <= self._room[name]
            and all(name in phase.time_s[j] for phase in self.problem.steps)
        ]

    def _place(self) -> None:
        """x: every sub-module is on one device and keeps it busy."""
        for j, names in enumerate(self._able):
            for name in names:
                self.x[j, name] = self._column()
                seconds = sum(phase.weight * phase.time_s[j][name] for phase in self.problem.steps)
                self._spend(name, self.x[j, name], seconds)
            self.rows.append(Row(1.0, 1.0, {self.x[j, name]: 1.0 for name in names}))

    def _send_back(self) -> None:
        """The message from the last sub-module's device to the source, and results of others, without a latency.

        A result that later sub-modules read may be on the source for their sake: it costs nothing here.
        """
        source, last = self.problem.source, len(self._able) - 1
        for name in self._able[last]:
            if link := self.problem.link_of.get((name, source)):
                seconds = sum(phase.weight * link.seconds(phase.return_bytes) for phase in self.problem.steps)
                self._spend(f"{name}->{source}", self.x[last, name], seconds)
            elif name != source:
                self.upper[self.x[last, name]] = 0.0
        for phase in self.problem.steps:
            read = {(edge.sender, edge.value) for edge in phase.edges}
            for result in phase.results:
                for name in self._able[result.maker] if (result.maker, result.value) not in read else ():
                    if link := self.problem.link_of.get((name, source)):
                        seconds = phase.weight * result.bytes / link.bandwidth_bytes_per_s
                        self._spend(f"{name}->{source}", self.x[result.maker, name], seconds)

    def _pair(self, i: int, k: int) -> None:
        """z: whether i is on a and k on b; the latency of a message along the chain is paid here."""
        weight = self.traffic.latencies[i] if k == i + 1 else 0.0
        leaving = {a: Row(0.0, 0.0, {self.x[i, a]: -1.0}) for a in self._able[i]}
        arriving = {b: Row(0.0, 0.0, {self.x[k, b]: -1.0}) for b in self._able[k]}
        for a in leaving:
            for b in arriving:
                link = self.problem.link_of.get((a, b))
                column = self._column(upper=1.0 if link or a == b else 0.0)
                self._pairs[i, k, a, b] = column
                leaving[a].terms[column] = arriving[b].terms[column] = 1.0
                if link:
                    self._spend(f"{a}->{b}", column, weight * link.latency_s)
        self.rows += [*leaving.values(), *arriving.values()]

    def _output(self, i: int, readers: tuple[int, ...], size: float) -> None:
        """The bytes that sub-module i sends: once to each device with a reader."""
        for a in self._able[i]:
            for b in dict.fromkeys(b for k in readers for b in self._able[k]):
                link = self.problem.link_of.get((a, b))
                if link is None or size == 0:
                    continue
                read = [self._pairs[i, k, a, b] for k in readers if b in self._able[k]]
                sent = read[0] if len(read) == 1 else self._column()
                if len(read) > 1:
                    self.rows += [Row(-math.inf, 0.0, {column: 1.0, sent: -1.0}) for column in read]
                self._spend(f"{a}->{b}", sent, size / link.bandwidth_bytes_per_s)

    def _limit_memory(self, name: str) -> None:
        """The sub-modules on the device, the largest peak and each shared group once fit; in parts of its memory."""
        parts, room = self.problem.submodules, self._room[name]
        held = [j for j, names in enumerate(self._able) if name in names]
        if not held or self.problem.memory_of(held) <= room:
            return
        limit = Row(-math.inf, 1.0, {self.x[j, name]: parts[j].memory_bytes / room for j in held})
        peak = self._column()
        limit.terms[peak] = 1.0
        groups: dict[str, int] = {}
        for j in held:
            self.rows.append(Row(-math.inf, 0.0, {self.x[j, name]: parts[j].peak_bytes / room, peak: -1.0}))
            if shared := parts[j].shared:
                group = groups.setdefault(shared.name, len(self.cost))
                if group == len(self.cost):
                    self._column()
                    limit.terms[group] = shared.bytes / room
                self.rows.append(Row(-math.inf, 0.0, {self.x[j, name]: 1.0, group: -1.0}))
        self.rows.append(limit)

    def _spend(self, who: str, column: int, seconds: float) -> None:
        """The column costs a device or link these seconds: of the sum, or of its own busy time."""
        cost = min(seconds * self.scale, _MAX_COST)
        match self.problem.objective:
            case "latency":
                self.cost[column] += cost
            case "throughput":
                if seconds > 0:
                    terms = self._busy.setdefault(who, Row(-math.inf, 0.0)).terms
                    terms[column] = terms.get(column, 0.0) + cost
            case _:
                assert_never(self.problem.objective)

    def _column(self, upper: float = 1.0, cost: float = 0.0) -> int:
        """The index of a new column."""
        self.cost.append(cost)
        self.upper.append(upper)
        return len(self.cost) - 1
