"""Simulation of plans whose stages have several devices: the lanes of a step as programs.

`partc.planner.groups.step` follows one step of each phase through lanes, tile by tile. Here every piece of work in a
lane becomes a `run`, every message a `send` and a `recv`, in the order of their times, so that several requests can go
through the same lanes. A message stands before whatever begins when it has come, and what began before it came does not
wait for it; where a message leaves while its sender computes, the work is two runs. So a single request takes exactly
as long as the plan says. Messages of one request wait for each other on a link, and the latency of a link occupies
nothing, as in the lanes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from partc.format.plan import SharedStages
from partc.format.program import Emit, Instruction, Recv, Run, Send
from partc.planner.groups.lanes import Span
from partc.planner.groups.step import follow_shared
from partc.planner.groups.units import units_of
from partc.planner.model.problem import Phase, Problem
from partc.planner.simulate.script import Script, Workflow

Timed = tuple[float, bool, int, Instruction]
"""When an instruction is reached; whether it takes the device's time, and so waits for what else happens then; the
number of its span, as causes come before effects."""


def shared_workflow(problem: Problem, phases: Mapping[str, SharedStages]) -> Workflow:
    """The programs that a plan comes to; every time and link that it needs must be there. O(spans log spans)."""
    scripts = tuple(_script(problem, phase, phases[phase.name]) for phase in problem.steps)
    return Workflow(problem.source, problem.link_of, scripts, problem.batch)


def _script(problem: Problem, phase: Phase, stages: SharedStages) -> Script:
    units = units_of(stages)
    begins = [0, *accumulate(len(unit.devices) for unit in units)]
    timed: dict[str, list[Timed]] = {name: [] for unit in units for name in unit.devices}
    runs: dict[str, list[tuple[float, int, float]]] = {name: [] for name in timed}
    """Device -> (start, entry of the timeline, seconds) of its runs."""
    sizes: dict[str, float] = {}
    spans = follow_shared(problem, phase, stages).lanes.spans
    leaving = {name: sorted(s.start_s for s in spans if s.receiver and s.device == name) for name in timed}
    for number, span in enumerate(spans):
        if span.receiver is None:
            unit = span.units[0]
            entry = begins[unit] + units[unit].devices.index(span.device)
            for start, end in _parts(span, leaving[span.device]):
                runs[span.device].append((start, entry, end - start))
                timed[span.device].append((start, end > start, number, Run(span.work[0], (), ())))
            continue
        name = f"{'+'.join(span.work)}@{number}"
        sizes[name] = span.bytes
        timed[span.device].append((span.start_s, False, number, Send((name,), span.receiver)))
        timed[span.receiver].append((span.arrive_s, False, number, Recv((name,), span.device)))
    programs = {
        name: tuple(item for *_, item in sorted(items, key=lambda item: item[:3]))
        for name, items in timed.items()
    }
    programs[problem.source] += (Emit(()),)
    costs = {name: tuple((entry, seconds) for _, entry, seconds in items) for name, items in runs.items()}
    return Script(phase.name, programs, costs, sizes, lanes=True)


def _parts(span: Span, leaving: Sequence[float]) -> Iterator[tuple[float, float]]:
    """A piece of work, cut where messages leave its device meanwhile; `leaving` in order."""
    within = leaving[bisect_right(leaving, span.start_s) : bisect_left(leaving, span.finish_s)]
    return pairwise((span.start_s, *dict.fromkeys(within), span.finish_s))
