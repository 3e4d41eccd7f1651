"""How long the planner takes, how good its plans are, how much memory it needs: `python -m tests.bench.planner`.

Every solve runs in a process of its own, so that the peak of its memory is its own. `--only TEXT` picks cases,
`--seeds N` draws more random problems of each family, `--json` prints the figures for a program.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from partc.errors import PlanError
from partc.format.plan import OBJECTIVES, Objective
from partc.planner.exact.optimal import find_best
from partc.planner.model.problem import Problem
from tests.bench.random_problems import Family, draw_problem
from tests.bench.testbed import edgeshard_testbed

FAMILIES = (
    Family(8, 200),
    Family(8, 200, memory=1.2, residual=0.1),
    Family(16, 100),
    Family(24, 160, memory=1.3, residual=0.1, links="sites"),
    Family(40, 200, memory=5),
    Family(64, 1000),
    Family(64, 1000, memory=1.2, residual=0.1),
    Family(64, 1000, memory=1.5, links="sites"),
    Family(64, 1000, memory=10, residual=0.1, links="sites"),
)


@dataclass(frozen=True)
class Case:
    """One solve."""

    name: str
    objective: Objective
    family: Family | None = None
    seed: int = 0
    submodules: int = 0
    """Sub-modules of the testbed, where there is no family."""

    def problem(self) -> Problem:
        """Draws or builds it."""
        if self.family is None:
            return edgeshard_testbed(self.objective, self.submodules)
        return draw_problem(replace(self.family, objective=self.objective), self.seed)


@dataclass(frozen=True)
class Result:
    """The time and the result of one solve."""

    case: str
    seconds: float
    gap: float | None
    """None: no plan."""
    value: float | None
    devices: int
    """In use."""
    peak_mb: float
    method: str


def cases(seeds: int) -> Iterator[Case]:
    """Everything that is measured."""
    for objective in OBJECTIVES:
        for count in (81, 165):
            yield Case(f"EdgeShard testbed, 70B x {count}, {objective}", objective, submodules=count)
    for family in FAMILIES:
        for objective in OBJECTIVES:
            for seed in range(seeds):
                yield Case(f"{_words(family)}, {objective}, seed {seed}", objective, family, seed)


def _words(family: Family) -> str:
    residual = f", {family.residual:.0%} residual" if family.residual else ""
    return f"{family.devices} x {family.submodules}, memory x{family.memory:g}, {family.links}{residual}"


def measure(case: Case) -> Result:
    """Solves it in this process."""
    problem, start = case.problem(), time.monotonic()
    try:
        solution, method = find_best(problem), "infeasible"
    except PlanError as error:
        solution, method = None, str(error)
    took = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    if solution is None:
        return Result(case.name, took, None, None, 0, peak, method)
    bound = solution.bound
    gap = None if bound is None else abs(solution.value - bound) / solution.value
    devices = len({stage.device for stage in solution.stages})
    return Result(case.name, took, gap, solution.value, devices, peak, solution.method)


def row(result: Result) -> str:
    """One line of the table."""
    unknown = "no plan" if result.value is None else "not known"
    gap = unknown if result.gap is None else f"{result.gap:.2%}"
    return (
        f"{result.case:66} {result.seconds:7.2f} s {gap:>8} {result.devices:3} used "
        f"{result.peak_mb:6.0f} MB  {result.method}"
    )


def main() -> None:
    """Prints the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument("--seeds", type=int, default=1, help="problems of each family and objective")
    args = parser.parse_args()
    results = []
    context = multiprocessing.get_context("spawn")
    for case in (case for case in cases(args.seeds) if args.only in case.name):
        with context.Pool(1) as pool:
            results.append(pool.apply(measure, (case,)))
        if not args.json:
            print(row(results[-1]), flush=True)
    if args.json:
        print(json.dumps([asdict(result) for result in results], indent=2))


if __name__ == "__main__":
    main()
