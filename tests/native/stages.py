"""The library of stages as the example for Python has it, from the native programs that tests build."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from partc.config.model import ModelConfig
from partc.config.sources import CheckpointFolder
from partc.format.dtypes import Array
from partc.runtime.engines.ort_library import VARIABLE, library_path
from tests.families.check import compile_ring, devices_file, save_tiny, simplified
from tests.families.ring import DirectRing
from tests.families.tiny import tiny_config
from tests.native.compiled import NATIVE, PRESET, native_programs
from tests.runtime.bundles import LENGTH, VOCABULARY, Build, Device, Part, language_model

EXAMPLES = NATIVE.parent / "examples" / "embed" / "stage"
HEADER = NATIVE / "include" / "partc_stage.h"
into_python = pytest.mark.skipif(
    PRESET in ("asan", "tsan"), reason="a library with a sanitizer cannot be loaded into this Python"
)


def shared_library() -> Path:
    """The library that tests build."""
    return native_programs() / "libpartc_stage.so"


@pytest.fixture(scope="session")
def stage_module() -> Iterator[ModuleType]:
    """examples/embed/stage/stage.py, and the library where it looks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARTC_STAGE_LIBRARY", str(shared_library()))
        patch.setenv(VARIABLE, str(library_path() or ""))
        spec = importlib.util.spec_from_file_location("stage_example", EXAMPLES / "stage.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        yield module


def stages_of(module: ModuleType, build: Path) -> list[Any]:
    """A stage of every device that the ring uses."""
    opened = [module.Stage(str(path.parent)) for path in sorted(build.glob("devices/*/build.json"))]
    for stage in opened:
        stage.reset(0)
    return opened


def crossings(ring: DirectRing, number: int) -> dict[int, dict[str, Array]]:
    """Step → all values of a request that crossed links or were drawn from."""
    found: dict[int, dict[str, Array]] = {}
    for crossing in ring.trace[number]:
        found.setdefault(crossing.step, {}).update(crossing.values)
    return found


Values = dict[str, tuple[str, list[int | str]]]


def returning() -> Build:
    """A ring of two devices whose steps come back to the first."""
    cut: Values = {name: ("float32", ["batch", "sequence", 8]) for name in ("h", "m")}
    own: Values = {**cut, "logits": ("float32", ["batch", 1, VOCABULARY]), "token": ("int64", ["batch"])}
    first = (
        "run part_0 (input_ids) -> (h)\nsend h to b\nrecv m from b\nrun part_2 (m, h) -> (logits)\n"
        "sample logits -> token\nemit token\n"
    )
    back = "recv h from a\nrun part_1 (h, position) -> (m)\nsend m to a\n"
    parts = [Part("part_0", ["input_ids"], ["h"]), Part("part_2", ["m", "h"], ["logits"])]
    both = ("prefill", "decode")
    return Build(
        {
            "a": Device(parts, dict.fromkeys(both, first), own),
            "b": Device([Part("part_1", ["h", "position"], ["m"])], dict.fromkeys(both, back), cut),
        },
        inputs=[("input_ids", "int64", ["batch", "sequence"])],
        outputs=[("token", "int64", ["batch"])],
        dims={"batch": 1, "sequence": LENGTH},
        engine="null",
    )


def tiny(folder: Path, family: str, target: str, batch: int = 1) -> Path:
    save_tiny(tiny_config(family), folder / "checkpoint")
    config = ModelConfig(
        CheckpointFolder(folder / "checkpoint"), max_sequence=64, max_batch=batch, max_requests=2
    )
    return compile_ring(simplified(config), folder / "build", devices_file(folder, 2, (target,))).build


BUILDS: dict[str, Callable[[Path], Path]] = {
    "three": lambda folder: language_model("null").write(folder / "build"),
    "returning": lambda folder: returning().write(folder / "build"),
    "onnx": lambda folder: language_model().write(folder / "build"),
    "llama": lambda folder: tiny(folder, "llama", "tvm"),
    "mamba2": lambda folder: tiny(folder, "mamba2", "ort"),
    "hybrid": lambda folder: tiny(folder, "lfm2", "tvm"),
}
MARKS = {
    "onnx": [pytest.mark.ort],
    "llama": [pytest.mark.tvm, pytest.mark.hf],
    "mamba2": [pytest.mark.ort, pytest.mark.hf],
    "hybrid": [pytest.mark.tvm, pytest.mark.hf],
}
STATEFUL = ("llama", "mamba2", "hybrid")
