"""Memory of kernel plans: exactly what was planned, nothing of anybody else's, and the bits of TVM's machine."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from partc.bundle.writer import write_bundle
from partc.errors import BundleError, RunError
from partc.format.build import load_build
from partc.format.dtypes import Array
from partc.format.kernel_plan import KernelPlan
from partc.format.kernel_plan_rules import load_kernel_plan
from partc.format.role import load_role
from partc.runtime.engines import plan_library
from partc.runtime.engines.contract import Engine, load_engine
from partc.runtime.engines.plan import PlanEngine
from tests.bundle.tiny import MAX, WIDTH, module, write_checkpoint
from tests.targets.virtual_machine import MachineEngine, MachineFrame, compiling_for_machine

pytestmark = [pytest.mark.tvm, pytest.mark.in_turns(3, whole=True)]

STATES = ("cache.1.key", "cache.1.value")


@dataclass(frozen=True)
class Folders:
    """One device twice: with a plan, and with the same kernels for TVM's virtual machine."""

    planned: Path
    machine: Path

    def engine(self, threads: int = 1) -> Engine:
        role = load_role(self.planned)
        return load_engine(role.changed(engine=replace(role.engine, threads=threads)), self.planned)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    scratch = tmp_path_factory.mktemp("plans")
    checkpoint = write_checkpoint(scratch / "model")
    write_bundle(module(checkpoint, "tvm"), scratch / "planned")
    with compiling_for_machine():
        write_bundle(module(checkpoint, "tvm"), scratch / "machine")
    return Folders(*(scratch / name / "devices" / "board" for name in ("planned", "machine")))


def steps(engine: Engine) -> list[bytes]:
    """The bits of all outputs and states of a request with prompts and tokens, for one sequence and for two."""
    found: list[Array] = []
    rng = np.random.default_rng(3)
    for batch in (1, 2):
        engine.reset(0, {"batch": batch, "sequence": MAX})
        for position, rows in ((0, 3), (3, 1), (4, 1), (0, MAX)):
            hidden = rng.standard_normal((batch, rows, WIDTH)).astype(np.float32)
            inputs = [hidden, np.full(batch, position), np.full(batch, rows)]
            found += engine.run("part_1", 0, inputs, {"batch": batch, "sequence": rows})
        for name in STATES:
            found += [engine.read_rows("part_1", 0, name, row, 0, MAX) for row in range(batch)]
    return [array.tobytes() for array in found]


def test_logits_and_states_are_those_of_the_virtual_machine_bit_for_bit(folders: Folders) -> None:
    machine = MachineEngine(load_role(folders.planned), folders.planned, folders.machine / "library.so")
    assert steps(folders.engine()) == steps(machine)
    assert machine._calls and all(isinstance(call.frame, MachineFrame) for call in machine._calls.values())


def test_more_threads_give_the_same_bits(folders: Folders) -> None:
    alone = steps(folders.engine())
    for _ in range(3):  # threads end with their engine, and others begin
        engine = folders.engine(threads=3)
        assert steps(engine) == alone
        engine.release("part_1")


