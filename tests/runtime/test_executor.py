from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partc.errors import RunError
from partc.format.dtypes import Array
from partc.format.role import load_role
from partc.runtime.engines.contract import load_engine
from partc.runtime.executor import Executor
from partc.runtime.wire import Opening, Step
from tests.runtime.bundles import language_model
from tests.runtime.returning import returning_model


@dataclass
class Network:
    """The executors of a build and the messages between them, delivered when a test says so."""

    executors: dict[str, Executor] = field(default_factory=dict)
    air: list[tuple[str, str, Step, Mapping[str, Array]]] = field(default_factory=list)
    tokens: dict[int, list[list[int]]] = field(default_factory=dict)
    now: float = 0.0

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    def deliver(self, index: int) -> None:
        device, peer, step, values = self.air.pop(index)
        self.executors[device].deliver(peer, step, values)

    def advance(self) -> None:
        for executor in self.executors.values():
            while executor.ready:
                executor.advance()

    def settle(self) -> None:
        """All that follows from what is ready, message by message."""
        self.advance()
        while self.air:
            self.deliver(0)
            self.advance()


@dataclass
class Outlet:
    network: Network
    device: str

    def send(self, peer: str, step: Step, names: Sequence[str], arrays: Sequence[Array]) -> int:
        self.network.air.append((peer, self.device, step, dict(zip(names, arrays, strict=True))))
        return 1

    def emit(self, step: Step, values: Mapping[str, Array]) -> None:
        self.network.tokens.setdefault(step.request, []).append(values["token"].tolist())

    def traced(self, peer: str, step: Step, values: Mapping[str, Array]) -> None:
        raise AssertionError("nobody asked for it")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model("null").write(tmp_path_factory.mktemp("executor") / "build")


@pytest.fixture(scope="module", params=[language_model, returning_model], ids=["once", "returning"])
def any_build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Also of devices that a step comes back to."""
    return Path(request.param("null").write(tmp_path_factory.mktemp("executor") / "build"))


def network(build: Path) -> Network:
    made = Network()
    for folder in sorted((build / "devices").iterdir()):
        manifest = load_role(folder)
        made.executors[folder.name] = Executor(
            manifest, load_engine(manifest, folder), Outlet(made, folder.name), made.clock
        )
    return made


def step_of(request: int, step: int, slot: int | None = None, **changes: int) -> Step:
    """The prompt has three tokens."""
    return Step(
        request,
        request if slot is None else slot,
        step,
        "decode" if step else "prefill",
        {"batch": 1, "sequence": 1 if step else 3},
        (0 if step == 0 else 2 + step + changes.get("off", 0),),
        (1 if step else 3,),
        None if step else Opening({}),
    )


def begin(net: Network, request: int, step: int, slot: int | None = None) -> None:
    made = step_of(request, step, slot)
    ids = np.full((1, made.dims["sequence"]), request + 1, np.int64)
    net.executors["a"].begin(made, {"input_ids": ids})


def run_alone(build: Path, request: int, steps: int) -> list[list[int]]:
    net = network(build)
    for step in range(steps):
        begin(net, request, step)
        net.settle()
    return net.tokens[request]


@given(st.randoms(use_true_random=False))
def test_interleaving_changes_nothing(any_build: Path, random: object) -> None:
    """Three requests in flight, messages in any order that each link allows, give what each gives alone.

    So they do however often devices prepare what comes next.
    """
    net = network(any_build)
    steps = dict.fromkeys(range(3), 0)
    for request in steps:
        begin(net, request, 0)
    while any(count < 4 for count in steps.values()):
        net.advance()
        for request, count in steps.items():
            if len(net.tokens.get(request, [])) > count:
                steps[request] += 1
                if steps[request] < 4:
                    begin(net, request, steps[request])
                    net.advance()
        if net.air:
            heads = [index for index in range(len(net.air)) if _is_first_of_its_link(net, index)]
            net.deliver(random.choice(heads))  # type: ignore[attr-defined]
        random.choice(list(net.executors.values())).look_ahead()  # type: ignore[attr-defined]
    for request in steps:
        assert net.tokens[request] == run_alone(any_build, request, 4)


def _is_first_of_its_link(net: Network, index: int) -> bool:
    link = net.air[index][:2]
    return all(item[:2] != link for item in net.air[:index])


def test_a_step_that_was_prepared_is_not_begun_in_the_place_of_another(build: Path) -> None:
    net = network(build)
    begin(net, 0, 0)
    net.settle()
    net.executors["a"].look_ahead()
    with pytest.raises(RunError, match="does not follow"):
        net.executors["a"].begin(step_of(0, 1, off=1), {"input_ids": np.ones((1, 1), np.int64)})
    net.executors["a"].close(0)
    begin(net, 1, 0, slot=0)
    assert net.executors["a"].ready, "nothing is left of it"


def test_a_new_request_takes_the_slot_over(build: Path) -> None:
    """What is still under way for the slot's old request is dropped wherever it arrives."""
    net = network(build)
    begin(net, 0, 0)
    net.advance()
    net.executors["a"].close(0)
    begin(net, 5, 0, slot=0)
    net.advance()
    order = [0, 1, 0, 0, 0]  # of the old request: b's message comes first, c's after the new one's
    while net.air:
        net.deliver(order.pop(0) if order and order[0] < len(net.air) else 0)
        net.advance()
    assert list(net.tokens) == [5]


