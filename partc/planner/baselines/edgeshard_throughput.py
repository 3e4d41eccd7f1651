"""The strategy `edgeshard-throughput`: EdgeShard, section IV-B, Eq. 12-14 and Algorithm 2, as published.

    g(m, S + {j}, j) = min over i, k of max(g(i, S, k), t_comm(i-1, k, j), t_comp(i -> m, j)),   j not in S
    g(1, {0}, 0) = t_comp(0, 0)

g(m, S, j) is the slowest device or link when the devices S hold the first m layers and j the last of them.
Where it falls behind `optimal`:

- The source holds the first layer and no other: Eq. 14 begins with one layer on it, and Eq. 12 never comes
  back to a device. What the source could do is lost, the plan with everything on the source is not among
  those looked at, and where the others have no room for the rest there is no plan. (In Table IV the paper's
  own program puts all of Llama-2-7B on the source.)
- The message back to the source is not in Eq. 12: it may be the bottleneck, or ask for a link that is not
  there. The same holds for residual edges and for the latency of links.
- The activations and the shared weights of all layers of a device are added up (see `traces.py`).

Where the printed algorithm contradicts the equations, the equations hold: line 15 compares with the state
that it comes from, so that no stage could be slower than the first layer; lines 3, 6 and 25 end at N - 1 and
would leave the last layer without a device; line 8 refuses what fits exactly. Ours differs in one more thing,
without changing the value: devices that are alike are counted, not named, so that a set of 12 equal ones
has 13 states instead of 4096. The states S and the device j determine where a state comes from, so that the
whole takes O(states T N^2) operations for T types instead of O(N^2 2^M M^2).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt

from partc.errors import PlanError
from partc.format.placement import stages_of
from partc.format.plan import Plan
from partc.planner.baselines.traces import Array, Traces
from partc.planner.baselines.valued import missed_plan, valued_plan
from partc.planner.model.effort import EDGESHARD
from partc.planner.model.problem import Problem

_METHOD = "EdgeShard's dynamic programme for throughput"

_PER_STATE = 30_000
"""Operations of a state besides its N^2."""

Used = tuple[int, ...]
"""Devices in use of each type, the source's type left out."""

Choice = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
"""[m]: the best i; [i]: the best k, by type."""


def plan_edgeshard_throughput(problem: Problem) -> Plan:
    """Algorithm 2 of EdgeShard; it maximises a throughput whatever the objective of the problem is.

    Raises:
        PlanError: there are too many unlike devices for a recurrence over sets of them.
    """
    traces = Traces.of(problem)
    path = allocate(traces)
    if path is None:
        fault = (
            "Eq. 14 leaves the source with the first sub-module alone, and the others cannot take the rest"
        )
        return missed_plan(problem, _METHOD, fault)
    stages = stages_of([traces.names[device] for device in path])
    return valued_plan(problem, stages, _METHOD, " (Eq. 12 sees neither the return nor residual messages)")


def allocate(traces: Traces) -> list[int] | None:
    """The device of every layer, or None where no state is left. O(states T N^2)."""
    types = group_alike(traces)
    if traces.need_bytes[0] > traces.memory_bytes[0]:
        return None
    table = _Table(traces, types)
    table.fill()
    return table.backtrack()


