"""Scripts of a simulation: for each kind of step, every device's program and the costs of its instructions.

The programs follow from the plan, or come from the placement of a build (`partc.planner.simulate.build`); the costs
always follow from the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from partc.format.placement import Stages
from partc.format.program import Program, Run
from partc.planner.model.evaluate import ValueKey, results_sent, traffic_between
from partc.planner.model.pieces import part_name
from partc.planner.model.problem import Link, Phase, Problem
from partc.planner.model.stages import Ends
from partc.planner.programs.step import step_programs
from partc.planner.programs.work import Call, Compute, UnitWork, Values
from partc.planner.simulate.result import Limit


@dataclass(frozen=True)
class Script:
    """One kind of step."""

    phase: str
    programs: Mapping[str, Program]
    """Device -> what it does, in the order of the ring."""
    runs: Mapping[str, tuple[tuple[int, float], ...]]
    """Device -> (stage, seconds) of each `run` of its program, in order."""
    bytes_of: Mapping[str, float]
    """Value -> size; a message is as large as its values together."""
    lanes: bool = False
    """Whether messages of one request wait for each other on a link too, and its latency occupies nothing."""

    def size(self, values: Iterable[str]) -> float:
        """Bytes of a message."""
        return sum(self.bytes_of[value] for value in values)

    def occupied_s(self, link: Link, size: float) -> float:
        """Seconds for which a message of so many bytes occupies a link."""
        return size / link.bandwidth_bytes_per_s if self.lanes else link.seconds(size)


@dataclass(frozen=True)
class Workflow:
    """The work of the devices of a plan for one request."""

    source: str
    link_of: Mapping[tuple[str, str], Link]
    scripts: tuple[Script, ...]
    """The scripts of the first step and of every later one; a single one is for all."""
    batch: int = 1
    """Sequences of a request."""

    def script(self, step: int) -> Script:
        """The script of a step, counted from 0."""
        return self.scripts[min(step, len(self.scripts) - 1)]

    def limit(self, tokens: int) -> Limit:
        """The device or link that is busy longest for a token, in the mean over the `tokens` steps of a request.

        This is the objective `throughput` with the phases weighed by their steps: 1 / s_per_token.
        """
        busy: dict[str, float] = {}
        for script, steps in ((self.script(0), 1), (self.script(1), tokens - 1)):
            for name, seconds in busy_s(script, self.link_of).items():
                busy[name] = busy.get(name, 0.0) + steps * seconds / tokens
        name = max(busy, key=lambda key: busy[key])
        return Limit(name, busy[name])


def busy_s(script: Script, link_of: Mapping[tuple[str, str], Link]) -> dict[str, float]:
    """Seconds for which a step occupies each device (`a`) and each link (`a->b`)."""
    busy = {device: sum(seconds for _, seconds in runs) for device, runs in script.runs.items()}
    for device, program in script.programs.items():
        for message in (message for item in program for message in item.sends):
            name, link = f"{device}->{message.device}", link_of[device, message.device]
            busy[name] = busy.get(name, 0.0) + script.occupied_s(link, script.size(message.values))
    return busy


def workflow_of(problem: Problem, stages: Stages) -> Workflow:
    """The programs that a plan comes to; every time and link that it needs must be there."""
    scripts = tuple(_script(problem, phase, stages) for phase in problem.steps)
    return Workflow(problem.source, problem.link_of, scripts, problem.batch)


def stage_runs(phase: Phase, stages: Stages) -> dict[str, tuple[tuple[int, float], ...]]:
    """Device -> (stage, seconds) of its stages, in order."""
    runs: dict[str, tuple[tuple[int, float], ...]] = {}
    for place, stage in enumerate(stages):
        seconds = sum(phase.time_s[part][stage.device] for part in stage.indices)
        runs[stage.device] = (*runs.get(stage.device, ()), (place, seconds))
    return runs


def _script(problem: Problem, phase: Phase, stages: Stages) -> Script:
    """The programs of one phase; the values of a stage's call have no part in what it costs."""
    traffic = traffic_between(phase.edges, stages)
    back: ValueKey = (len(phase.time_s) - 1, "return", -1)
    sent = results_sent(phase, stages, problem.source)
    every = [*traffic.values(), *sent.values()]
    sizes = {key: size for values in every for key, size in values.items()} | {back: phase.return_bytes}
    names = _unique_names([*sizes])
    messages = {ends: [names[key] for key in values] for ends, values in traffic.items()}
    results = {place: [names[key] for key in values] for place, values in sent.items()}
    return Script(
        phase=phase.name,
        programs=_programs(stages, messages, results),
        runs=stage_runs(phase, stages),
        bytes_of={names[key]: size for key, size in sizes.items()},
    )


def _programs(
    stages: Stages, messages: Mapping[Ends, Sequence[str]], results: Mapping[int, Sequence[str]]
) -> dict[str, Program]:
    """The programs of stages that send these values to each other, and those that the client gets to the source."""
    units = []
    for place, stage in enumerate(stages):
        taken = [name for ends, names in messages.items() if ends[1] == place for name in names]
        made = [name for ends, names in messages.items() if ends[0] == place for name in names]
        run = Run(part_name(place), tuple(taken), tuple(dict.fromkeys([*made, *results.get(place, ())])))
        units.append(UnitWork(stage.devices, (Compute("alone", (Call(run, is_kept=True),)),)))
    ends = tuple(dict.fromkeys(name for names in results.values() for name in names))
    return step_programs(units, Values({}, frozenset(), ends, None))


def _unique_names(keys: Sequence[ValueKey]) -> dict[ValueKey, str]:
    """A name for each value: its own, with its maker where several values have the same."""
    count = Counter(name for _, name, _ in keys)
    return {
        key: key[1] if count[key[1]] == 1 else f"{key[1]}@{key[0]}.{key[2]}" for key in dict.fromkeys(keys)
    }
