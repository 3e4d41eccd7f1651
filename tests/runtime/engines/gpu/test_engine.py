"""The engine over GPUs, on OpenCL: requests, padding, memory, and what it says where something fails."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from msgspec.structs import replace

from partc.bundle.writer import write_bundle
from partc.errors import BundleError, RunError
from partc.format import files
from partc.format.dtypes import Array
from partc.format.gpu_code import OPENCL_FILE
from partc.format.kernel_plan import KERNELS_FILE, KernelPlan
from partc.format.kernel_plan_rules import load_kernel_plan
from partc.format.role import Role, load_role
from partc.pipeline.registry import load_target
from partc.runtime.engines import plan_library
from partc.runtime.engines.contract import load_engine, make_engine
from partc.runtime.engines.gpu import opencl
from partc.runtime.engines.gpu.contract import DriverError, open_driver
from partc.runtime.engines.gpu.engine import GpuEngine
from tests.bundle.tiny import MAX, WIDTH, module, numpy_logits, write_checkpoint
from tests.families.ring import DirectRing
from tests.targets.compiled_steps import Compiled, module_of
from tests.targets.opencl import on_opencl

pytestmark = [pytest.mark.tvm, pytest.mark.opencl, pytest.mark.in_turns(3, whole=True)]

PART, STATE = "part_1", "cache.1.key"
TOKEN = {"batch": 1, "sequence": 1}


@dataclass(frozen=True)
class Device:
    """The second half of a Llama of two layers."""

    folder: Path

    @property
    def role(self) -> Role:
        return load_role(self.folder)

    def engine(self) -> GpuEngine:
        engine = load_engine(self.role, self.folder)
        assert isinstance(engine, GpuEngine)
        return engine


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers over two devices, with code for steps of 1 and of `MAX` rows."""
    folder, devices = tmp_path_factory.mktemp("gpu"), on_opencl("phone", "board")
    llama = module(write_checkpoint(folder / "model"), "tvm")
    for part in llama.parts or ():
        options = devices.devices[part.device].target_options
        part.graphs = load_target("tvm", options).lower(part.graphs, llama.info)
    write_bundle(llama, folder / "build", devices)
    return folder / "build"


@pytest.fixture(scope="module")
def device(build: Path) -> Device:
    return Device(build / "devices" / "board")


def step(engine: GpuEngine, position: int = 0, rows: int = 1) -> Array:
    hidden = np.random.default_rng(position).standard_normal((1, rows, WIDTH)).astype(np.float32)
    inputs = [hidden, np.array([position]), np.array([rows])]
    return engine.run(PART, 0, inputs, {"batch": 1, "sequence": rows})[0].copy()


def right(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(numpy_logits(np.array(tokens))[-1].argmax()))
    return tokens[len(prompt) :]


# Requests


def test_prompts_of_all_lengths_and_a_batch_of_unequal_ones(build: Path) -> None:
    ring = DirectRing(build)
    prompts = [[3, 8, 1, 15, 7, 7, 2, 9, 4][:length] for length in (1, 3, 4, 5, 7, 9)]
    expected = [right(prompt, 3) for prompt in prompts]
    assert [ring.generate([prompt], 3)[0] for prompt in prompts] == expected
    assert ring.generate(prompts[1:3], 3) == expected[1:3], "unequal lengths in one batch"
    assert len({tuple(tokens) for tokens in expected}) >= 3


def test_requests_in_flight_have_states_of_their_own(build: Path) -> None:
    prompts = [[5, 1, 7, 2], [9, 4, 4]]
    found = DirectRing(build).generate_together([[prompt] for prompt in prompts], 5)
    assert found == [[right(prompt, 5)] for prompt in prompts]


def test_prompts_in_parts(build: Path) -> None:
    prompt = [3, 8, 1, 15, 7, 7, 2]
    assert DirectRing(build, 3).generate([prompt], 4)[0] == right(prompt, 4)


