"""The methods that EdgeShard compares (section V-A), its own algorithms as published, and the proven optimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from partc.format.placement import stages_of
from partc.format.plan import OBJECTIVES
from partc.planner.model.change import with_devices
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Problem
from partc.planner.solve import solve

CLOUD = "cloud"
SPLITS = (1, 2, 4, 8)
"""Sequences in one micro-batch; the largest is the largest batch that section V names."""
HALVINGS = 10
"""Steps of the bisection in `optimal`: the limit on a stage to a thousandth."""

Assignment = tuple[str, ...]
"""The device of every sub-module."""
Method = Callable[[Problem, int], set[Assignment]]
"""(problem, micro-batches in flight) -> what it proposes for the problem's objective; empty where nothing fits."""
Pricing = Callable[[int, int], Problem]
"""(sequences in a step, steps in flight) -> the problem, with room for all their caches."""


def optimal(problem: Problem, requests: int) -> set[Assignment]:
    """The best plan; for throughput also quick rings that so many micro-batches in flight can keep full.

    The best plan for throughput takes a full ring for granted. With r in flight a step of the batch takes the
    larger of the slowest stage and of a round / r, so that shorter rings with longer stages can be better: the
    bisection looks for the limit on a stage at which the quickest ring has both alike.
    """
    if problem.objective == "latency":
        return proven(problem)
    plans, quick = proven(problem), replace(problem, objective="latency")
    low, high = 0.0, _alone(problem, problem.source)
    for _ in range(HALVINGS):
        limit = (low + high) / 2
        found = proven(limited(quick, limit))
        plans |= found
        if found and value(quick, *found) <= requests * limit:
            high = limit
        else:
            low = limit
    return plans


def limited(problem: Problem, seconds: float) -> Problem:
    """With memory for no more than what a device computes in about so many seconds per step."""
    total = problem.memory_of(range(len(problem.submodules)))
    devices = (
        replace(device, memory_bytes=min(device.memory_bytes, total * seconds / _alone(problem, device.name)))
        for device in problem.devices
    )
    return replace(problem, devices=tuple(devices))


def _alone(problem: Problem, device: str) -> float:
    """Seconds per step that a device would take for all sub-modules."""
    return sum(phase.weight * sum(times[device] for times in phase.time_s) for phase in problem.steps)


def proven(problem: Problem) -> set[Assignment]:
    """The best plan of all; asserts that it is proven."""
    plan = solve(problem, explained=False)
    assert plan.assignment is None or (plan.gap or 0.0) <= 1e-9, "not proven in the time given"
    return set() if plan.assignment is None else {plan.assignment}


def edge_solo(problem: Problem, _: int) -> set[Assignment]:
    """All of the model on the source."""
    return proven(with_devices(problem, {problem.source}))


def cloud_edge_even(problem: Problem, _: int) -> set[Assignment]:
    """The first half of the sub-modules on the source, the second on the cloud server."""
    return published(with_devices(problem, {problem.source, CLOUD}), "even")


def cloud_edge_opt(problem: Problem, _: int) -> set[Assignment]:
    """The best plan for the source and the cloud server: what the paper's algorithms aim at for the two."""
    return proven(with_devices(problem, {problem.source, CLOUD}))


def edgeshard(problem: Problem, _: int) -> set[Assignment]:
    """Algorithm 1 (latency) or 2 (throughput) as published."""
    return published(problem, f"edgeshard-{problem.objective}")


def edgeshard_even(problem: Problem, _: int) -> set[Assignment]:
    """Equal shares for 11 AGX Orin and the cloud server (section V-C, for the 70B model)."""
    orins = {f"orin_{number}" for number in range(1, 12)}
    return published(with_devices(problem, {*orins, CLOUD}), "even")


def published(problem: Problem, strategy: str) -> set[Assignment]:
    """The plan of a strategy, if it has one."""
    assignment = solve(problem, strategy, explained=False).assignment
    return set() if assignment is None else {assignment}


METHODS: Mapping[str, Method] = {
    "Edge-Solo": edge_solo,
    "Cloud-Edge-Even": cloud_edge_even,
    "Cloud-Edge-Opt": cloud_edge_opt,
    "EdgeShard, as published": edgeshard,
    "partc, optimal": optimal,
}
"""The rows of Table IV."""
OURS = "partc, optimal"


@dataclass(frozen=True)
class Latency:
    """One request of one sequence."""

    assignment: Assignment
    seconds: float
    """Per generated token; the prefill is spread over them."""


@dataclass(frozen=True)
class Throughput:
    """A batch of sequences that goes round the ring in micro-batches, all in flight at once."""

    assignment: Assignment
    problem: Problem
    batch: int
    """Sequences in a micro-batch."""
    requests: int
    """Micro-batches in flight."""
    tokens_per_s: float
    """With these in flight."""
    full_tokens_per_s: float
    """Where so many follow that the slowest device or link never waits: the planner's objective, Eq. 10 and 11."""


def latency_of(method: Method, price: Pricing) -> Latency | None:
    """The method's time per token; None where it does not fit."""
    problem = replace(price(1, 1), objective="latency")
    cells = [Latency(plan, value(problem, plan)) for plan in sorted(method(problem, 1))]
    return min(cells, key=lambda cell: cell.seconds, default=None)


def throughputs_of(method: Method, price: Pricing) -> list[Throughput]:
    """All that the method proposes for the largest batch, at most 8, that its devices can hold (section V-B).

    The batch is split in every way into equal micro-batches, and plans for latency count too: they can be the
    better ones where few micro-batches are in flight.
    """
    for total in sorted(SPLITS, reverse=True):
        cells = [cell for batch in SPLITS if batch <= total for cell in _cells(method, price, total, batch)]
        if cells:
            return cells
    return []


def _cells(method: Method, price: Pricing, total: int, batch: int) -> list[Throughput]:
    requests = total // batch
    problem = price(batch, requests)
    plans = {
        plan for objective in OBJECTIVES for plan in method(replace(problem, objective=objective), requests)
    }
    return [_throughput(problem, plan, batch, requests) for plan in sorted(plans)]


def _throughput(problem: Problem, plan: Assignment, batch: int, requests: int) -> Throughput:
    """The yield of a ring without bubbles.

    A micro-batch comes round once in the time of a whole round, or whenever the slowest device or link has
    served all the others, whichever takes longer.
    """
    round_s = value(replace(problem, objective="latency"), plan)
    steps_per_s = value(replace(problem, objective="throughput"), plan)
    in_flight = batch * min(steps_per_s, requests / round_s)
    return Throughput(plan, problem, batch, requests, in_flight, batch * steps_per_s)


def value(problem: Problem, assignment: Assignment) -> float:
    """Seconds per step or steps per second, by the problem's objective; the assignment must be feasible."""
    evaluation = evaluate(problem, stages_of(assignment))
    assert evaluation.value is not None, "; ".join(evaluation.violations)
    return evaluation.value
