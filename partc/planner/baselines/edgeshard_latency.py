"""The strategy `edgeshard-latency`: EdgeShard, section IV-A, Eq. 7-9 and Algorithm 1, as published.

    DP(i, j) = min over k of DP(i-1, k) + t_comp(i, j) + t_comm(i-1, k, j) [+ t_comm(N-1, j, 0) if i = N-1]

DP(i, j) is the least time of layers 0..i with layer i on device j. Where it falls behind `optimal`:

- Memory under pressure. What is left of every device (Eq. 5) depends on the whole path, but a state
  remembers it for one path only, the fastest so far; the path that is a little slower and keeps the memory
  that later layers need is gone. The plan may then be slower than the best one, or there is none at all.
  `optimal` has the set of devices in use in its state and checks each interval as a whole.
- Latency of links (Eq. 1 has bandwidth alone) and residual edges are not seen; a residual edge may ask for a
  link that is not there, and then the plan is infeasible.
- The activations and the shared weights of all layers of a device are added up (see `traces.py`).

A device may be used again after another one; `evaluate` knows such plans, and they may even be better than
the best plan with one interval per device.

Where the printed algorithm contradicts the equations, the equations hold. Line 13 updates one Mem_j for all
states, also for the layers that end up elsewhere: read to the letter, 15 devices could never hold a model
that is larger than each of them, and the paper's own 70B plan could not exist. Line 5 refuses a layer that
fits exactly, which Eq. 5 admits.
"""

from __future__ import annotations

import numpy as np

from partc.format.placement import stages_of
from partc.format.plan import Plan
from partc.planner.baselines.traces import Traces
from partc.planner.baselines.valued import missed_plan, valued_plan
from partc.planner.model.problem import Problem

_METHOD = "EdgeShard's dynamic programme for latency"


def plan_edgeshard_latency(problem: Problem) -> Plan:
    """Algorithm 1 of EdgeShard; it minimises a latency whatever the objective of the problem is."""
    traces = Traces.of(problem)
    path = allocate(traces)
    if path is None:
        fault = "each state of Eq. 7 remembers the memory of one path, and those that it kept have run out"
        return missed_plan(problem, _METHOD, fault)
    stages = stages_of([traces.names[device] for device in path])
    return valued_plan(problem, stages, _METHOD, " (Eq. 7 does not see residual messages)")


def allocate(traces: Traces) -> list[int] | None:
    """The device of every layer, or None where no state is left. O(N M^2)."""
    count, size = traces.compute_s.shape
    devices = np.arange(size)
    least = np.full(size, np.inf)
    least[0] = traces.compute_s[0, 0] if traces.need_bytes[0] <= traces.memory_bytes[0] else np.inf
    used = np.zeros((size, size))  # [device of the last layer, device]: bytes along the path to that state
    used[0, 0] = traces.need_bytes[0]
    choices = []
    for i in range(1, count):
        total = least[:, None] + traces.transfer_s[i - 1] + traces.compute_s[i]
        if i == count - 1:
            total = total + traces.transfer_s[i, :, 0]
        total = np.where(used + traces.need_bytes[i] <= traces.memory_bytes, total, np.inf)
        # Line 11 replaces equals, so that the last one stays.
        choice = size - 1 - total[::-1].argmin(axis=0)
        least, used = total[choice, devices], used[choice]
        used[devices, devices] += traces.need_bytes[i]
        choices.append(choice)
    last = int(least.argmin())
    if not np.isfinite(least[last]):
        return None
    path = [last]
    for choice in reversed(choices):
        path.append(int(choice[path[-1]]))
    return path[::-1]
