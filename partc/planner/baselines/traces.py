"""A planning problem as EdgeShard sees it (section IV, System Model and Table II).

What its model leaves out is lost here, on purpose, and comes back when `evaluate` judges the plan:

| here | EdgeShard | what our model has besides |
|---|---|---|
| `compute_s` | t_comp: one time per layer and device | phases: the weighted sum of their times stands for them |
| `transfer_s` | t_comm = O / B (Eq. 1) | latency of links; residual edges, for O goes to the next layer only |
| `need_bytes` | Req: a sum over layers (Eq. 5, 13) | the largest peak and shared weights count once per device |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partc.planner.model.evaluate import value_key
from partc.planner.model.problem import Phase, Problem

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Traces:
    """N layers (our sub-modules), M devices; device 0 is the source."""

    names: tuple[str, ...]
    """Names of the devices."""
    compute_s: Array
    """[N, M]; infinite where a device cannot run a layer."""
    transfer_s: Array
    """[N, M, M]: output of a layer from one device to another, of the last layer the message back to the
    source; 0 on one device, infinite without a link."""
    need_bytes: Array
    """[N]: what each layer needs on a device of its own."""
    memory_bytes: Array
    """[M]: usable memory less the overhead."""

    @classmethod
    def of(cls, problem: Problem) -> Traces:
        """The problem in EdgeShard's terms. O(N M^2)."""
        names = (problem.source, *(name for name in problem.device_of if name != problem.source))
        devices = [problem.device_of[name] for name in names]
        return cls(
            names=names,
            compute_s=_compute(problem, names),
            transfer_s=_transfers(problem, names),
            need_bytes=np.array([problem.memory_of([j]) for j in range(len(problem.submodules))], float),
            memory_bytes=np.array([device.room_bytes for device in devices], float),
        )


def _compute(problem: Problem, names: tuple[str, ...]) -> Array:
    result = np.zeros((len(problem.submodules), len(names)))
    for phase in problem.steps:
        times = np.array([[layer.get(name, np.inf) for name in names] for layer in phase.time_s])
        # What a device cannot run it cannot run in a phase of no weight either.
        result += np.where(np.isfinite(times), phase.weight * times, np.inf)
    return result


def _transfers(problem: Problem, names: tuple[str, ...]) -> Array:
    bandwidth = np.zeros((len(names), len(names)))
    for a, sender in enumerate(names):
        for b, receiver in enumerate(names):
            if link := problem.link_of.get((sender, receiver)):
                bandwidth[a, b] = link.bandwidth_bytes_per_s
    result = np.zeros((len(problem.submodules), len(names), len(names)))
    for phase in problem.steps:
        for layer, count in _outputs(phase).items():
            seconds = np.full_like(bandwidth, np.inf)
            np.divide(phase.weight * count, bandwidth, out=seconds, where=bandwidth > 0)
            result[layer] += seconds
    diagonal = np.arange(len(names))
    result[:, diagonal, diagonal] = 0.0
    return result


def _outputs(phase: Phase) -> dict[int, float]:
    """O: layer -> bytes that the next layer reads of it; of the last layer, what goes back to the source."""
    values = {
        value_key(edge, number): edge.bytes
        for number, edge in enumerate(phase.edges)
        if edge.receiver == edge.sender + 1
    }
    outputs = {len(phase.time_s) - 1: phase.return_bytes}
    for (layer, _, _), count in values.items():
        outputs[layer] = outputs.get(layer, 0.0) + count
    return outputs
