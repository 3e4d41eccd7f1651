"""The contract of engines, held against each of them by one set of tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from partc.bundle.writer import write_bundle
from partc.errors import BundleError, RunError
from partc.format.build import State
from partc.format.dtypes import Array
from partc.format.role import Role, load_role
from partc.pipeline.registry import load_target
from partc.runtime.engines.contract import Engine, load_engine, make_engine
from partc.runtime.engines.plan import PlanEngine
from tests.bundle.tiny import KV, MAX, SIZE, WIDTH, module, write_checkpoint
from tests.runtime.returning import returning_model
from tests.targets.opencl import on_opencl

ENGINES = [
    "null",
    pytest.param("ort", marks=pytest.mark.ort),
    pytest.param("tvm", marks=pytest.mark.tvm),
    pytest.param("opencl", marks=[pytest.mark.tvm, pytest.mark.opencl]),
]
PART, STATES = "part_1", ("cache.1.key", "cache.1.value")


@dataclass(frozen=True)
class Device:
    """The second half of a Llama of two layers, and its cache: 2 slots, 2 sequences, MAX positions."""

    role: Role
    folder: Path

    def engine(self) -> Engine:
        return load_engine(self.role, self.folder)

    def empty(self) -> Engine:
        return make_engine(self.role, self.folder)


def compiled(folder: Path, target: str) -> Device:
    """`opencl` is the target tvm with that provider."""
    name, options = ("tvm", {"provider": "opencl"}) if target == "opencl" else (target, {})
    llama = module(write_checkpoint(folder / "model"), name)
    for part in llama.parts or ():
        part.graphs = load_target(name, options).lower(part.graphs, llama.info)
    write_bundle(llama, folder / "build", on_opencl("phone", "board") if options else None)
    place = folder / "build" / "devices" / "board"
    role = load_role(place)
    if target == "null":  # which writes no states
        states = [State(name, name, name, "float32", ("batch", KV, MAX, SIZE)) for name in STATES]
        submodule = replace(role.submodules[PART], states=tuple(states))
        role = role.changed(submodules=(submodule,))
    return Device(role, place)


@pytest.fixture(scope="module", params=ENGINES)
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Device:
    return compiled(tmp_path_factory.mktemp("engine"), request.param)


@pytest.fixture
def engine(device: Device) -> Engine:
    return device.engine()


def step(engine: Engine, slot: int, position: int, rows: int = 1, batch: int = 2) -> Array:
    """Logits of a step whose input depends on its position alone."""
    hidden = np.random.default_rng(position).standard_normal((batch, rows, WIDTH)).astype(np.float32)
    counts = np.full(batch, position), np.full(batch, rows)
    return engine.run(PART, slot, [hidden, *counts], {"batch": batch, "sequence": rows})[0].copy()


def begin(engine: Engine, slot: int, batch: int = 2) -> None:
    engine.reset(slot, {"batch": batch, "sequence": 4})
    step(engine, slot, 0, rows=4, batch=batch)
    step(engine, slot, 4, batch=batch)


def copied(source: Engine, target: Engine, rows: int, sequences: int = 2) -> None:
    """Bring the first rows of slot 0 to slot 1 of another engine, in pieces of two."""
    for state in STATES:
        for row in range(sequences):
            for start in range(0, rows, 2):
                piece = source.read_rows(PART, 0, state, row, start, min(start + 2, rows))
                target.write_rows(PART, 1, state, row, start, piece)


@pytest.mark.in_turns(5)
def test_only_what_the_programs_run_is_loaded(device: Device) -> None:
    """Copies of other devices' sub-modules lie on the disk, and take no memory."""
    own = device.role.submodules[PART]
    role = device.role.changed(submodules=(replace(own, name="part_0", file="absent"), own))
    engine = load_engine(role, device.folder)
    engine.reset(0, {"batch": 2, "sequence": 4})
    step(engine, 0, 0, rows=4)
    with pytest.raises(RunError, match="'part_0' is not loaded"):
        engine.run("part_0", 0, [], {"batch": 2, "sequence": 4})


@pytest.mark.in_turns(8)
def test_rows_that_were_read_and_written_elsewhere_go_on_as_if_nothing_had_happened(device: Device) -> None:
    first, second = (device.engine() for _ in range(2))
    begin(first, 0)
    second.reset(1, {"batch": 2, "sequence": 1})
    copied(first, second, rows=5)
    for position in (5, 6):
        np.testing.assert_array_equal(step(second, 1, position), step(first, 0, position))