def test_what_a_longer_request_left_does_not_show(device: Device) -> None:
    engine = device.engine()
    engine.reset(0, TOKEN)
    fresh = step(engine)
    step(engine, 0, MAX)
    engine.reset(0, TOKEN)
    np.testing.assert_array_equal(step(engine), fresh)


def test_inputs_may_lie_anywhere(device: Device) -> None:
    engine = device.engine()
    hidden = np.random.default_rng(0).standard_normal((1, 3, WIDTH)).astype(np.float32)
    askew = np.frombuffer(b"\0" + hidden.tobytes(), np.uint8)[1:].view(np.float32).reshape(hidden.shape)
    strided = np.concatenate([hidden, hidden], axis=2)[:, :, :WIDTH]
    results = []
    for x in (hidden, askew, strided):
        engine.reset(0, {"batch": 1, "sequence": 3})
        results += engine.run(PART, 0, [x, np.array([0]), np.array([3])], {"batch": 1, "sequence": 3})
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_an_output_that_is_an_input_is_copied(tmp_path: Path) -> None:
    """A reshape is a view: no kernel runs at all."""
    lines = ["input %x: f32[batch, sequence, 6]", "const %shape = i64[4] [0, 0, 2, 3]"]
    lines += ["%y: f32[batch, sequence, 2, 3] = Reshape(%x, %shape)", "output %y"]
    compiled = Compiled(module_of(lines, tmp_path, "tvm", 1), tmp_path / "build", on_opencl("phone"))
    given = [np.full((1, 3, 6), value, np.float32) for value in (1, 2, 3)]
    found = [compiled.run({"x": x}, {"batch": 1, "sequence": 3})["y"] for x in given]
    for array, x in zip(found, given, strict=True):
        np.testing.assert_array_equal(array, x.reshape(1, 3, 2, 3))


# Memory


class Counting:
    """A driver that counts what is alive, and fails when it is told to."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.failing = ""
        """The method that fails."""
        self.after = 0
        """Calls of it before that."""
        self.made: WeakSet[Any] = WeakSet()

    @property
    def alive(self) -> int:
        """Buffers, and parts of them, that somebody has."""
        gc.collect()
        return len(self.made)

    def __getattr__(self, name: str) -> Any:
        if name == self.failing:
            if not self.after:
                return self._fail
            self.after -= 1
        method = getattr(self._driver, name)
        return partial(self._make, method) if name in ("allocate", "part") else method

    def _make(self, method: Callable[..., Any], *arguments: object) -> Any:
        buffer = method(*arguments)
        self.made.add(buffer)
        return buffer

    def _fail(self, *arguments: object) -> None:
        raise DriverError("clDoubt: CL_OUT_OF_RESOURCES")


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The driver of all engines that a test opens."""
    made = Counting(open_driver("opencl"))
    monkeypatch.setattr("partc.runtime.engines.gpu.engine.open_driver", lambda provider: made)
    return made


def test_a_released_submodule_gives_all_of_its_memory_back(device: Device, counting: Counting) -> None:
    engine = make_engine(device.role, device.folder)
    for _ in range(2):
        engine.load(PART)
        engine.reset(0, TOKEN)
        assert isinstance(engine, GpuEngine)
        step(engine, 0, 3)
        assert counting.alive
        engine.release(PART)
        assert not counting.alive


@pytest.mark.parametrize("failing", ["allocate", "write"])
def test_a_loading_that_fails_leaves_nothing_and_may_be_repeated(
    device: Device, counting: Counting, failing: str
) -> None:
    engine = make_engine(device.role, device.folder)
    for after in range(6):
        counting.failing, counting.after = failing, after
        with pytest.raises(BundleError, match="CL_OUT_OF_RESOURCES"):
            engine.load(PART)
        assert not counting.alive, after
    counting.failing = ""
    engine.load(PART)
    engine.reset(0, TOKEN)
    assert isinstance(engine, GpuEngine)
    assert np.isfinite(step(engine)).all()