class _Table:
    """g and choice of Algorithm 2, by devices in use and the type of the last one; type 0 is the source."""

    def __init__(self, traces: Traces, types: list[list[int]]) -> None:
        self.traces = traces
        self.types = types
        self.count = len(traces.need_bytes)
        self.sizes = tuple(len(members) for members in types[1:])
        self._refuse_too_many()
        self.stages = [self._stage(members[0]) for members in types]
        start = np.full(self.count + 1, np.inf)
        start[1] = traces.compute_s[0, 0]
        self.g: dict[Used, dict[int, Array]] = {(0,) * len(self.sizes): {0: start}}
        self.choice: dict[tuple[Used, int], Choice] = {}

    def fill(self) -> None:
        """Lines 3-23; a set comes after all that it contains."""
        for used in sorted(itertools.product(*(range(size + 1) for size in self.sizes)), key=sum):
            for kind in range(1, len(self.types)):
                if used[kind - 1]:
                    self._reach(used, kind)

    def backtrack(self) -> list[int] | None:
        """Lines 24-32: the device of every layer."""
        ends = [(float(g[self.count]), used, kind) for used, row in self.g.items() for kind, g in row.items()]
        value, used, kind = min(ends)
        if not math.isfinite(value):
            return None
        members = [iter(names) for names in self.types]
        end, intervals = self.count, []
        while kind:
            earlier, last = self.choice[used, kind]
            begin = int(earlier[end])
            intervals.append((kind, end - begin))
            used, kind, end = _less_one(used, kind), int(last[begin]), begin
        path = [0]
        for kind, size in reversed(intervals):
            path += [next(members[kind])] * size
        return path

    def _reach(self, used: Used, kind: int) -> None:
        """Eq. 12 for all m: what comes before, the transfer and the stage; the smallest maximum."""
        before = self.g.get(_less_one(used, kind), {})
        if not before:
            return
        kinds = list(before)
        arrived = np.stack([np.maximum(before[k], self._transfer(k, kind)) for k in kinds])
        best = arrived.argmin(axis=0)
        total = np.maximum(arrived.min(axis=0)[:, None], self.stages[kind])
        earlier = total.argmin(axis=0)
        self.g.setdefault(used, {})[kind] = total[earlier, np.arange(self.count + 1)]
        self.choice[used, kind] = earlier, np.array(kinds)[best]

    def _transfer(self, sender: int, receiver: int) -> Array:
        """[i]: the output of layer i - 1 from one type to another (or to another member of the same)."""
        seconds = self.traces.transfer_s[:, self.types[sender][0], self.types[receiver][-1]]
        return np.concatenate([[np.inf], seconds])

    def _stage(self, device: int) -> Array:
        """[i, m]: t_comp of layers i..m-1, infinite where they do not fit (Eq. 13) or are none."""
        result = np.full((self.count + 1, self.count + 1), np.inf)
        for i in range(self.count):
            fits = np.cumsum(self.traces.need_bytes[i:]) <= self.traces.memory_bytes[device]
            result[i, i + 1 :] = np.where(fits, np.cumsum(self.traces.compute_s[i:, device]), np.inf)
        return result

    def _refuse_too_many(self) -> None:
        states = math.prod(float(size + 1) for size in self.sizes) * len(self.sizes)
        if states * (self.count**2 + _PER_STATE) > EDGESHARD:
            raise PlanError(
                f"edgeshard-throughput goes through all sets of devices: {len(self.sizes)} unlike ones besides "
                f"the source and {self.count} sub-modules are too many",
                hint="use fewer unlike devices, coarser sub-modules, or --strategy optimal",
            )


def group_alike(traces: Traces) -> list[list[int]]:
    """Devices by type, the source first and alone: two are alike if nothing changes when they change places."""
    types = [[0]]
    for device in range(1, len(traces.names)):
        same = next((members for members in types[1:] if _alike(traces, members[0], device)), None)
        if same is None:
            types.append([device])
        else:
            same.append(device)
    return types


def _alike(traces: Traces, a: int, b: int) -> bool:
    swapped = np.arange(len(traces.names))
    swapped[[a, b]] = b, a
    return (
        bool(traces.memory_bytes[a] == traces.memory_bytes[b])
        and np.array_equal(traces.compute_s[:, a], traces.compute_s[:, b])
        and np.array_equal(traces.transfer_s[:, swapped][:, :, swapped], traces.transfer_s)
    )


def _less_one(used: Used, kind: int) -> Used:
    """Without one device of a type."""
    return (*used[: kind - 1], used[kind - 1] - 1, *used[kind:])