@pytest.mark.in_turns(4)
def test_a_shared_step_is_that_of_each_request_alone(device: Device) -> None:
    """Two requests at different positions, in any order of their slots."""
    alone, engine = device.engine(), device.engine()
    for each in (alone, engine):
        for slot, count in ((0, 1), (1, 4)):
            each.reset(slot, {"batch": 1, "sequence": 4})
            step(each, slot, 0, rows=count, batch=1)
    for slots, positions in (((1, 0), (4, 1)), ((0, 1), (2, 5))):
        rows = [step(alone, slot, at, batch=1) for slot, at in zip(slots, positions, strict=True)]
        hidden = [
            np.random.default_rng(at).standard_normal((1, 1, WIDTH)).astype(np.float32) for at in positions
        ]
        inputs = [np.concatenate(hidden), np.array(positions), np.ones(2, np.int64)]
        (made,) = engine.run_shared(PART, slots, inputs, {"batch": 2, "sequence": 1})
        np.testing.assert_array_equal(made, np.concatenate(rows))


def test_tokens_of_one_step_are_those_one_after_the_other(device: Device) -> None:
    """Each row sees the keys of those before it; what is behind a row that counts is written again."""
    alone, engine = device.engine(), device.engine()
    for each in (alone, engine):
        each.reset(1, {"batch": 1, "sequence": 4})
        step(each, 1, 0, rows=3, batch=1)

    def together(positions: Sequence[int], seeds: Sequence[int]) -> Array:
        hidden = [
            np.random.default_rng(seed).standard_normal((1, 1, WIDTH)).astype(np.float32) for seed in seeds
        ]
        inputs = [np.concatenate(hidden), np.array(positions), np.ones(len(positions), np.int64)]
        (made,) = engine.run_shared(PART, [1] * len(positions), inputs, {"batch": len(hidden), "sequence": 1})
        return made

    right = np.concatenate([step(alone, 1, at, batch=1) for at in (3, 4)])
    np.testing.assert_array_equal(together((3, 4), (3, 4)), right)
    together((5, 6), (50, 60))  # wrong guesses
    right = np.concatenate([step(alone, 1, at, batch=1) for at in (5, 6)])
    np.testing.assert_array_equal(together((5, 6), (5, 6)), right)
    for state in STATES:
        kept, own = (each.read_rows(PART, 1, state, 0, 0, 7) for each in (engine, alone))
        np.testing.assert_array_equal(kept, own)


def test_steps_on_processors_are_computed_at_once(device: Device) -> None:
    """Else the test above would compare steps alone with steps alone."""
    engine = device.engine()
    if isinstance(engine, PlanEngine):
        assert engine._together == {PART: [1, 2, 4, 8]}
        assert device.role.model.step_requests == 2
    else:
        assert device.role.engine.kind != "plan"


def test_a_row_that_is_left_out_shows(engine: Engine) -> None:
    begin(engine, 0)
    engine.reset(1, {"batch": 2, "sequence": 1})
    copied(engine, engine, rows=5, sequences=1)
    assert not np.array_equal(step(engine, 1, 5), step(engine, 0, 5))


def test_rows_lie_by_position_head_and_size(engine: Engine) -> None:
    """What is written comes back, and the other rows stay as they are."""
    begin(engine, 0)
    before = engine.read_rows(PART, 0, STATES[0], 1, 0, MAX)
    assert before.shape == (MAX, KV, SIZE)
    assert before.dtype == np.float32
    assert before.flags.c_contiguous
    rows = np.arange(3 * KV * SIZE, dtype=np.float32).reshape(3, KV, SIZE)
    engine.write_rows(PART, 0, STATES[0], 1, 6, rows)
    after = engine.read_rows(PART, 0, STATES[0], 1, 0, MAX)
    np.testing.assert_array_equal(after[6:9], rows)
    np.testing.assert_array_equal(after[:6], before[:6])
    np.testing.assert_array_equal(after[9:], before[9:])
    assert engine.read_rows(PART, 0, STATES[0], 0, 6, 9).max() < 16, "the other sequence"


def test_rows_of_one_engine_fit_another(device: Device, tmp_path: Path) -> None:
    """Layouts differ inside; a ring may hold several engines."""
    null, other = compiled(tmp_path, "null").engine(), device.engine()
    begin(other, 0)
    null.reset(1, {"batch": 2, "sequence": 1})
    copied(other, null, rows=5)
    for state in STATES:
        np.testing.assert_array_equal(
            null.read_rows(PART, 1, state, 1, 0, 5), other.read_rows(PART, 0, state, 1, 0, 5)
        )


def test_reset_makes_a_slot_as_new_and_leaves_the_others(engine: Engine) -> None:
    begin(engine, 0)
    begin(engine, 1)
    engine.reset(0, {"batch": 2, "sequence": 1})
    assert not engine.read_rows(PART, 0, STATES[0], 0, 0, MAX).any()
    assert engine.read_rows(PART, 1, STATES[0], 0, 0, MAX).any()
    assert not np.array_equal(step(engine, 0, 5), step(engine, 1, 5))


def test_another_thread_than_the_one_that_made_it(device: Device) -> None:
    """Loading, running, and moving rows, each in a thread of its own."""
    here, there = device.engine(), device.empty()
    begin(here, 0)
    for work in (
        lambda: there.load(PART),
        lambda: there.reset(1, {"batch": 2, "sequence": 1}),
        lambda: copied(here, there, rows=5),
    ):
        with ThreadPoolExecutor(1) as worker:
            worker.submit(work).result()
    with ThreadPoolExecutor(1) as worker:
        found = worker.submit(step, there, 1, 5).result()
    np.testing.assert_array_equal(found, step(here, 0, 5))


