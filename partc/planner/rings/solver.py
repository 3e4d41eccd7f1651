"""HiGHS on the programme of a fleet, in a process of its own (`python -m` this module).

It reads a `Programme` as JSON from standard input and writes a `Counts` to standard output.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import highspy
import msgspec
import numpy as np

from partc.planner.baselines.solver_process import BUG
from partc.planner.rings.choose import Counts, Programme

_TOLERANCE = 1e-9
_MAX_NODES = 30_000
"""Limit of the search, so that a machine that is fast enough gives the same answer every time."""


def solve_programme(programme: Programme, limit_s: float) -> Counts:
    """The counts of the best solution that is found, and the bound of all."""
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {
        "output_flag": False,
        "threads": 1,
        "time_limit": limit_s,
        "mip_max_nodes": _MAX_NODES,
        "mip_rel_gap": _TOLERANCE,
        "mip_abs_gap": _TOLERANCE,
        "mip_feasibility_tolerance": _TOLERANCE,
        "primal_feasibility_tolerance": _TOLERANCE,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(_model(programme))
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return Counts(None, None, True)
    proven = status == highspy.HighsModelStatus.kOptimal
    bound = float(info.mip_dual_bound)
    known = bound if np.isfinite(bound) else None
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Counts(None, known, False)
    values = solver.getSolution().col_value
    return Counts([float(value) for value in values], known, proven)


def _model(programme: Programme) -> Any:
    """The programme in the arrays of HiGHS, row by row."""
    count = len(programme.costs)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, len(programme.rows)
    model.col_cost_ = np.array(programme.costs, float)
    model.col_lower_ = np.zeros(count)
    model.col_upper_ = np.full(count, highspy.kHighsInf)
    kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
    model.integrality_ = [kinds[column < programme.whole] for column in range(count)]
    model.row_lower_ = np.array(
        [-highspy.kHighsInf if row.least is None else row.least for row in programme.rows]
    )
    model.row_upper_ = np.array(
        [highspy.kHighsInf if row.most is None else row.most for row in programme.rows]
    )
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.num_col_, matrix.num_row_ = count, len(programme.rows)
    matrix.start_ = np.cumsum([0, *(len(row.columns) for row in programme.rows)])
    matrix.index_ = np.array([column for row in programme.rows for column in row.columns], np.int32)
    matrix.value_ = np.array([factor for row in programme.rows for factor in row.factors], float)
    return model


def main() -> None:
    """Standard input to standard output."""
    try:
        request = msgspec.json.decode(sys.stdin.buffer.read(), type=Programme)
        answer = solve_programme(request, request.limit_s)
    except MemoryError:
        sys.exit("out of memory")
    except Exception:
        traceback.print_exc()
        sys.exit(BUG)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
