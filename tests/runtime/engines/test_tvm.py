"""The engine over libraries for a GPU, with this processor in its place: what it needs, and what a step costs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from partc.bundle.writer import write_bundle
from partc.errors import BundleError
from partc.format.role import load_role
from partc.runtime.engines.contract import load_engine
from partc.runtime.engines.tvm import TvmEngine
from tests.bundle.tiny import WIDTH, module, write_checkpoint
from tests.targets.virtual_machine import as_on_gpu, stand_in_for_gpu

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A device that holds the second half of a Llama of two layers."""
    scratch = tmp_path_factory.mktemp("tvm")
    with pytest.MonkeyPatch.context() as patch:
        stand_in_for_gpu(patch)
        write_bundle(module(write_checkpoint(scratch / "model"), "tvm"), scratch / "build")
        yield scratch / "build" / "devices" / "board"


def test_what_a_step_costs_besides_the_code(folder: Path) -> None:
    """Arguments are handed over once: a decode step makes no tensors but for its outputs."""
    engine = load_engine(as_on_gpu(load_role(folder)), folder)
    assert isinstance(engine, TvmEngine)
    inputs = [np.zeros((1, 1, WIDTH), np.float32), np.array([0]), np.array([1])]
    engine.run("part_1", 0, inputs, {"batch": 1, "sequence": 1})
    (call,) = engine._calls.values()
    arguments = list(call.arguments)
    engine.run("part_1", 0, inputs, {"batch": 1, "sequence": 1})
    assert all(now is before for now, before in zip(call.arguments, arguments, strict=True))


def test_a_machine_without_the_runtime(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    role = as_on_gpu(load_role(folder))
    monkeypatch.setenv("PARTC_TVM_LIBRARIES", str(tmp_path))
    missing = r"(?s)needs TVM's libtvm_runtime\.so, which is not found.*PARTC_TVM_LIBRARIES is .*unset it"
    with pytest.raises(BundleError, match=missing):
        load_engine(role, folder)
    monkeypatch.setitem(sys.modules, "tvm_ffi", None)
    with pytest.raises(
        BundleError, match=r"(?s)needs TVM's runtime, which is not installed.*pip install .*\[tvm\]"
    ):
        load_engine(role, folder)