def test_a_submodule_is_loaded_once_released_and_loaded_again(engine: Engine) -> None:
    begin(engine, 0)
    expected = step(engine, 0, 5)
    engine.load(PART)
    assert engine.read_rows(PART, 0, STATES[0], 0, 0, 5).any(), "loading what is there changes nothing"
    engine.release(PART)
    engine.release(PART)
    with pytest.raises(RunError) as caught:
        step(engine, 0, 0)
    assert caught.value.cause == "bug"
    engine.load(PART)
    begin(engine, 0)
    np.testing.assert_array_equal(step(engine, 0, 5), expected)


def test_a_submodule_that_comes_while_a_request_runs_has_the_sizes_of_the_request(device: Device) -> None:
    source = device.engine()
    begin(source, 0, batch=1)
    engine = device.empty()
    engine.reset(1, {"batch": 1, "sequence": 1})
    engine.load(PART)
    copied(source, engine, rows=5, sequences=1)
    np.testing.assert_array_equal(step(engine, 1, 5, batch=1), step(source, 0, 5, batch=1))


@pytest.mark.parametrize(
    ("state", "row", "begin", "end", "message"),
    [
        ("cache.9.key", 0, 0, 1, "no state 'cache.9.key' is loaded"),
        (STATES[0], 2, 0, 1, "there is no sequence 2 of 2"),
        (STATES[0], -1, 0, 1, "there is no sequence -1 of 2"),
        (STATES[0], 0, MAX, MAX + 1, f"rows {MAX} to {MAX + 1} are none of its {MAX}"),
        (STATES[0], 0, 2, 1, "rows 2 to 1 are none"),
    ],
)
def test_rows_that_are_not_there(
    engine: Engine, state: str, row: int, begin: int, end: int, message: str
) -> None:
    engine.reset(0, {"batch": 2, "sequence": 1})
    with pytest.raises(RunError, match=message):
        engine.read_rows(PART, 0, state, row, begin, end)


@pytest.mark.parametrize(
    ("rows", "begin"),
    [
        (np.zeros((1, KV, SIZE), np.float16), 0),
        (np.zeros((1, SIZE, KV), np.float32), 0),
        (np.zeros((2, KV, SIZE), np.float32), MAX - 1),
    ],
    ids=["element type", "shape", "beyond the end"],
)
def test_rows_that_do_not_fit_change_nothing(engine: Engine, rows: Array, begin: int) -> None:
    engine.reset(0, {"batch": 2, "sequence": 1})
    with pytest.raises(RunError):
        engine.write_rows(PART, 0, STATES[0], 0, begin, rows)
    assert not engine.read_rows(PART, 0, STATES[0], 0, 0, MAX).any()


def test_a_submodule_that_the_build_has_not(engine: Engine) -> None:
    with pytest.raises(BundleError, match="there is no sub-module 'part_9'") as caught:
        engine.load("part_9")
    assert caught.value.hint == f"this device has {PART}"


def test_an_engine_that_nobody_has(device: Device) -> None:
    engine = replace(device.role.engine, kind="abacus")
    with pytest.raises(BundleError, match="no engine 'abacus'") as caught:
        make_engine(device.role.changed(engine=engine), device.folder)
    assert caught.value.hint == "this partc has ort, plan, gpu, null"


@pytest.mark.parametrize("kind", ["null", pytest.param("ort", marks=pytest.mark.ort)])
def test_submodules_come_and_go_while_others_run(tmp_path: Path, kind: str) -> None:
    """One thread runs part_1 all the time, another one loads and releases part_3."""
    folder = returning_model(kind).write(tmp_path / "build") / "devices" / "b"
    role = load_role(folder)
    engine = make_engine(role, folder)
    engine.load("part_1")
    expected, done = tokens(engine, role), threading.Event()

    def come_and_go() -> None:
        for _ in range(20):
            engine.load("part_3")
            engine.release("part_3")
        done.set()

    with ThreadPoolExecutor(1) as worker:
        loading = worker.submit(come_and_go)
        while not done.is_set() and not loading.done():
            np.testing.assert_array_equal(tokens(engine, role), expected)
        loading.result()


def tokens(engine: Engine, role: Role) -> Array:
    """What part_1 makes of a prompt and one more row."""
    engine.reset(0, {**role.dims, "batch": 1})
    found = []
    for position, rows in ((0, 3), (3, 1)):
        (kind,) = (role.types[name] for name in role.submodules["part_1"].inputs[:1])
        dims = {"batch": 1, "sequence": rows}
        hidden = np.full(kind.sizes(dims), 0.25, np.float32)
        found.append(engine.run("part_1", 0, [hidden, np.array([position])], dims)[0].reshape(-1))
    return np.concatenate(found)
