"""A plan in words: what each device holds, why the others are not in use, what limits the value, what would help.

Two kinds of plan are explained. Where the planner was free, the questions are solved again: what would it
cost to use this device too, is it memory that binds, what would a change buy (`partc.plan.what_if`)? Where the
assignment is somebody's (a user's `place`, a baseline's rule), it stays, and the best plan is set beside it.
"""

from __future__ import annotations

from partc.config.units import format_bytes, format_seconds
from partc.plan.evaluate import Evaluation, Interval, evaluate, intervals_of
from partc.plan.exact.tables import Tables
from partc.plan.infeasible import without_memory_limits
from partc.plan.problem import Problem
from partc.plan.what_if import MAX_STEPS, Best, Solve, solve_steps, what_ifs
from partc.plan.words import compare, is_better, is_same, seconds_per_token, unit

_NAMED = 3
"""So many devices and links are named where several are busy alike."""
_LARGE = "not computed: the problem is large"


def explain(problem: Problem, assignment: tuple[str, ...], solve: Solve, *, free: bool) -> dict[str, object]:
    """Plain JSON for a feasible plan; asks for further solves only where the sizes say that they are cheap.

    Args:
        problem: as planned.
        assignment: feasible.
        solve: finds best plans, quickly.
        free: whether the planner chose the assignment as the best that it knew.
    """
    evaluation = evaluate(problem, assignment)
    affordable = solve if solve_steps(problem) <= MAX_STEPS else None
    stages: dict[str, object] = {"stages": _stages(evaluation)}
    if free:
        return stages | _of_free_plan(problem, evaluation, affordable)
    return stages | _of_given_plan(problem, evaluation, affordable)


def _stages(evaluation: Evaluation) -> list[dict[str, object]]:
    """Every interval, with the memory of its device in all."""
    memory = {use.device: use for use in evaluation.memory}
    return [
        {
            "device": stage.device,
            "first": stage.first,
            "last": stage.last,
            "memory_bytes": memory[stage.device].needed_bytes,
            "memory_available_bytes": memory[stage.device].available_bytes,
        }
        for stage in evaluation.phases[0].stages
    ]


def _of_free_plan(problem: Problem, evaluation: Evaluation, solve: Solve | None) -> dict[str, object]:
    value = evaluation.value or 0.0
    unbound = solve(without_memory_limits(problem), None) if solve else None
    memory_binds = solve is None or (unbound is not None and is_better(problem, unbound.value, value))
    if solve is None:
        binding = f"memory or speed, which is {_LARGE}; {_busiest(problem, evaluation)}"
    elif unbound and memory_binds:
        binding = f"memory: with more of it on every device the plan {compare(problem, unbound.value, value)}"
    else:
        binding = f"speed: memory does not bind; {_busiest(problem, evaluation)}"
    return {
        "unused": _unused(problem, evaluation, solve),
        "binding": binding,
        "what_if": what_ifs(problem, evaluation, solve, free=True, memory_binds=memory_binds),
    }


def _of_given_plan(problem: Problem, evaluation: Evaluation, solve: Solve | None) -> dict[str, object]:
    best = solve(problem, None) if solve else None
    text = _what_best_does(problem, evaluation.value or 0.0, best) if solve else f"the best plan: {_LARGE}"
    better = best is not None and is_better(problem, best.value, evaluation.value or 0.0)
    busiest = f"speed: {_busiest(problem, evaluation)}"
    used = {use.device for use in evaluation.memory}
    return {
        "unused": {name: _why_given_idle(name, best) for name in problem.device_of if name not in used},
        "binding": f"the assignment: {text}" if better else busiest,
        "best": _best_json(problem, evaluation.value or 0.0, best, text),
        "what_if": what_ifs(problem, evaluation, None, free=False),
    }


