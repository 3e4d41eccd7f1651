"""The explanation of a plan: its stages, the reasons for unused devices, the limit of its value, the gain of changes.

Two kinds of plan are explained. Where the planner was free, the questions are solved again: what would it
cost to use this device too, is it memory that binds, what would a change buy (`partc.planner.explain.what_if`)? Where
the assignment is somebody's (a user's `place`, a baseline's rule), it stays, and the best plan is set beside it.

What is said as a fact is proven. Where a search ended before its proof, it is said what was found.
"""

from __future__ import annotations

from dataclasses import replace

from partc.config.units import format_bytes, format_seconds
from partc.format.placement import Stages, assignment_of
from partc.planner.exact.solution import Best, Solution, Solve
from partc.planner.exact.tables import Forced, group_devices
from partc.planner.explain.drafted import better_plans
from partc.planner.explain.ranges import ranges, span
from partc.planner.explain.what_if import solve_operations, what_ifs
from partc.planner.model.effort import QUESTION
from partc.planner.model.evaluate import Evaluation, evaluate
from partc.planner.model.infeasible import without_memory_limits
from partc.planner.model.objective_values import compare, is_better, is_same, seconds_per_token, unit
from partc.planner.model.objectives import by_objective
from partc.planner.model.problem import Problem

_NAMED = 3
"""The number of devices and links that are named where several are busy alike."""
_LARGE = "not computed: the problem is large"


def explain(problem: Problem, stages: Stages, solve: Solve, *, free: bool) -> dict[str, object]:
    """Plain JSON for a feasible plan; asks for further solves only where the sizes say that they are cheap.

    Args:
        problem: as planned.
        stages: a feasible plan.
        solve: looks for best plans.
        free: whether the planner chose the assignment as the best that it knew.
    """
    evaluation = evaluate(problem, stages)
    affordable = solve if solve_operations(problem) <= QUESTION.programme else None
    rows: dict[str, object] = {"stages": _stages(evaluation)}
    if free:
        return rows | _free_plan(problem, evaluation, affordable)
    return rows | _given_plan(problem, evaluation, affordable)


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


def _free_plan(problem: Problem, evaluation: Evaluation, solve: Solve | None) -> dict[str, object]:
    value = evaluation.value or 0.0
    unbound = solve(without_memory_limits(problem), None) if solve else None
    better = unbound is not None and _is_better(problem, unbound, value)
    memory_may_bind = better or unbound is None or not unbound.proven
    return {
        **_gain_of_returning(problem, evaluation, solve),
        "unused": _unused(problem, evaluation, solve),
        "binding": _binding(problem, evaluation, unbound),
        "what_if": what_ifs(problem, evaluation, solve, free=True, memory_may_bind=memory_may_bind),
        **(better_plans(problem, evaluation, solve) if solve else {}),
    }


def _gain_of_returning(problem: Problem, evaluation: Evaluation, solve: Solve | None) -> dict[str, object]:
    """What it is good for that a plan returns to a device; nothing where it does not."""
    runs = [stage.device for stage in evaluation.phases[0].stages]
    again = list(dict.fromkeys(name for place, name in enumerate(runs) if name in runs[:place]))
    if not again or solve is None:
        return {}
    other, begin = solve(replace(problem, returns=0), None), f"returns to {', '.join(again)}:"
    if other.solution is not None:
        return {
            "returns": f"{begin} without that it {compare(problem, other.solution.value, evaluation.value or 0.0)}"
        }
    none = "no plan fits" if other.proven else "no plan was found"
    return {"returns": f"{begin} {none} in which each device has one run of sub-modules"}


def _binding(problem: Problem, evaluation: Evaluation, unbound: Best | None) -> str:
    """Memory or speed; `unbound` is the best plan without limits of memory, None where nobody has looked."""
    value, busiest = evaluation.value or 0.0, _busiest(problem, evaluation)
    if unbound is None:
        return f"memory or speed, which is {_LARGE}; {busiest}"
    if unbound.solution and _is_better(problem, unbound, value):
        words = compare(problem, unbound.solution.value, value)
        return f"memory: with more of it on every device the plan {words}"
    if unbound.proven:
        return f"speed: memory does not bind; {busiest}"
    return f"speed, as far as is known: without limits of memory no better plan was found; {busiest}"


def _is_better(problem: Problem, best: Best, value: float) -> bool:
    return best.solution is not None and is_better(problem, best.solution.value, value)


def _given_plan(problem: Problem, evaluation: Evaluation, solve: Solve | None) -> dict[str, object]:
    best = solve(problem, None) if solve else None
    value = evaluation.value or 0.0
    text = _what_best_does(problem, value, best) if best else f"the best plan: {_LARGE}"
    better = best is not None and _is_better(problem, best, value)
    busiest = f"speed: {_busiest(problem, evaluation)}"
    used = {use.device for use in evaluation.memory}
    return {
        "unused": {name: _why_given_idle(name, best) for name in problem.device_of if name not in used},
        "binding": f"the assignment: {text}" if better else busiest,
        "best": _best_json(problem, value, best.solution if best else None, text),
        "what_if": what_ifs(problem, evaluation, None, free=False),
    }


