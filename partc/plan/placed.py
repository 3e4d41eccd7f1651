"""The plan of a user who places the layers (`place` in devices.yaml): checked, priced, and set beside the best."""

from __future__ import annotations

from partc.config.units import format_bytes
from partc.errors import PlanError
from partc.plan.answer import Plan, feasible_plan
from partc.plan.baselines.judge import interval_bound
from partc.plan.evaluate import evaluate
from partc.plan.placement import Shape
from partc.plan.problem import Problem
from partc.plan.strategies import solve

METHOD = "placed by devices.yaml"


def plan_placed(
    problem: Problem, assignment: tuple[str, ...], shape: Shape, where: str | None = None
) -> Plan:
    """The user's plan; its bound is that of the best plan, so that the gap says what the place gives away.

    Raises:
        PlanError: a device has too little memory, a link is missing, or a device cannot run what it is given;
            says what would fit.
    """
    evaluation = evaluate(problem, assignment)
    if evaluation.value is None:
        fits = [
            text
            for name in dict.fromkeys(assignment)
            if (text := _what_fits(problem, assignment, shape, name))
        ]
        raise PlanError(
            f"`place` does not fit: {'; '.join([*evaluation.violations, *fits])}",
            where=where,
            hint=_advice(problem, shape),
        )
    bound = interval_bound(problem, evaluation.value, assignment)
    return feasible_plan(assignment, evaluation.value, bound, METHOD, {})


def _what_fits(problem: Problem, assignment: tuple[str, ...], shape: Shape, name: str) -> str | None:
    """Of a device with too little memory: how much of its share it could hold, from the front."""
    device = problem.device_of[name]
    mine = [j for j, holder in enumerate(assignment) if holder == name]
    room = device.memory_bytes - device.overhead_bytes
    if problem.memory_of(mine) <= room:
        return None
    count = max((n for n in range(1, len(mine)) if problem.memory_of(mine[:n]) <= room), default=0)
    if count == 0:
        return f"{name} has no room for any of {shape.describe(mine)}"
    held = problem.memory_of(mine[:count]) + device.overhead_bytes
    return (
        f"of {shape.describe(mine)} {name} could hold {shape.describe(mine[:count])} ({format_bytes(held)})"
    )


def _advice(problem: Problem, shape: Shape) -> str:
    """The best plan as a `place` that can be copied."""
    best = solve(problem, explained=False)
    if best.assignment is None:
        return f"no other place fits either: {best.constraint}"
    shares = {
        name: shape.describe([j for j, holder in enumerate(best.assignment) if holder == name])
        for name in dict.fromkeys(best.assignment)
    }
    text = ", ".join(f"{name}: {share}" for name, share in shares.items())
    return f"this fits: `place: {{{text}}}`; or remove `place` and let partc decide"
