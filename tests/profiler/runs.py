"""Records of rings whose costs are known, made up without any clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partc.config.devices import DevicesConfig
from partc.format.placement import stages_of
from partc.ir.graph import Module
from partc.planner.simulate.build import Build
from partc.planner.simulate.case import Case
from partc.runs.history import History
from partc.runs.records import COLUMNS, WAIT, RequestRecord, RunRecord
from partc.runtime.client.results import Timings
from passes.partition_graph import problem_of
from tests.runtime.roles import PLAN, both, roles_of

PROMPT = 32


@dataclass(frozen=True)
class Truth:
    """What a ring really takes; seconds."""

    computing: Mapping[str, tuple[float, float]]
    """Device, in the order of the ring → (prefill, decode), the call of its engine included."""
    own: Mapping[str, float]
    """Device → its runner."""
    links: Mapping[str, tuple[float, float]]
    """Device → the message that it sends on, in a prefill and in a decode step."""

    def step_s(self, phase: int) -> float:
        """A whole step."""
        return sum(
            self.computing[name][phase] + self.own[name] + self.links[name][phase] for name in self.computing
        )

    def request(
        self,
        tokens: int = 8,
        prompt: int = PROMPT,
        began: float = 100.0,
        slow: Sequence[int] = (),
        moved: int | None = None,
        clocks: Mapping[str, float] | None = None,
    ) -> RequestRecord:
        """A request; steps in `slow` take 10 s longer, `clocks` are what devices' clocks are ahead.

        From step `moved` on it runs under another placement, and takes 100 times as long.
        """
        tables: dict[str, list[list[float]]] = {name: [] for name in self.computing}
        names, now = list(self.computing), began
        idle: dict[str, float] = {}
        for step in range(tokens):
            phase = min(step, 1)
            epoch = int(moved is not None and step >= moved)
            for name in names:
                computing, arrived = self.computing[name][phase] * 100**epoch, now
                waited = 0.0 if name == names[0] or not step else arrived - idle[name]
                idle[name] = arrived + self.own[name] + computing
                now = idle[name] + self.links[name][phase]
                ahead = (clocks or {}).get(name, 0.0)
                tables[name].append([step, arrived + ahead, computing, 0.0, 10.0, 10.0, epoch, waited])
            now += 10.0 * (step in slow)
            tables[names[0]][-1][-1] = now - idle[names[0]]
        columns = (*COLUMNS, f"{WAIT}peer")
        timings = {name: Timings(columns, np.array(table)) for name, table in tables.items()}
        return RequestRecord(prompt, tokens, 1, now - began, timings)


def run_of(*requests: RequestRecord, local: bool = True) -> RunRecord:
    """A run of one build."""
    return RunRecord(PLAN, "2026-01-31T12:00:00Z", local, requests)


def history_of(
    module: Module,
    devices: DevicesConfig,
    assignment: Sequence[str],
    *records: RunRecord,
    prompt_chunk: int | None = None,
) -> History:
    """The runs of a build with that assignment."""
    case = Case(problem_of(module, devices), stages_of(assignment))
    programs = {name: both("") for name in dict.fromkeys(assignment)}
    roles = roles_of(programs, prompt_chunk=prompt_chunk, predicted={"prefill_tokens": float(PROMPT)})
    return History(Build(Path("build"), roles), case, records, ())
