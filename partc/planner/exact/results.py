"""Results that are made before the last sub-module, for searches that know of one message back to the source alone.

The problem gets a place of its own for results: a device `home` behind the same links as the source, and a last
sub-module there that takes no time and reads all results. Where no plan can come back to the source for a result, what
holds for that problem holds for this one. Two things differ, each on its own side of the truth:

- A link to the source and one to `home` are two, so a link is never busier there than here. A throughput's bound
  stays one.
- A result that the source is sent anyway, since a later interval of it reads that value, is sent to `home` again. So
  where that may be, the bound is that of the problem without such results.

The value of a plan is always that of the problem itself (`evaluate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from partc.planner.exact.solution import Best, Solution, bound_of, cost_of
from partc.planner.model.evaluate import evaluate
from partc.planner.model.problem import Device, Edge, Link, Phase, Problem, Submodule

_RETURN = "return"
"""The results of the last sub-module, as a value of an edge."""


def has_results(problem: Problem) -> bool:
    """Whether a sub-module before the last one makes a result."""
    return any(phase.results for phase in problem.steps)


def seek_with_results(problem: Problem, seek: Callable[[Problem], Best]) -> Best:
    """The best plan by a search that knows of no such results."""
    best = seek(_with_home(problem))
    if best.solution is None:
        return best
    stages = best.solution.stages[:-1]
    found = Solution(stages, evaluate(problem, stages), None, best.solution.method)
    bound = best.solution.bound
    if problem.returns != 0 and _is_read_later(problem):
        relaxed = seek(_without_results(problem))
        bound = relaxed.solution.bound if relaxed.solution else None
    least_s = 0.0 if bound is None else cost_of(problem, bound)
    proven = bound_of(problem, found.value, least_s)
    return Best(replace(found, bound=proven), best.proven and proven == found.value)


def _without_results(problem: Problem) -> Problem:
    return replace(problem, results=(), phases=tuple(replace(phase, results=()) for phase in problem.phases))


def _is_read_later(problem: Problem) -> bool:
    """Whether the source might be sent a result since it reads it."""
    return any(
        (edge.sender, edge.value) in {(result.maker, result.value) for result in phase.results}
        for phase in problem.steps
        for edge in phase.edges
    )


def _with_home(problem: Problem) -> Problem:
    home = next(name for name in _names() if name not in problem.device_of)
    source = problem.source
    links = (
        *problem.links,
        *(replace(link, receiver=home) for link in problem.links if link.receiver == source),
        *(Link(*ends, math.inf, 0.0) for ends in ((source, home), (home, source))),
    )
    return replace(
        problem,
        devices=(*problem.devices, Device(home, 0.0)),
        submodules=(*problem.submodules, Submodule(0.0, {})),
        links=links,
        phases=tuple(_phase(phase, home) for phase in problem.steps),
    )


def _names() -> Iterator[str]:
    name = "home"
    while True:
        yield name
        name += "'"


def _phase(phase: Phase, home: str) -> Phase:
    last = len(phase.time_s) - 1
    brought = [Edge(each.maker, last + 1, each.bytes, each.value) for each in phase.results]
    return replace(
        phase,
        time_s=(*phase.time_s, {home: 0.0}),
        edges=(*phase.edges, *brought, Edge(last, last + 1, phase.return_bytes, _RETURN)),
        return_bytes=0.0,
        tilings=(*phase.tilings, None) if phase.tilings else (),
        results=(),
    )
