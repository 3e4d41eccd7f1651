"""Both runners over a stand-in for NVIDIA's driver, which holds calls against CUDA's rules and computes with OpenCL.

So a step gives the numbers that it gives on OpenCL, bit for bit. What a real GPU makes of the code is another question.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from partc.format.role import load_role
from partc.runtime.engines.contract import make_engine
from tests.native.compiled import native_runner
from tests.native.engine_program import NativeEngine
from tests.native.python_calls import digest
from tests.native.test_engines import PROMPTS, act
from tests.native.test_gpu import example
from tests.runtime.engines.test_contract import PART, Device, compiled
from tests.runtime.runners import Runners
from tests.targets.aarch64 import ROOT
from tests.targets.libcuda import library_folder
from tests.targets.sealed import as_on_cuda

pytestmark = [pytest.mark.native, pytest.mark.tvm, pytest.mark.opencl, pytest.mark.in_turns(2)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library_folder(tmp_path_factory.mktemp("libcuda"))


@pytest.fixture(autouse=True)
def in_place(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started find the stand-in."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> tuple[Device, Path]:
    """The second half of a Llama of two layers, for OpenCL, and the folder of the same for CUDA."""
    folder = tmp_path_factory.mktemp("engine")
    made = compiled(folder, "opencl")
    return made, as_on_cuda(made.folder, folder / "cuda")


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("seed", range(2))
def test_the_same_calls_give_the_same_bytes_and_errors(
    built: Path, devices: tuple[Device, Path], seed: int
) -> None:
    opencl, folder = devices
    right = act(make_engine(opencl.role, opencl.folder), opencl.role, seed)
    with NativeEngine([built / "engine"], folder) as native:
        assert act(native, load_role(folder), seed) == right
    command = [sys.executable, "-m", "tests.native.python_calls", str(folder), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == digest(right), done.stderr
    assert len({item for item in right if isinstance(item, bytes)}) > 10


def test_a_call_against_the_rules_ends_the_process(
    built: Path, devices: tuple[Device, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above would show nothing: here the stand-in takes one buffer for freed."""
    source = (ROOT / "tests/targets/libcuda/libcuda.cpp").read_text()
    (tmp_path / "opencl.hpp").write_text((ROOT / "tests/targets/libcuda/opencl.hpp").read_text())
    changed = source.replace(
        "  memory[*address] = bytes;\n", "  if (bytes > 64) memory[*address] = bytes - 64;\n"
    )
    assert changed != source
    (tmp_path / "libcuda.cpp").write_text(changed)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library_folder(tmp_path, tmp_path / "libcuda.cpp")))
    with (
        pytest.raises(AssertionError, match=r"libcuda stand-in: cuM.*: .* bytes that are not there"),
        NativeEngine([built / "engine"], devices[1]) as native,
    ):
        native.load(PART)


@pytest.mark.in_turns(8)
@pytest.mark.hf
def test_tokens_of_a_ring_are_the_same_whoever_runs_its_devices(tmp_path: Path) -> None:
    """The runners load in a thread of its own, and release what they loaded when they end."""
    build = as_on_cuda(example(tmp_path), tmp_path / "cuda")
    found = []
    for runners in (Runners(native_runner(), "a"), Runners(native_runner(), "")):
        with runners.launch(build) as ring, ring.client() as client:
            found.append(client.generate(PROMPTS[:1], 8).tokens)
    assert found[0] == found[1]
    assert len(set(found[0][0])) > 1
