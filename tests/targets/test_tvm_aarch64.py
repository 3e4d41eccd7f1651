"""Libraries for aarch64 compute what those for this machine do; the runner runs here, its code in an emulator."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.format.kernel_plan import KernelFunction
from partc.ir.quantization import Quantization
from partc.ir.text import parse_module
from partc.pipeline.default import PHASES as DEFAULT
from partc.pipeline.default import default_pipeline
from partc.pipeline.manager import run_passes
from partc.pipeline.registry import load_pass
from partc.runtime.engines import plan
from partc.runtime.engines.plan_frame import Call, Frame
from partc.runtime.engines.plan_library import Library
from partc.verifier.reference import open_reference
from tests.families.check import save_tiny, simplified
from tests.families.ring import DirectRing
from tests.families.tiny import tiny_config
from tests.targets.aarch64 import ROOT, Emulator, missing_tools
from tests.targets.numpy_attention import Array

pytestmark = [pytest.mark.tvm, pytest.mark.hf, pytest.mark.qemu]

TOLERANCE = 1e-4
"""Between two processors, per largest value of a tensor."""
PHASES = ("cut", "measure", "place", "emit")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    missing = missing_tools()
    if missing and os.environ.get("CI"):
        pytest.fail(f"tests for aarch64 must run in CI: no {', '.join(missing)}", pytrace=False)
    if missing:
        pytest.skip(f"no {', '.join(missing)}")
    return Emulator(tmp_path_factory.mktemp("emulator"))


Foreign = Callable[[Path, str, Sequence[Array]], list[Array]]
"""Library of this machine, function, parameters → outputs and parameters of the library for aarch64."""


class Compared(Frame):
    """A function that computes here, and notes how far the one for aarch64 is off."""

    foreign: Foreign
    errors: dict[str, float]
    """Function → largest error of its outputs and states."""

    def __init__(
        self,
        library: Library,
        function: KernelFunction,
        parameters: Sequence[Array],
        calls: Sequence[Call] | None = None,
    ) -> None:
        super().__init__(library, function, parameters, calls)
        self._own = library.path, parameters
        self._name = next(name for name, found in library.plan.functions.items() if found is function)

    def run(self) -> None:
        path, parameters = self._own
        found = type(self).foreign(path, self._name, parameters)
        super().run()
        error = max(_error(*pair) for pair in zip(found, [*self.outputs, *parameters], strict=True))
        self.errors[self._name] = max(error, self.errors.get(self._name, 0.0))


def _error(found: Array, right: Array) -> float:
    assert found.shape == right.shape and np.isfinite(right).all()
    difference = np.nan_to_num(np.abs(found.astype(float) - right), nan=np.inf)
    return float(difference.max()) / max(1.0, float(np.abs(right).max()))


def _devices(folder: Path, arch: str, submodules: int = 0, features: str = "") -> Path:
    """One device; or two that hold sub-modules in turn, so that each sub-module is a function of its own."""
    names = "ab" if submodules else "a"
    device = (
        f"target: tvm, arch: {arch}, flops: 1 TFLOP/s, memory_bandwidth: 8 GB/s, memory: 4 GiB, threads: 1"
    )
    lines = [f"  {name}: {{{device}, options: {{chunks: [], features: [{features}]}}}}" for name in names]
    held = [", ".join(f"submodules {n}" for n in range(place, submodules, 2)) for place in range(2)]
    place = f"place: {{a: [{held[0]}], b: [{held[1]}]}}" if submodules else ""
    links = "links:\n  default: {bandwidth: 1 Gbit/s, latency: 1 ms}"
    path = folder / f"{arch}.yaml"
    path.write_text("\n".join(["source: a", "devices:", *lines, links, place]) + "\n")
    return path


def _build(text: str, devices: Path, build: Path) -> None:
    module = parse_module(text)
    run_passes(module, default_pipeline(devices, "optimal", "eq1+frontier", build, PHASES))


@pytest.mark.in_turns(8)
def test_the_example_decodes_the_tokens_of_transformers(emulator: Emulator, tmp_path: Path) -> None:
    folder = CheckpointFolder(ROOT / "examples/storyteller")
    config = ModelConfig(folder, max_sequence=48, max_batch=1, max_requests=1)
    _build(simplified(config), _devices(tmp_path, "aarch64"), tmp_path / "build")
    prompt = [1, 40, 77, 130, 25, 300, 12]
    decode = emulator.compile(ROOT / "examples/embed/decode.cpp")
    bundle = str(tmp_path / "build/devices/a")
    printed = emulator.run(decode, bundle, ",".join(str(token) for token in prompt), "20")
    assert [int(token) for token in printed.split()] == open_reference(config).generate(prompt, 20)


@pytest.mark.in_turns(8)
@pytest.mark.parametrize(
    ("weights", "features"),
    [
        ("int4", ""),
        pytest.param("int8", "", marks=pytest.mark.slow),
        pytest.param("int4", "neon", marks=pytest.mark.slow),
    ],
)
def test_quantised_weights_give_the_tokens_of_the_uncut_model_on_x86(
    weights: str, features: str, emulator: Emulator, tmp_path: Path
) -> None:
    config = ModelConfig(
        CheckpointFolder(ROOT / "examples/storyteller"),
        max_sequence=48,
        max_batch=1,
        max_requests=1,
        quantize=Quantization(weights, weights, weights),
    )
    text = simplified(config)
    _build(text, _devices(tmp_path, "aarch64", features=features), tmp_path / "build")
    _build(text, _devices(tmp_path, "x86_64"), tmp_path / "uncut")
    prompt = [1, 40, 77, 130, 25, 300, 12]
    decode = emulator.compile(ROOT / "examples/embed/decode.cpp")
    bundle = str(tmp_path / "build/devices/a")
    printed = emulator.run(decode, bundle, ",".join(str(token) for token in prompt), "20")
    assert [[int(token) for token in printed.split()]] == DirectRing(tmp_path / "uncut").generate(
        [prompt], 20
    )


@pytest.fixture
def errors(emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Function → its largest error, of every function that an engine runs with a build for aarch64 beside."""
    program = emulator.compile(ROOT / "tests/targets/call_function.cpp")

    def foreign(path: Path, name: str, parameters: Sequence[Array]) -> list[Array]:
        library = tmp_path / "aarch64/devices" / path.parent.name / path.name
        return emulator.call(program, library, name, parameters)

    noted: dict[str, float] = {}
    monkeypatch.setattr(Compared, "foreign", staticmethod(foreign), raising=False)
    monkeypatch.setattr(Compared, "errors", noted, raising=False)
    monkeypatch.setattr(plan, "Frame", Compared)
    return noted