WORK: dict[str, tuple[str, Callable[[GpuEngine], object]]] = {
    "a request begins": ("clear", lambda engine: engine.reset(0, TOKEN)),
    "inputs get memory": ("allocate", step),
    "launches are prepared": ("prepare", step),
    "inputs are copied": ("write", step),
    "outputs are copied": ("read", step),
    "rows are read": ("read", lambda engine: engine.read_rows(PART, 0, STATE, 0, 0, 1)),
    "rows are written": (
        "write", lambda engine: engine.write_rows(PART, 0, STATE, 0, 0, np.zeros((1, 2, 8), np.float32)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WORK)
def test_a_driver_that_fails_ends_the_request(device: Device, counting: Counting, what: str) -> None:
    engine = device.engine()
    engine.reset(0, TOKEN)
    counting.failing, work = WORK[what]
    with pytest.raises(RunError, match=r"failed on .*: clDoubt: CL_OUT_OF_RESOURCES") as caught:
        work(engine)
    assert caught.value.where == "board"
    counting.failing = ""
    work(engine)


# What is refused


def test_a_machine_without_opencl(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "_LIBRARIES", ("libNobody.so.1",))
    with pytest.raises(BundleError, match=r"no GPU: there is no libNobody\.so\.1, .*ocl-icd") as caught:
        device.engine()
    assert "compile with `provider: cpu`" in (caught.value.hint or "")


def test_a_machine_without_nvidia_s_driver(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partc.runtime.engines.gpu.cuda._LIBRARY", "libNobody.so.1")
    role = device.role.changed(engine=replace(device.role.engine, provider="cuda"))
    with pytest.raises(BundleError, match=r"no GPU: there is no libNobody\.so\.1, which NVIDIA's driver"):
        make_engine(role, device.folder)


def test_code_of_another_plan(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other launches of the same kernels pass the rules of a plan; the code knows its own."""
    read = load_kernel_plan

    def load(path: Path) -> KernelPlan:
        plan = read(path)
        assert isinstance(plan.launches, dict)
        name = min(plan.launches)
        first, *rest = plan.launches[name]
        turned = replace(first, grid=(first.grid[0] + 1, *first.grid[1:]))
        return replace(plan, launches={**plan.launches, name: (turned, *rest)})

    monkeypatch.setattr(plan_library, "load_kernel_plan", load)
    with pytest.raises(BundleError, match="does not take it: its kernels are not those of the plan"):
        device.engine()


def test_a_plan_for_a_processor(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = json.loads((device.folder / KERNELS_FILE).read_text())
    assert raw.pop("launches")
    plain = device.folder.with_name("plain.json")
    plain.write_text(json.dumps(raw))
    plan = load_kernel_plan(plain)
    monkeypatch.setattr(plan_library, "load_kernel_plan", lambda path: plan)
    with pytest.raises(BundleError, match="it has no launches, which a GPU needs"):
        device.engine()


def test_code_that_was_changed(device: Device, tmp_path: Path) -> None:
    shutil.copytree(device.folder, tmp_path / "board")
    code = tmp_path / "board" / OPENCL_FILE
    code.write_bytes(code.read_bytes().replace(b"+", b"-", 1))
    with pytest.raises(BundleError, match=r"kernels\.cl"):
        Device(tmp_path / "board").engine()


def test_source_that_the_device_cannot_compile(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    read = files.read_verified

    def broken(folder: Path, name: str, entry: Any) -> bytes:
        return (
            read(folder, name, entry)
            + b"\n__kernel void odd(__global float* x) { nothing_of_that_name(x); }\n"
        )

    monkeypatch.setattr(plan_library, "read_verified", broken)
    with pytest.raises(BundleError, match="does not take it: clBuildProgram: "):
        device.engine()


def test_a_plan_that_takes_more_memory_than_the_build_says(device: Device) -> None:
    needed = load_kernel_plan(device.folder / KERNELS_FILE).arena_bytes
    assert device.role.build.memory.peak_bytes == needed
    small = device.role.changed(memory=replace(device.role.build.memory, peak_bytes=needed - 1))
    with pytest.raises(BundleError, match=f"takes {needed} bytes, and build.json reckons with {needed - 1}"):
        load_engine(small, device.folder)
