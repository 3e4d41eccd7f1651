"""The native runner's engine for GPUs, on OpenCL, and what it refuses; `test_engines.py` compares it with Python's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.errors import PartcError
from partc.format.gpu_code import OPENCL_FILE
from partc.format.kernel_plan import KERNELS_FILE
from partc.format.role import load_role
from partc.runtime.engines.contract import make_engine
from tests.families.check import simplified
from tests.families.ring import DirectRing
from tests.native.compiled import NATIVE, PRESET
from tests.native.engine_program import NativeEngine
from tests.native.test_engines import PROMPTS, decode, drawn_inputs
from tests.runtime.engines.test_contract import PART, STATES, Device, compiled
from tests.targets.aarch64 import ROOT
from tests.targets.sealed import seal
from tests.targets.test_tvm_aarch64 import _build

pytestmark = [pytest.mark.native, pytest.mark.tvm, pytest.mark.opencl, pytest.mark.in_turns(4, whole=True)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """The second half of a Llama of two layers, and its cache."""
    return compiled(tmp_path_factory.mktemp("gpu"), "opencl")


@pytest.fixture
def device(made: Device, tmp_path: Path) -> Device:
    """A copy whose files may be changed."""
    for path in made.folder.rglob("*"):
        if path.is_file():
            copy = tmp_path / "device" / path.relative_to(made.folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    seal(tmp_path / "device")
    return Device(load_role(tmp_path / "device"), tmp_path / "device")


def test_a_request_begins_with_zeros(built: Path, device: Device) -> None:
    dims = {**device.role.dims, "batch": 2, "sequence": 3}
    given = drawn_inputs(device.role, dims, 0, np.random.default_rng(0))
    with NativeEngine([built / "engine"], device.folder) as engine:
        engine.load(PART)
        for slot in (0, 1):
            engine.reset(slot, dims)
            engine.run(PART, slot, given, dims)
        assert all(engine.read_rows(PART, 0, state, 1, 0, 3).all() for state in STATES)
        engine.reset(0, dims)
        for state in STATES:
            assert not engine.read_rows(PART, 0, state, 1, 0, 12).any()
            assert engine.read_rows(PART, 1, state, 1, 0, 3).all(), "the other slot keeps its rows"


def test_rows_come_back_as_they_were_written(built: Path, device: Device) -> None:
    rows = np.random.default_rng(1).standard_normal((4, 2, 8)).astype(np.float32)
    with NativeEngine([built / "engine"], device.folder) as engine:
        engine.load(PART)
        engine.write_rows(PART, 1, STATES[0], 1, 5, rows)
        np.testing.assert_array_equal(engine.read_rows(PART, 1, STATES[0], 1, 5, 9), rows)
        assert not engine.read_rows(PART, 1, STATES[0], 1, 0, 5).any()
        assert not engine.read_rows(PART, 1, STATES[0], 0, 0, 12).any(), "the other sequence has none"


def other_digest(folder: Path) -> None:
    text = (folder / OPENCL_FILE).read_text()
    (folder / OPENCL_FILE).write_text(text.replace("// partc_kernels ", "// partc_kernels 00", 1))


def no_launches(folder: Path) -> None:
    plan = json.loads((folder / KERNELS_FILE).read_text())
    del plan["launches"]
    (folder / KERNELS_FILE).write_text(json.dumps(plan))


def other_launches(folder: Path) -> None:
    """One that the plan allows, and the code is not for."""
    plan = json.loads((folder / KERNELS_FILE).read_text())
    launch = min(plan["launches"].items())[1][0]
    launch["grid"][0] += 1
    (folder / KERNELS_FILE).write_text(json.dumps(plan))


def no_c(folder: Path) -> None:
    """The source does not compile."""
    (folder / OPENCL_FILE).write_text((folder / OPENCL_FILE).read_text() + "no C\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (other_digest, "does not take it: its kernels are not those of the plan"),
        (other_launches, "does not take it: its kernels are not those of the plan"),
        (no_launches, f"{KERNELS_FILE}: it has no launches, which a GPU needs"),
        (no_c, "does not take it: clBuildProgram: "),
    ],
)
def test_files_that_do_not_belong_together(
    built: Path, device: Device, damage: Callable[[Path], None], message: str
) -> None:
    damage(device.folder)
    assert "the file is damaged" in refusal(built, device.folder)
    seal(device.folder)
    found = refusal(built, device.folder)
    assert message in found
    with pytest.raises(PartcError) as right:
        make_engine(load_role(device.folder), device.folder).load(PART)
    assert found.split("clBuildProgram")[0] == str(right.value).split("clBuildProgram")[0]


def refusal(built: Path, folder: Path) -> str:
    """What is said where a sub-module is not loaded, or the engine does not even start."""
    with (
        pytest.raises((PartcError, AssertionError)) as caught,
        NativeEngine([built / "engine"], folder) as engine,
    ):
        engine.load(PART)
    return str(caught.value)


def test_a_machine_without_a_device(built: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(device.folder))
    assert "engine.provider: no GPU: OpenCL has no device here" in refusal(built, device.folder)


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("cuda", "there is no libcuda.so.1, which NVIDIA's driver brings"),
        ("opencl", "there is no libOpenCL.so.1, which the driver of a GPU brings"),
    ],
)
def test_a_machine_without_the_library(
    built: Path, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, message: str
) -> None:
    """A file that is no library stands where the system would find it first."""
    for name in ("libcuda.so.1", "libOpenCL.so.1", "libOpenCL.so"):
        (tmp_path / name).write_text("no library")
    seal(device.folder, engine=replace(device.role.engine, provider=provider))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert f"engine.provider: no GPU: {message}" in refusal(built, device.folder)


def test_a_runner_that_is_built_without_gpus(built: Path, device: Device, tmp_path: Path) -> None:
    """The one file for phones is, since a static program loads no libraries."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if PRESET != "dev" or compiler is None:
        pytest.skip("it is linked with what the preset dev has compiled")
    sources = [NATIVE / "tests/engine.cpp", NATIVE / "src/engines/contract.cpp", built / "libpartc.a"]
    command = [
        compiler,
        "-std=c++20",
        f"-I{NATIVE / 'src'}",
        *map(str, sources),
        "-o",
        str(tmp_path / "engine"),
    ]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    found = refusal(tmp_path, device.folder)
    assert "engine.kind: this runner is one static file, which cannot load the driver of a GPU" in found
    assert "hint: set `runner: python` for this device" in found


def example(folder: Path) -> Path:
    """A build of the example model for one device with OpenCL."""
    config = ModelConfig(
        CheckpointFolder(ROOT / "examples/storyteller"), max_sequence=48, max_batch=2, max_requests=1
    )
    device = (
        "target: tvm, provider: opencl, arch: host, flops: 1 TFLOP/s, memory_bandwidth: 8 GB/s, memory: 4 GiB"
    )
    (folder / "devices.yaml").write_text(f"source: a\ndevices:\n  a: {{{device}, options: {{chunks: []}}}}\n")
    _build(simplified(config), folder / "devices.yaml", folder / "build")
    return folder / "build"


@pytest.mark.hf
def test_the_example_decodes_the_tokens_of_pythons_engine(built: Path, tmp_path: Path) -> None:
    build = example(tmp_path)
    right = DirectRing(build).generate(PROMPTS, 24)
    assert decode(build, [built / "engine"], PROMPTS, 24) == right
    assert right[0] != right[1]