@pytest.mark.in_turns(8)
@pytest.mark.parametrize("family", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_every_sub_module_computes_the_same_numbers(
    family: str, errors: dict[str, float], tmp_path: Path
) -> None:
    fields = tiny_config(family)
    fields |= {key: 2 for key in ("num_hidden_layers", "n_layer") if key in fields}
    save_tiny(fields, tmp_path / "checkpoint")
    config = ModelConfig(
        CheckpointFolder(tmp_path / "checkpoint"), max_sequence=24, max_batch=1, max_requests=1
    )
    text = simplified(config)
    module = parse_module(text)
    run_passes(module, [load_pass(step) for step in DEFAULT["cut"]])
    count = len(module.submodules or ())
    for arch in ("aarch64", "x86_64"):
        _build(text, _devices(tmp_path, arch, count), tmp_path / arch)
    DirectRing(tmp_path / "x86_64").generate([[5, 17, 60, 3, 44]], 2)
    # A sub-module behind the choice of the last row has one row, in a prompt too.
    assert {name.partition("_b")[0] for name in errors} == {f"part_{n}" for n in range(count)}
    assert {name.partition("_b")[2] for name in errors} == {"1_s1", "1_s24"}, "a token and a prompt"
    assert max(errors.values()) < TOLERANCE
    plans = [[*(tmp_path / arch).glob("devices/a/kernels.json")] for arch in ("aarch64", "x86_64")]
    assert plans[0][0].read_bytes() == plans[1][0].read_bytes(), "a plan names no machine"