def _what_best_does(problem: Problem, value: float, best: Best) -> str:
    if best.solution is None:
        return f"{'there is' if best.proven else 'there was found'} no {_kind(problem)}"
    if not _is_better(problem, best, value):
        none = "is better" if best.proven else "was found that is better"
        return f"no {_kind(problem)} {none}"
    found = best.solution
    return f"{_name(best)} {compare(problem, found.value, value)}: {ranges(found.stages)}"


def _kind(problem: Problem) -> str:
    return "plan with one interval per device" if problem.returns == 0 else "plan"


def _name(best: Best) -> str:
    return "the best plan" if best.proven else "the best plan found"


def _best_json(problem: Problem, value: float, best: Solution | None, text: str) -> dict[str, object]:
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
        "assignment": list(assignment_of(best.stages) or ()),
        "value": best.value,
        "s_per_token": seconds,
        "gain_s_per_token": gain,
        "text": text,
    }


def _why_given_idle(name: str, best: Best | None) -> str:
    if best is None or best.solution is None:
        return "this assignment gives it nothing"
    if share := ", ".join(span(part) for part in best.solution.stages if part.device == name):
        plural = "" if share.isdecimal() else "s"
        return f"this assignment gives it nothing; {_name(best)} gives it sub-module{plural} {share}"
    return f"this assignment gives it nothing, and neither does {_name(best)}"


def _unused(problem: Problem, evaluation: Evaluation, solve: Solve | None) -> dict[str, str]:
    """Device -> the reason why it is not used."""
    used = {use.device for use in evaluation.memory}
    reasons: dict[str, str] = {}
    for members in group_devices(problem):
        idle = [name for name in members if name not in used]
        if idle:
            wanted = Forced(members[0], len(members) - len(idle) + 1)
            reason = _why_idle(problem, wanted, evaluation.value or 0.0, solve)
            reasons |= dict.fromkeys(idle, reason)
    return {name: reasons[name] for name in problem.device_of if name in reasons}


def _why_idle(problem: Problem, wanted: Forced, value: float, solve: Solve | None) -> str:
    device, count = problem.device_of[wanted.device], len(problem.submodules)
    able = [j for j in range(count) if all(device.name in phase.time_s[j] for phase in problem.steps)]
    if not able:
        return "it cannot run any sub-module"
    if wanted.count > count - 1 or able == [0]:
        return _nothing_left(problem, able)
    room = max(0.0, device.room_bytes)
    least = min(problem.interval_memory(j, j) for j in able)
    if least > room:
        return f"no sub-module fits: the smallest needs {format_bytes(least)}, it has {format_bytes(room)}"
    if solve is None:
        return f"the best plan found does without it (what it would cost is {_LARGE})"
    other = solve(problem, wanted)
    if other.solution is None and other.proven:
        limits = "no plan with it meets the limits of memory, links and times"
        return f"{limits}{_unable(able, count)}"
    if other.solution is None:
        return "no plan with it was found"
    return f"the best plan found with it {compare(problem, other.solution.value, value)}"


def _unable(able: list[int], count: int) -> str:
    """The sub-modules that a device cannot run, behind what else keeps it out."""
    others = [str(j) for j in range(count) if j not in able]
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f", and it cannot run sub-module {', '.join(others[:_NAMED])}{more}" if others else ""


def _nothing_left(problem: Problem, able: list[int]) -> str:
    """The reason why a device that can run these sub-modules gets none, whatever the limits."""
    pin = f"sub-module 0 stays on the source {problem.source}"
    if len(problem.submodules) == 1:
        return f"{pin}, and there is no other"
    if able == [0]:
        return f"{pin}, and it can run no other"
    return f"there are too few sub-modules: {pin}, and the others have a device each"


def _busiest(problem: Problem, evaluation: Evaluation) -> str:
    """The devices or links that take most of a step, and set the pace of a throughput."""
    most = max(seconds for _, seconds in evaluation.busy_s)
    names = [name for name, seconds in evaluation.busy_s if is_same(seconds, most)]
    subject = " and ".join(f"the {'link' if '->' in name else 'device'} {name}" for name in names[:_NAMED])
    if len(names) > _NAMED:
        subject += f" and {len(names) - _NAMED} more"
    verb = "is" if len(names) == 1 else "are"
    step = "step" if problem.drafted else unit(problem)  # a guessed token has less than one to itself
    pace = "sets the pace" if len(names) == 1 else "set the pace together"
    return by_objective(
        problem.objective,
        latency=f"{subject} {verb} busy longest, {format_seconds(most)} per {step}",
        throughput=f"{subject} {pace}, busy {format_seconds(most)} per step",
    )