def test_threads_that_the_system_does_not_give(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    alive, start = threading.active_count(), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if threading.active_count() == alive + 3:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(BundleError, match="9 threads cannot be started on this machine"):
        folders.engine(threads=9)
    assert threading.active_count() == alive, "those that began have ended"


def test_more_threads_than_any_device_has_cores_for(folders: Folders) -> None:
    alive = threading.active_count()
    with pytest.raises(BundleError, match="1025 threads are more than any device has cores for"):
        folders.engine(threads=1025)
    assert threading.active_count() == alive


def test_two_engines_of_one_library_have_threads_of_their_own(folders: Folders) -> None:
    """Who is released first does not end the threads of the other."""
    alone = steps(folders.engine())
    first, second = folders.engine(threads=2), folders.engine(threads=3)
    assert helpers() == 3
    assert steps(first) == alone
    first.release("part_1")
    assert helpers() == 2
    assert steps(second) == alone
    third = folders.engine(threads=2)
    del second
    gc.collect()
    assert helpers() == 1
    assert steps(third) == alone
    third.release("part_1")
    assert helpers() == 0


def helpers() -> int:
    return sum(thread.name == "partc-kernels" for thread in threading.enumerate())


def test_a_process_that_is_forked_computes_alone(folders: Folders) -> None:
    engine = folders.engine(threads=3)
    bits = steps(engine)
    child = os.fork()
    if not child:
        os._exit(0 if steps(engine) == bits else 1)
    assert os.waitpid(child, 0)[1] == 0
    engine.release("part_1")


def test_threads_sleep_soon_after_a_step(folders: Folders) -> None:
    engine = folders.engine(threads=4)
    steps(engine)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.02
    engine.release("part_1")


def test_the_memory_is_what_the_build_says(folders: Folders) -> None:
    engine = folders.engine()
    assert isinstance(engine, PlanEngine)
    (library,) = engine._libraries.values()
    assert library.arena.nbytes == library.plan.arena_bytes
    peak = load_build(folders.planned).memory.peak_bytes
    assert peak is not None and library.plan.arena_bytes <= peak < library.plan.arena_bytes + 4096


@pytest.mark.parametrize(
    ("device", "seed", "plans"),
    [
        ("board", 0, 500),
        ("phone", 2, 500),
        *(
            pytest.param(device, seed, 2500, marks=pytest.mark.slow)
            for device, seed in (("board", 0), ("board", 1), ("phone", 2), ("phone", 3))
        ),
    ],
)
def test_no_damaged_plan_touches_other_memory(folders: Folders, device: str, seed: int, plans: int) -> None:
    folder = folders.planned.with_name(device)
    command = [sys.executable, "-m", "tests.runtime.engines.damaged", str(folder), str(plans), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    accepted, ran = map(int, done.stdout.split())
    assert 0 < ran <= accepted < plans / 2, "some mutations are harmless, most are refused"


def damaged(folders: Folders, monkeypatch: pytest.MonkeyPatch, change: Mapping[str, object]) -> None:
    """Open the library with a plan whose function for a token is another one."""
    read = load_kernel_plan

    def load(path: Path) -> KernelPlan:
        found = read(path)
        function = replace(found.functions["part_1_b1_s1"], **change)
        return replace(found, functions={**found.functions, "part_1_b1_s1": function})

    monkeypatch.setattr(plan_library, "load_kernel_plan", load)
    folders.engine()


def test_a_plan_that_does_not_fit_the_build(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    function = load_plan(folders).functions["part_1_b1_s1"]
    first, *others = function.parameters
    wide = replace(first, shape=(1, 1, 2 * WIDTH))
    changes: list[tuple[Mapping[str, object], str]] = [
        ({"parameters": (wide, *others)}, r"parameters\[0\]: float32\[1, 1, \d+\], the build has float32"),
        ({"parameters": tuple(others)}, r"parameters: \d+, the build has \d+"),
        ({"outputs": ()}, "outputs: 0, the build has 1"),
    ]
    for change, message in changes:
        with monkeypatch.context() as patch, pytest.raises(BundleError, match=f"part_1_b1_s1: {message}"):
            damaged(folders, patch, change)


def test_a_plan_of_another_library(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_plan(folders)
    with (
        monkeypatch.context() as patch,
        pytest.raises(BundleError, match="there is no function part_1_b1_s1"),
    ):
        patch.setattr(plan_library, "load_kernel_plan", lambda path: replace(found, functions={}))
        folders.engine()


def test_a_plan_that_takes_more_memory_than_the_build_says(folders: Folders) -> None:
    role = load_role(folders.planned)
    needed = load_plan(folders).arena_bytes
    small = role.changed(memory=replace(role.build.memory, peak_bytes=needed - 1))
    with pytest.raises(
        BundleError, match=f"takes {needed} bytes, and build.json reckons with {needed - 1} in all"
    ):
        load_engine(small, folders.planned)


def test_kernels_are_those_of_the_plan(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes of another shape pass the rules of a plan; the library knows what its kernels take."""
    found = load_plan(folders)
    name = found.functions["part_1_b1_s1"].calls[0].kernel
    turned = replace(
        found.kernels[name],
        parameters=tuple(replace(p, shape=(*p.shape, 1)) for p in found.kernels[name].parameters),
    )
    for others in ({name: turned}, {"telepathy": turned}):
        wrong = replace(found, kernels={**found.kernels, **others})
        monkeypatch.setattr(plan_library, "load_kernel_plan", lambda path, wrong=wrong: wrong)
        with pytest.raises(BundleError, match=r"its kernels are not those that kernels\.json describes"):
            folders.engine()


def test_a_kernel_without_memory_is_named(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    name = load_plan(folders).functions["part_1_b1_s1"].calls[1].kernel
    engine = folders.engine()
    monkeypatch.setattr(plan_library.Library, "run", lambda library, calls, count: 2)
    inputs = [np.zeros((1, 1, WIDTH), np.float32), np.array([0]), np.array([1])]
    with pytest.raises(RunError, match=f"part_1: there is not enough memory for the kernel {name}"):
        engine.run("part_1", 0, inputs, {"batch": 1, "sequence": 1})


def load_plan(folders: Folders) -> KernelPlan:
    return load_kernel_plan(folders.planned / "kernels.json")
