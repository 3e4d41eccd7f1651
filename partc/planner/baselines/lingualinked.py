"""The strategy `lingualinked`: LinguaLinked, section 3.2.3, Eq. 5, over all assignments of sub-modules.

The programme stands in `assignment_programme.py` with what is different from the paper's. Its linear objective
is not the value of the plan: it adds up every transfer, while in truth a residual message travels beside the
computation and costs nothing unless it is late, and intervals without a message between them run side by
side. It is exact where each sub-module hands something to the next and nothing skips one; for throughput it
is exact but for the latency of residual messages. Elsewhere its optimum may be behind the best plan, which `optimal`
finds for the true value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from partc.format.placement import assignment_of, stages_of
from partc.format.plan import Plan, feasible_plan, infeasible_plan
from partc.planner.baselines.solver_process import SOLVER, Answer, SolverError, ask_solver
from partc.planner.exact.optimal import plan_optimal, seek_best
from partc.planner.exact.solution import Solution
from partc.planner.model.effort import THOROUGH
from partc.planner.model.evaluate import evaluate
from partc.planner.model.objectives import best_of, seconds_of
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import problem_json

_METHOD = "LinguaLinked's Eq. 5 as a MILP (HiGHS)"

_ROUNDING = 1e-6
"""Relative differences that the solver does not see."""


def plan_lingualinked(problem: Problem, limit_s: float = 30.0, solver: Sequence[str] = SOLVER) -> Plan:
    """The assignment of least computing and transfer time; a device may have several intervals.

    The solver, a process of its own, begins with the best plan that `optimal` finds; if it gives no answer, that plan
    is the result and `method` says what happened. The bound holds for every assignment.
    """
    start = _best_known(problem, limit_s)
    request = {
        "problem": problem_json(problem),
        "start": assignment_of(start.stages) if start else None,
        "limit_s": limit_s,
    }
    try:
        answer = ask_solver(request, limit_s, solver)
        if answer.assignment is not None:
            return _valued(problem, answer, answer.assignment)
        if answer.proven and start is None:
            return _infeasible(problem)
        raise SolverError(f"found no plan{_status(answer)}")
    except SolverError as error:
        return _instead(start, str(error))


def _valued(problem: Problem, answer: Answer, assignment: Sequence[str]) -> Plan:
    """The solver's assignment at its true value.

    Raises:
        SolverError: it violates a constraint; within its tolerance a solver may exceed a memory limit.
    """
    stages = stages_of(assignment)
    evaluation = evaluate(problem, stages)
    if evaluation.value is None:
        raise SolverError(f"gave an impossible plan: {evaluation.violations[0]}")
    ending = "its optimum" if answer.proven else f"the best found{_status(answer)}"
    bound = _bound(problem, answer.bound_s, evaluation.value)
    return feasible_plan(stages, evaluation.value, bound, f"{_METHOD}, {ending}")


def _status(answer: Answer) -> str:
    """The end of the solver in its own words."""
    return f" ({answer.status})" if answer.status else ""


def _bound(problem: Problem, bound_s: float | None, value: float) -> float | None:
    """The bound in the unit of the objective, and the value itself where the solver sees no difference."""
    if bound_s is None:
        return None
    least = seconds_of(problem.objective, max(bound_s, 0.0))
    bound = best_of(problem.objective)((least, value))
    return value if abs(bound - value) <= _ROUNDING * value else bound


def _best_known(problem: Problem, limit_s: float) -> Solution | None:
    return seek_best(problem, effort=replace(THOROUGH, limit_s=limit_s)).solution


def _infeasible(problem: Problem) -> Plan:
    reason = plan_optimal(problem).constraint or "memory, links and times cannot be met together"
    return infeasible_plan(reason, _METHOD)


def _instead(start: Solution | None, failure: str) -> Plan:
    """The best plan that is known, where the solver gave none."""
    if start is None:
        words = f"no plan was found that meets the limits, and the solver {failure}"
        return infeasible_plan(words, f"{_METHOD}; the solver {failure}")
    method = f"{start.method}; the solver for LinguaLinked's Eq. 5 {failure}"
    return feasible_plan(start.stages, start.value, start.bound, method)
