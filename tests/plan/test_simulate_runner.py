"""The simulator against the runner's own executor, under a clock that a test turns."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partc.format.dtypes import Array
from partc.format.program import Run
from partc.format.role import Role, load_role
from partc.plan.problem import Link
from partc.plan.simulate.case import simulate
from partc.plan.simulate.demand import Load
from partc.plan.simulate.script import Script, Workflow
from partc.runtime.engines.null import NullEngine
from partc.runtime.executor import Executor
from partc.runtime.wire import Opening, Step
from tests.runtime.bundles import Build, Device, Part, language_model

Mail = tuple[str, Step, Mapping[str, Array]]
ROWS: list[int | str] = ["batch", "sequence"]


@dataclass
class Machine:
    """A device: its executor, its own clock, and what came while it computed."""

    executor: Executor
    now: float = 0.0
    post: list[Mail] = field(default_factory=list)


@dataclass
class Ring:
    """Executors that compute and send in virtual time."""

    workflow: Workflow
    tokens: int
    machines: dict[str, Machine] = field(default_factory=dict)
    events: list[tuple[float, int, int, str, Mail | None]] = field(default_factory=list)
    free: dict[tuple[str, str], float] = field(default_factory=dict)
    token_s: dict[int, list[float]] = field(default_factory=dict)
    runs: list[tuple[str, int, int, float]] = field(default_factory=list)
    """Device, request, step, start."""
    made: int = 0

    def push(self, time_s: float, device: str, mail: Mail | None = None) -> None:
        self.made += 1
        heapq.heappush(self.events, (time_s, mail is None, self.made, device, mail))

    def begin(self, request: int, step: int) -> None:
        self.machines["a"].executor.begin(step_of(request, step), {"input_ids": np.zeros((1, 1), np.int64)})

    def turn(self) -> None:
        """One event: a message is delivered unless the device computes, or the device looks what there is."""
        now, _, _, name, mail = heapq.heappop(self.events)
        machine = self.machines[name]
        if mail is not None:
            machine.post.append(mail)
        if machine.now > now:
            return
        machine.now = now
        for item in machine.post:
            machine.executor.deliver(*item)
        machine.post.clear()
        if machine.executor.ready:
            machine.executor.advance()
            self.push(machine.now, name)


class Engine(NullEngine):
    """Takes the time that a simulation's script says."""

    def __init__(
        self, ring: Ring, seconds: Callable[[str, str], float], manifest: Role, folder: Path
    ) -> None:
        super().__init__(manifest, folder)
        self.ring = ring
        self.device = manifest.device
        self.seconds = seconds
        self.steps: dict[int, list[str]] = {}
        """Slot -> what it has run."""
        for submodule in manifest.submodules:
            self.load(submodule)

    def reset(self, slot: int, dims: Mapping[str, int]) -> None:
        super().reset(slot, dims)
        self.steps[slot] = []

    def run(self, submodule: str, slot: int, inputs: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
        machine = self.ring.machines[self.device]
        self.steps[slot].append(submodule)
        step = self.steps[slot].count(submodule) - 1
        self.ring.runs.append((self.device, slot, step, machine.now))
        machine.now += self.seconds("decode" if step else "prefill", submodule)
        return super().run(submodule, slot, inputs, dims)


@dataclass
class Outlet:
    ring: Ring
    device: str

    def send(self, peer: str, step: Step, names: Sequence[str], arrays: Sequence[Array]) -> int:
        ring, pair = self.ring, (self.device, peer)
        size = sum(ring.workflow.script(step.step).bytes_of[name] for name in names)
        start = max(ring.machines[self.device].now, ring.free.get(pair, 0.0))
        ring.free[pair] = start + ring.workflow.link_of[pair].seconds(size)
        ring.push(ring.free[pair], peer, (self.device, step, dict(zip(names, arrays, strict=True))))
        return 1

    def emit(self, step: Step, values: Mapping[str, Array]) -> None:
        times = self.ring.token_s.setdefault(step.request, [])
        times.append(self.ring.machines[self.device].now)
        if len(times) < self.ring.tokens:
            self.ring.begin(step.request, step.step + 1)

    def traced(self, peer: str, step: Step, values: Mapping[str, Array]) -> None:
        raise AssertionError("nobody asked for it")


def step_of(request: int, step: int) -> Step:
    phase, opening = ("decode", None) if step else ("prefill", Opening({}))
    return Step(request, request, step, phase, {"batch": 1, "sequence": 1}, (step,), (1,), opening)


def returning_model() -> Build:
    """The ring goes a, b, c, b, a, b: what c sends to b may come while b computes something else."""
    programs = {
        "a": "run part_0 (input_ids) -> (v, w)\nsend w to b\nsend v to c\nrecv x from b\nrun part_4 (x) -> (y)\n"
        "send y to b\nrecv token from b\nemit token\n",
        "b": "recv w from a\nrun part_1 (w) -> (x)\nsend x to a\nrecv r from c\nrun part_3 (r) -> (q)\n"
        "recv y from a\nrun part_5 (q, y) -> (logits)\nsample logits -> token\nsend token to a\n",
        "c": "recv v from a\nrun part_2 (v) -> (r)\nsend r to b\n",
    }
    parts = {
        "a": [Part("part_0", ["input_ids"], ["v", "w"]), Part("part_4", ["x"], ["y"])],
        "b": [
            Part("part_1", ["w"], ["x"]), Part("part_3", ["r"], ["q"]), Part("part_5", ["q", "y"], ["logits"])
        ],
        "c": [Part("part_2", ["v"], ["r"])],
    }  # fmt: skip
    types: dict[str, tuple[str, list[int | str]]] = dict.fromkeys("vwxyrq", ("float32", ROWS))
    types |= {"logits": ("float32", ["batch", 1, 17]), "token": ("int64", ["batch"])}
    devices = {
        name: Device(parts[name], dict.fromkeys(("prefill", "decode"), programs[name]), types)
        for name in parts
    }
    given = [("input_ids", "int64", ROWS)]
    out: list[tuple[str, str, list[int | str]]] = [("token", "int64", ["batch"])]
    return Build(devices, given, out, {"batch": 1, "sequence": 24}, engine="null", max_requests=3)


@pytest.fixture(scope="module", params=[lambda: language_model("null"), returning_model])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = request.param().write(tmp_path_factory.mktemp("simulate") / "build")
    return written


def script_of(manifests: Mapping[str, Role], phase: str, rng: random.Random) -> Script:
    programs = {name: manifest.programs[phase] for name, manifest in manifests.items()}
    runs = {
        name: tuple((0, rng.uniform(0.2, 3)) for item in program if isinstance(item, Run))
        for name, program in programs.items()
    }
    names = {value for manifest in manifests.values() for value in manifest.types}
    return Script(phase, programs, runs, {name: rng.uniform(0, 2) for name in sorted(names)})


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), requests=st.integers(1, 3))
def test_the_simulator_does_what_the_runner_does(build: Path, seed: int, requests: int) -> None:
    rng = random.Random(seed)
    manifests = {path.name: load_role(path) for path in sorted((build / "devices").iterdir())}
    scripts = tuple(script_of(manifests, phase, rng) for phase in ("prefill", "decode"))
    links = {(a, b): Link(a, b, 1.0, rng.uniform(0, 1)) for a in manifests for b in manifests if a != b}
    workflow = Workflow("a", links, scripts)
    ring = Ring(workflow, tokens=4)
    for name, manifest in manifests.items():
        made = Engine(ring, seconds_of(workflow, name), manifest, build / "devices" / name)
        executor = Executor(manifest, made, Outlet(ring, name), lambda: 0.0)
        ring.machines[name] = Machine(executor)
    for number in range(requests):
        ring.begin(number, 0)
    ring.push(0.0, "a")
    while ring.events:
        ring.turn()
    found = simulate(workflow, Load(requests, 4, "no-bubbles", requests))
    for number in range(requests):
        assert found.token_s[number] == pytest.approx(ring.token_s[number], rel=1e-12)
    runs = sorted((span.device, span.request, span.step, span.start_s) for span in found.spans)
    assert [run[:3] for run in runs] == [ran[:3] for ran in sorted(ring.runs)]
    assert [run[3] for run in runs] == pytest.approx([ran[3] for ran in sorted(ring.runs)], rel=1e-12)


def seconds_of(workflow: Workflow, device: str) -> Callable[[str, str], float]:
    def seconds(phase: str, submodule: str) -> float:
        script = workflow.script(0 if phase == "prefill" else 1)
        names = [item.submodule for item in script.programs[device] if isinstance(item, Run)]
        return script.runs[device][names.index(submodule)][1]

    return seconds
