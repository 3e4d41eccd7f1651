"""The simulator of plans against rings of the runner's own cores in virtual time."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.format.dtypes import Array
from partc.format.messages import Data, Message
from partc.format.program import Run
from partc.format.role import Role
from partc.planner.model.problem import Link
from partc.planner.simulate.case import simulate
from partc.planner.simulate.demand import Load
from partc.planner.simulate.script import Script, Workflow
from partc.runtime.core.commands import Compute, Draw, Frame
from partc.runtime.core.source.schedule import Schedule
from partc.runtime.core.step import Step
from partc.runtime.virtual.ring import Ring
from tests.runtime.roles import RINGS, null_engine, roles_of

TOKENS = 4


@dataclass
class Model:
    """How long things take in a workflow, and what has been computed when."""

    workflow: Workflow
    ring: Ring | None = None
    free: dict[tuple[str, str], float] = field(default_factory=dict)
    """Link -> when it has carried everything so far."""
    ran: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """(device, slot, sub-module) -> how often."""
    runs: list[tuple[str, int, int, float]] = field(default_factory=list)
    """Device, request, step, start."""

    def seconds(self, device: str, work: Compute | Draw) -> float:
        if isinstance(work, Draw):
            return 0.0
        assert self.ring is not None
        key = device, work.slot, work.submodule
        step = self.ran[key] = self.ran.get(key, -1) + 1
        self.runs.append((device, work.slot, step, self.ring.clock.now))
        script = self.workflow.script(step)
        names = [item.submodule for item in script.programs[device] if isinstance(item, Run)]
        return script.runs[device][names.index(work.submodule)][1]

    def arrival(
        self, sender: str, receiver: str, message: Message, frames: Sequence[Frame], now: float
    ) -> float:
        """A link carries values one message after the other; nothing else takes time."""
        if not isinstance(message, Data):
            return now
        pair = sender, receiver
        script = self.workflow.script(message.rows[0].step)
        size = sum(script.bytes_of[spec.name] for spec in message.values)
        start = max(now, self.free.get(pair, 0.0))
        self.free[pair] = start + self.workflow.link_of[pair].seconds(size)
        return self.free[pair]


def script_of(roles: Mapping[str, Role], phase: str, rng: random.Random) -> Script:
    programs = {name: role.programs[phase] for name, role in roles.items()}
    runs = {
        name: tuple((0, rng.uniform(0.2, 3)) for item in program if isinstance(item, Run))
        for name, program in programs.items()
    }
    names = {value for role in roles.values() for value in role.types}
    return Script(phase, programs, runs, {name: rng.uniform(0, 2) for name in sorted(names)})


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[float]]:
    """Request -> when each token was there."""
    times: dict[int, list[float]] = {}
    inner = Schedule.emitted

    def spied(self: Schedule, step: Step, values: Mapping[str, Array], now: float) -> object:
        times.setdefault(step.request, []).append(now)
        return inner(self, step, values, now)

    monkeypatch.setattr(Schedule, "emitted", spied)
    return times


@pytest.mark.parametrize(
    "name", sorted({*RINGS} - {"tiles"})
)  # an empty tile takes no time, which no script knows
def test_the_simulator_does_what_the_cores_do(name: str, emitted: dict[int, list[float]]) -> None:
    @settings(max_examples=25)
    @given(seed=st.integers(0, 2**32), requests=st.integers(1, 3))
    def check(seed: int, requests: int) -> None:
        emitted.clear()
        rng = random.Random(seed)
        roles = roles_of(RINGS[name], max_requests=3, predicted={"prefill_s": 1e6, "decode_s": 1e6})
        links = {(a, b): Link(a, b, 1.0, rng.uniform(0, 1)) for a in roles for b in roles if a != b}
        scripts = tuple(script_of(roles, phase, rng) for phase in ("prefill", "decode"))
        workflow = Workflow("a", links, scripts)
        model = Model(workflow)
        ring = Ring(
            roles, lambda device: null_engine(roles[device]), seconds=model.seconds, arrival=model.arrival
        )
        model.ring = ring
        answers = [ring.client.submit([[1]], TOKENS, ignore_eos=True) for _ in range(requests)]
        ring.run(1e6, until=lambda: all(answer.done for answer in answers))
        assert not any(answer.problem for answer in answers)
        found = simulate(workflow, Load(requests, TOKENS, "no-bubbles", requests))
        for number, times in enumerate(emitted[key] for key in sorted(emitted)):
            assert found.token_s[number] == pytest.approx(times, rel=1e-12)
        runs = sorted((span.device, span.request, span.step, span.start_s) for span in found.spans)
        assert [run[:3] for run in runs] == [ran[:3] for ran in sorted(model.runs)]
        assert [run[3] for run in runs] == pytest.approx([ran[3] for ran in sorted(model.runs)], rel=1e-12)

    check()
