"""Plans over the pieces with measured times: the value of a placement, the best one, and the step towards it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from partc.balance.pieces import Pieces, piece_problem, to_pieces, to_submodules
from partc.balance.speeds import LINKS, Ratios, Seconds
from partc.format.placement import Stages, stages_of
from partc.planner.exact.optimal import seek_best
from partc.planner.model.change import with_links, with_speeds
from partc.planner.model.effort import QUICK
from partc.planner.model.evaluate import evaluate, follow_step
from partc.planner.model.objective_values import seconds_per_token
from partc.planner.model.problem import Link, Problem
from partc.planner.model.stages import held, returns_of

_LEAST_RATIO = 1e-6
"""Ratios of time are no smaller, so that what is divided by them stays a number."""


@dataclass(frozen=True)
class Conditions:
    """All that a re-plan depends on besides the plan."""

    ratios: Ratios
    free_bytes: Mapping[str, float] = field(default_factory=dict)
    """Device → bytes that it can take besides what it has taken; absent: what the plan says."""

    def differ_by(self, other: Conditions) -> float:
        """The largest factor between the ratios of both; infinite where something else differs."""
        if self.free_bytes != other.free_bytes:
            return inf
        pairs = [(ratio, other.ratios[name]) for name, ratio in self.ratios.items()]
        return max(max(a / b, b / a) for a, b in pairs)


@dataclass(frozen=True)
class _Answer:
    """The result of the last search for a better placement."""

    stages: Stages
    """The placement in force then."""
    under: Conditions
    part: float
    """Seconds per token of the best placement, as a part of those of the one in force."""


class Replanner:
    """A plan and the pieces that its artifacts allow; stages are of sub-modules of the plan."""

    def __init__(self, problem: Problem, pieces: Pieces) -> None:
        """`problem` is that of plan.json."""
        self.names = tuple(problem.device_of)
        self.pieces = pieces
        self._problem = piece_problem(problem, pieces)
        self._last: _Answer | None = None

    def planned(self, stages: Stages) -> Seconds:
        """Seconds of one step by the plan: of every device, and of what the links add; the last phase is meant."""
        step = follow_step(self._problem, self._problem.steps[-1], to_pieces(stages, self.pieces))
        seconds: dict[str, float] = {}
        for run in step.stages:
            seconds[run.device] = seconds.get(run.device, 0.0) + run.seconds
        return {**seconds, LINKS: max(0.0, step.latency_s - sum(seconds.values()))}

    def seconds(self, stages: Stages, ratios: Ratios) -> float:
        """Seconds per token; infinite where the pieces or the memory do not allow these stages."""
        problem = _scaled(self._problem, ratios)
        value = evaluate(problem, to_pieces(stages, self.pieces)).value
        return inf if value is None else seconds_per_token(problem, value)

    def better(self, stages: Stages, under: Conditions, gain: float) -> Stages | None:
        """The best placement if it takes less time per token by such a part, else None.

        Little is computed while little changes: where all times change by at most a factor c, so does the value of
        every placement, and the best one's part of the present one's by at most c^2.
        """
        under = replace(under, free_bytes=self._binding(stages, under.free_bytes))
        last = self._last
        if last and last.stages == stages and last.part > (1 - gain) * under.differ_by(last.under) ** 2:
            return None
        found, now = self.best(stages, under), self.seconds(stages, under.ratios)
        part = self.seconds(found, under.ratios) / now if found and now < inf else 1.0
        self._last = _Answer(stages, under, part)
        return found if part <= 1 - gain else None

    def _binding(self, stages: Stages, free_bytes: Mapping[str, float]) -> dict[str, float]:
        """The devices that have less memory than the plan says."""
        problem = _limited(self._problem, to_pieces(stages, self.pieces), free_bytes)
        pairs = zip(problem.devices, self._problem.devices, strict=True)
        return {
            now.name: free_bytes[now.name]
            for now, planned in pairs
            if now.memory_bytes < planned.memory_bytes
        }

    def best(self, stages: Stages, under: Conditions) -> Stages | None:
        """The best placement that is allowed; None where there is none, or none was found.

        It returns to devices no more often than the present one: a border that moves is no new message.
        A device in use may keep what it has, however little memory is left: that is in use already.
        """
        limited = _limited(self._problem, to_pieces(stages, self.pieces), under.free_bytes)
        problem = replace(_scaled(limited, under.ratios), returns=returns_of(stages))
        solution = seek_best(problem, effort=QUICK).solution
        return to_submodules(solution.stages, self.pieces) if solution else None

    def half_way(self, now: Stages, goal: Stages) -> Stages | None:
        """Every border half way to where it is to be, by one piece at least; None where the order changes, too."""
        here, there = to_pieces(now, self.pieces), to_pieces(goal, self.pieces)
        order = _common_order(here, there)
        if order is None:
            return None
        pairs = zip(_cuts(here, order), _cuts(there, order), strict=True)
        cuts = [begin + _half(end - begin) for begin, end in pairs]
        names = [order[sum(cut <= place for cut in cuts)] for place in range(len(self.pieces))]
        return to_submodules(stages_of(names), self.pieces)


def _scaled(problem: Problem, ratios: Ratios) -> Problem:
    """The problem with measured times."""
    factors = {name: 1 / max(ratio, _LEAST_RATIO) for name, ratio in ratios.items()}
    faster = factors.pop(LINKS, 1.0)

    def changed(link: Link) -> Link:
        rate = link.bandwidth_bytes_per_s * faster
        return replace(link, bandwidth_bytes_per_s=rate, latency_s=link.latency_s / faster)

    return with_links(with_speeds(problem, factors), changed)


def _limited(problem: Problem, now: Stages, free_bytes: Mapping[str, float]) -> Problem:
    """The problem with the memory that devices have now, in pieces: no more than planned, no less than in use."""
    used = {name: problem.memory_of(indices) for name, indices in held(now).items()}
    devices = []
    for device in problem.devices:
        in_use = device.overhead_bytes + used[device.name] if device.name in used else 0.0
        room = min(device.memory_bytes, in_use + free_bytes.get(device.name, inf))
        devices.append(replace(device, memory_bytes=max(room, in_use)))
    return replace(problem, devices=tuple(devices))


def _common_order(now: Stages, goal: Stages) -> list[str] | None:
    """An order of devices in which both go through the ring; None: there is none, or a device comes twice."""
    order = [stage.device for stage in now]
    after = [stage.device for stage in goal]
    for place, name in enumerate(after):
        if name not in order:  # behind the device that hands it its values
            order.insert(order.index(after[place - 1]) + 1, name)
    kept = [name for name in order if name in after]
    return order if len(set(order)) == len(order) and kept == after else None


def _cuts(stages: Stages, order: Collection[str]) -> list[int]:
    """The number of pieces up to each device of the order but the last."""
    counts = {stage.device: len(stage.indices) for stage in stages}
    cuts, total = [], 0
    for name in order:
        total += counts.get(name, 0)
        cuts.append(total)
    return cuts[:-1]


def _half(difference: int) -> int:
    """Half of it, away from 0: a border that is to move moves by one at least."""
    return (abs(difference) + 1) // 2 * (1 if difference > 0 else -1)
