"""How often and by how much EdgeShard's published algorithms are behind the optimum under memory pressure.

    python -m tests.bench.edgeshard_gap [COUNT]

Two families of random problems with a plan: `paper`, within EdgeShard's own model (a chain, one phase, links
without latency, memory a plain sum, all devices together 1.05 to 1.6 times what the model needs), and `fleet`,
like real ones (`random_problems.py`: two phases, latencies, peaks; 1.3 times). The optimum is that of
`optimal`, one interval per device; for `edgeshard-latency`, which may return to a device, in the family
`paper` also that of its own Eq. 3-6 over all assignments.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable, Iterator

from partc.format.placement import stages_of
from partc.format.plan import Objective
from partc.planner.baselines.assignment_solver import solve_programme
from partc.planner.exact.optimal import find_best
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Problem, Submodule
from partc.planner.solve import solve
from tests.bench.random_problems import Family, draw_problem

Optimum = Callable[[Problem], float]


def draw_paper(objective: Objective, seed: int) -> Problem:
    """3-5 devices within a factor of 8 in speed, 5-10 layers; a transfer takes 0.05 to 2 mean layers."""
    rng = random.Random(f"{objective}-{seed}")
    names = "abcde"[: rng.randint(3, 5)]
    speed = {name: 8 ** rng.random() for name in names}
    sizes = [float(rng.randint(1, 4)) for _ in range(rng.randint(5, 10))]
    shares = [rng.uniform(0.3, 1.0) for _ in names]
    unit = rng.uniform(1.05, 1.6) * sum(sizes) / sum(shares)
    work = [rng.uniform(0.5, 1.5) for _ in sizes]
    return Problem(
        objective=objective,
        source="a",
        devices=tuple(Device(name, unit * share) for name, share in zip(names, shares, strict=True)),
        submodules=tuple(
            Submodule(size, {name: amount / speed[name] for name in names})
            for size, amount in zip(sizes, work, strict=True)
        ),
        links=tuple(Link(a, b, 0.5 * 40 ** rng.random(), 0.0) for a in names for b in names if a != b),
        edges=tuple(Edge(j, j + 1, 1.0) for j in range(len(sizes) - 1)),
        return_bytes=0.01,
    )


def draw_fleet(objective: Objective, seed: int) -> Problem:
    """4 devices, 24 sub-modules."""
    return draw_problem(Family(4, 24, objective, memory=1.3, spread=6.0), seed)


def solvable(
    draw: Callable[[Objective, int], Problem], objective: Objective, count: int
) -> Iterator[tuple[Problem, float]]:
    """Problems that have a plan, and its value."""
    seed = found = 0
    while found < count:
        seed += 1
        problem = draw(objective, seed)
        if (best := find_best(problem)) is not None:
            found += 1
            yield problem, best.value


def of_any_assignment(problem: Problem) -> float:
    """The least latency over all assignments of a chain."""
    answer = solve_programme(problem, None, 60.0)
    assert answer.assignment is not None and answer.proven
    value = evaluate(problem, stages_of(answer.assignment)).value
    assert value is not None
    return value


def report(title: str, values: list[float | None], optima: list[float], throughput: bool) -> None:
    """One line: how many plans are missing, behind, equal and ahead, and by how much those behind are."""
    known = [(value, best) for value, best in zip(values, optima, strict=True) if value is not None]
    behind = [(best - value if throughput else value - best) / best for value, best in known]
    losses = [loss for loss in behind if loss > 1e-6]
    ahead = sum(loss < -1e-6 for loss in behind)
    mean, largest = (statistics.mean(losses), max(losses)) if losses else (0.0, 0.0)
    print(
        f"{title:58} none {len(values) - len(known):4}  behind {len(losses):4}"
        f" (mean {mean:6.1%}, max {largest:6.1%})  equal {len(known) - len(losses) - ahead:4}  ahead {ahead:4}",
        flush=True,
    )


def main(count: int) -> None:
    """Both strategies in both families."""
    families = {"paper": draw_paper, "fleet": draw_fleet}
    print(f"{count} problems each; behind: part of the optimum's latency added, of its throughput lost")
    for objective in ("latency", "throughput"):
        strategy = f"edgeshard-{objective}"
        for family, draw in families.items():
            problems = list(solvable(draw, objective, count))
            values = [solve(problem, strategy).value for problem, _ in problems]
            optima = [best for _, best in problems]
            report(
                f"{strategy}, {family}, to one interval per device", values, optima, objective == "throughput"
            )
            if objective == "latency" and family == "paper":
                free = [of_any_assignment(problem) for problem, _ in problems]
                report(f"{strategy}, {family}, to any assignment (Eq. 3-6)", values, free, False)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
