"""HiGHS on LinguaLinked's programme, in a process of its own (`python -m` this module).

It reads {"problem", "start", "limit_s"} as JSON from standard input and writes an `Answer` to standard
output. `solver_process.py` runs it: a crash of HiGHS cannot take partc down.
"""

from __future__ import annotations

import json
import math
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

import highspy
import msgspec
import numpy as np

from partc.planner.baselines.assignment_programme import Programme
from partc.planner.baselines.solver_process import BUG, Answer, SolverError
from partc.planner.model.objectives import by_objective
from partc.planner.model.problem import Problem
from partc.planner.model.problem_json import read_problem

_TOLERANCE = 1e-9

_MAX_NODES = 30_000
"""Limit of the search, so that a machine that is fast enough gives the same answer every time."""

_MAX_MEMORY = 2**32
"""Bytes of addresses: beyond, the solver ends and not the machine's memory."""


def solve_programme(problem: Problem, start: Sequence[str] | None, limit_s: float) -> Answer:
    """The programme's best assignment; `start` is one to begin with.

    The programme's bound is a bound on the true value where the two are equal, along a chain, and for
    throughput, of which it leaves out the latency of residual messages. For the latency of other problems a
    second programme without residuals, whose every assignment is cheaper than in truth as long as each
    sub-module hands something to the next, gives the bound; a third of the time is for it.
    """
    end = time.monotonic() + limit_s
    programme = Programme(problem)
    exact = by_objective(problem.objective, latency=programme.traffic.is_chain, throughput=True)
    bound = None
    if not exact and programme.traffic.chained:
        bound = _run(Programme(problem, residuals=False), start, limit_s / 3).bound_s
    answer = _run(programme, start, end - time.monotonic())
    return msgspec.structs.replace(answer, bound_s=answer.bound_s if exact else bound)


def _run(programme: Programme, start: Sequence[str] | None, limit_s: float) -> Answer:
    """One programme; the bound is its own."""
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {
        "output_flag": False,
        "threads": 1,
        "time_limit": max(limit_s, 0.1),
        "mip_max_nodes": _MAX_NODES,
        "mip_rel_gap": _TOLERANCE,
        "mip_abs_gap": _TOLERANCE,
        "mip_feasibility_tolerance": _TOLERANCE,
        "primal_feasibility_tolerance": _TOLERANCE,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_model(programme))
    if start is not None:
        chosen = {column: float(start[j] == name) for (j, name), column in programme.x.items()}
        solver.setSolution(len(chosen), np.array(list(chosen), np.int32), np.array(list(chosen.values())))
    try:
        solver.run()
    except RuntimeError as error:  # HiGHS raises no other
        raise SolverError(f"stopped: {error}") from error
    status, info = solver.getModelStatus(), solver.getInfo()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return Answer(None, True, None)
    words = solver.modelStatusToString(status).lower()
    proven = status == highspy.HighsModelStatus.kOptimal
    bound = info.mip_dual_bound / programme.scale if math.isfinite(info.mip_dual_bound) else None
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Answer(None, False, bound, words)
    values = solver.getSolution().col_value
    held = {j: name for (j, name), column in programme.x.items() if values[column] > 0.5}
    return Answer([held[j] for j in range(len(held))], proven, bound, words)


def _model(programme: Programme) -> Any:
    """The programme in the arrays of HiGHS, row by row."""
    count = len(programme.cost)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, len(programme.rows)
    model.col_cost_ = np.array(programme.cost)
    model.col_lower_ = np.zeros(count)
    model.col_upper_ = np.array(programme.upper)
    binary = set(programme.x.values())
    kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
    model.integrality_ = [kinds[column in binary] for column in range(count)]
    model.row_lower_ = np.array([row.lower for row in programme.rows])
    model.row_upper_ = np.array([row.upper for row in programme.rows])
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.num_col_, matrix.num_row_ = count, len(programme.rows)
    matrix.start_ = np.cumsum([0, *(len(row.terms) for row in programme.rows)])
    matrix.index_ = np.array([column for row in programme.rows for column in row.terms], np.int32)
    matrix.value_ = np.array([value for row in programme.rows for value in row.terms.values()])
    return model


def _limit_memory() -> None:
    """Limit the memory of this process, where the system knows such limits."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = _MAX_MEMORY if hard == resource.RLIM_INFINITY else min(_MAX_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def main() -> None:
    """Standard input to standard output."""
    _limit_memory()
    request = json.load(sys.stdin)
    try:
        answer = solve_programme(read_problem(request["problem"]), request["start"], request["limit_s"])
    except MemoryError:
        sys.exit("out of memory")
    except SolverError as error:
        sys.exit(str(error))
    except Exception:
        traceback.print_exc()
        sys.exit(BUG)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
