"""A plan in words: what each device holds, why the others are not in use, what limits the value."""

from __future__ import annotations

import math
from collections.abc import Callable

from partc.config.units import format_bytes, format_seconds
from partc.plan.evaluate import Evaluation
from partc.plan.exact.tables import Tables
from partc.plan.infeasible import without_memory_limits
from partc.plan.problem import Problem

_MAX_STEPS = 3e7
"""Elementary steps of a solve above which the questions that need another solve are not asked."""

Solve = Callable[[Problem, tuple[int, int] | None], float | None]
"""The value of a problem's best plan that uses so many devices of a type; None where there is none."""


def explain(problem: Problem, evaluation: Evaluation, solve: Solve) -> dict[str, object]:
    """Plain JSON for the plan; asks for further solves only where the sizes say that they are cheap."""
    tables = Tables(problem)
    states = math.prod(size + 1 for size in tables.capacity)
    cheap = states * len(tables.types) ** 2 * tables.count**2 <= _MAX_STEPS
    return {
        "stages": _stages(evaluation),
        "unused": _unused(tables, evaluation, solve if cheap else None),
        "binding": _binding(problem, evaluation, solve) if cheap else "not computed: the problem is large",
    }


def _stages(evaluation: Evaluation) -> list[dict[str, object]]:
    return [
        {
            "device": stage.device,
            "first": stage.first,
            "last": stage.last,
            "memory_bytes": use.needed_bytes,
            "memory_available_bytes": use.available_bytes,
        }
        for stage, use in zip(evaluation.phases[0].stages, evaluation.memory, strict=True)
    ]


def _unused(tables: Tables, evaluation: Evaluation, solve: Solve | None) -> dict[str, str]:
    """Device -> why it has nothing to do."""
    used = {use.device for use in evaluation.memory}
    reasons: dict[str, str] = {}
    for kind, members in enumerate(tables.types):
        idle = [name for name in members if name not in used]
        if idle:
            wanted = len(members) - len(idle) + 1
            reason = _why_idle(tables, kind, wanted, evaluation.value or 0.0, solve)
            reasons |= dict.fromkeys(idle, reason)
    return {name: reasons[name] for name in tables.problem.device_of if name in reasons}


def _why_idle(tables: Tables, kind: int, wanted: int, value: float, solve: Solve | None) -> str:
    problem, name = tables.problem, tables.types[kind][0]
    if not tables.fits[kind].any():
        device = problem.device_of[name]
        able = [j for j in range(tables.count) if all(name in phase.time_s[j] for phase in problem.steps)]
        if not able:
            return "it cannot run any sub-module"
        room = max(0.0, device.memory_bytes - device.overhead_bytes)
        least = min(problem.interval_memory(j, j) for j in able)
        return f"no sub-module fits: the smallest needs {format_bytes(least)}, it has {format_bytes(room)}"
    if solve is None:
        return "the best plan does without it (what it would cost is not computed: the problem is large)"
    other = solve(problem, (kind, wanted))
    if other is None:
        return "no plan with it meets the limits of memory, links and times"
    return f"the best plan found with it {_compared(problem, other, value)}"


def _binding(problem: Problem, evaluation: Evaluation, solve: Solve) -> str:
    """Whether more memory anywhere would help; if not, what the step's time consists of."""
    value = evaluation.value or 0.0
    free = solve(without_memory_limits(problem), None)
    better = free is not None and (free < value if problem.objective == "latency" else free > value)
    if free is not None and better and abs(free - value) > 1e-9 * value:
        return f"memory: with more of it on every device the plan {_compared(problem, free, value)}"
    name, seconds = max(evaluation.busy_s, key=lambda item: item[1])
    kind = "link" if "->" in name else "device"
    return (
        f"speed: memory does not bind; the {kind} {name} is busy longest, {format_seconds(seconds)} per step"
    )


def _compared(problem: Problem, other: float, value: float) -> str:
    """`takes 52.1 ms, 5.37 ms more`."""
    if abs(other - value) <= 1e-9 * abs(value):
        return "is no better and no worse"
    if problem.objective == "latency":
        change = f"{format_seconds(abs(other - value))} {'more' if other > value else 'less'}"
        return f"takes {format_seconds(other)} per step, {change}"
    return f"makes {other:.4g} steps/s, {abs(other - value):.4g} {'more' if other > value else 'less'}"