def test_messages_of_a_closed_request_are_dropped(build: Path) -> None:
    net = network(build)
    begin(net, 0, 0)
    net.advance()
    net.deliver(0)
    for executor in net.executors.values():
        executor.close(0)
        executor.close(0)
    net.settle()
    assert net.tokens == {}
    assert all(executor.doing() == "idle" for executor in net.executors.values())


def test_later_steps_of_an_unknown_request_are_dropped(build: Path) -> None:
    net = network(build)
    net.executors["b"].deliver("a", step_of(0, 1), {"hidden_1": np.zeros((1, 1, 8), np.float32)})
    assert not net.executors["b"].ready


def test_the_source_opens_nothing_for_a_message(build: Path) -> None:
    """After a restart, it is sent what its former life had not acknowledged."""
    net = network(build)
    token = {"token": np.zeros(1, np.int64)}
    net.executors["a"].deliver("c", step_of(0, 0), token)
    assert not net.executors["a"].ready
    begin(net, 1, 0)
    net.settle()
    with pytest.raises(RunError, match="has not begun"):
        net.executors["a"].deliver("c", step_of(1, 1), token)


def test_steps_must_follow(build: Path) -> None:
    net = network(build)
    begin(net, 0, 0)
    net.settle()
    hidden = {"hidden_1": np.zeros((1, 1, 8), np.float32)}
    with pytest.raises(RunError, match="does not follow"):
        net.executors["b"].deliver("a", step_of(0, 2), hidden)
    with pytest.raises(RunError, match="does not follow"):
        net.executors["b"].deliver("a", step_of(0, 1, off=1), hidden)
    with pytest.raises(RunError, match="is over"):
        net.executors["b"].deliver("a", step_of(0, 0), hidden)


def test_a_message_twice(build: Path) -> None:
    net = network(build)
    begin(net, 0, 0)
    net.advance()
    embed = next(index for index, item in enumerate(net.air) if item[0] == "c")
    net.air.append(net.air[embed])
    net.deliver(embed)
    with pytest.raises(RunError, match="twice"):
        net.deliver(len(net.air) - 1)


def test_numbers_of_requests_that_were_told_of(build: Path) -> None:
    """A source whose clock was set back must begin above them."""
    net = network(build)
    assert net.executors["b"].next_request == 0
    begin(net, 7, 0, slot=0)
    net.advance()
    net.deliver(0)
    assert net.executors["b"].next_request == 8
    net.executors["b"].close(11)
    net.executors["b"].close(9)
    assert net.executors["b"].next_request == 12


def test_doing_names_what_is_awaited(build: Path) -> None:
    net = network(build)
    begin(net, 0, 0)
    net.advance()
    assert net.executors["a"].doing() == "waits for token from c (step 0)"
    assert net.executors["b"].doing() == "idle"


def test_timings(build: Path) -> None:
    net = network(build)
    begin(net, 0, 0)
    net.settle()
    (timing,) = net.executors["c"].timings_of(0)
    assert timing.compute_s > 0
    assert set(timing.wait_s) <= {"a", "b"}
    assert timing.received_bytes == 2 * 3 * 8 * 4