def _what_best_does(problem: Problem, value: float, best: Best | None) -> str:
    if best is None:
        return "no plan with one interval per device was found"
    if is_same(best.value, value):
        return "no plan with one interval per device is better"
    return f"the best plan {compare(problem, best.value, value)}: {_ranges(best.assignment)}"


def _best_json(problem: Problem, value: float, best: Best | None, text: str) -> dict[str, object]:
    if best is None:
        return {
            "assignment": None,
            "value": None,
            "s_per_token": None,
            "gain_s_per_token": None,
            "text": text,
        }
    seconds = seconds_per_token(problem, best.value)
    gain = 0.0 if is_same(best.value, value) else seconds_per_token(problem, value) - seconds
    return {
        "assignment": list(best.assignment),
        "value": best.value,
        "s_per_token": seconds,
        "gain_s_per_token": gain,
        "text": text,
    }


def _ranges(assignment: tuple[str, ...]) -> str:
    """`0-3 on phone, 4-11 on board`."""
    return ", ".join(f"{_span(part)} on {part.device}" for part in intervals_of(assignment))


def _span(part: Interval) -> str:
    return f"{part.first}-{part.last}" if part.last > part.first else str(part.first)


def _why_given_idle(name: str, best: Best | None) -> str:
    if best is None:
        return "this assignment gives it nothing"
    if name in best.assignment:
        share = ", ".join(_span(part) for part in intervals_of(best.assignment) if part.device == name)
        plural = "" if share.isdecimal() else "s"
        return f"this assignment gives it nothing; the best plan gives it sub-module{plural} {share}"
    return "this assignment gives it nothing, and neither does the best plan"


def _unused(problem: Problem, evaluation: Evaluation, solve: Solve | None) -> dict[str, str]:
    """Device -> why it has nothing to do."""
    tables = Tables(problem)
    used = {use.device for use in evaluation.memory}
    reasons: dict[str, str] = {}
    for kind, members in enumerate(tables.types):
        idle = [name for name in members if name not in used]
        if idle:
            wanted = len(members) - len(idle) + 1
            reason = _why_idle(tables, kind, wanted, evaluation.value or 0.0, solve)
            reasons |= dict.fromkeys(idle, reason)
    return {name: reasons[name] for name in problem.device_of if name in reasons}


def _why_idle(tables: Tables, kind: int, wanted: int, value: float, solve: Solve | None) -> str:
    problem, name = tables.problem, tables.types[kind][0]
    device, count = problem.device_of[name], len(problem.submodules)
    able = [j for j in range(count) if all(name in phase.time_s[j] for phase in problem.steps)]
    if not able:
        return "it cannot run any sub-module"
    room = max(0.0, device.memory_bytes - device.overhead_bytes)
    least = min(problem.interval_memory(j, j) for j in able)
    if least > room:
        return f"no sub-module fits: the smallest needs {format_bytes(least)}, it has {format_bytes(room)}"
    if solve is None:
        return f"the best plan found does without it (what it would cost is {_LARGE})"
    other = solve(problem, (kind, wanted))
    if other is None:
        return "no plan with it meets the limits of memory, links and times"
    return f"the best plan found with it {compare(problem, other.value, value)}"


def _busiest(problem: Problem, evaluation: Evaluation) -> str:
    """What takes most of a step: where the first second can be won, and what sets the pace of a throughput."""
    most = max(seconds for _, seconds in evaluation.busy_s)
    names = [name for name, seconds in evaluation.busy_s if is_same(seconds, most)]
    subject = " and ".join(f"the {'link' if '->' in name else 'device'} {name}" for name in names[:_NAMED])
    if len(names) > _NAMED:
        subject += f" and {len(names) - _NAMED} more"
    verb = "is" if len(names) == 1 else "are"
    if problem.objective == "latency":
        return f"{subject} {verb} busy longest, {format_seconds(most)} per {unit(problem)}"
    pace = "sets the pace" if len(names) == 1 else "set the pace together"
    return f"{subject} {pace}, busy {format_seconds(most)} per step"
