"""A model over two devices, emitted with its weights and run in onnxruntime, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from partc.bundle.writer import write_bundle
from partc.format.role import Role, load_role
from partc.ir.graph import Part
from partc.pipeline.contract import no_progress
from partc.pipeline.registry import load_target
from tests.bundle.tiny import KV, MAX, SIZE, module, numpy_logits, tensors, write_checkpoint
from tests.targets.numpy_attention import Array

pytestmark = pytest.mark.ort


class Device:
    """One device of the build: onnxruntime with states bound as build.json says."""

    def __init__(self, folder: Path, batch: int) -> None:
        import onnxruntime

        self.role: Role = load_role(folder)
        (self.submodule,) = self.role.submodules.values()
        self.session = onnxruntime.InferenceSession(
            str(folder / self.submodule.file), providers=["CPUExecutionProvider"]
        )
        make = onnxruntime.OrtValue.ortvalue_from_numpy
        self.states = {
            s.name: make(np.full((batch, KV, MAX, SIZE), 7, np.float32)) for s in self.submodule.states
        }

    def run(self, values: dict[str, Array]) -> dict[str, Any]:
        binding = self.session.io_binding()
        for name in self.submodule.inputs:
            binding.bind_cpu_input(name, values[name])
        for name in self.submodule.outputs:
            binding.bind_output(name)
        for state in self.submodule.states:
            binding.bind_ortvalue_input(state.input, self.states[state.name])
            binding.bind_ortvalue_output(state.output, self.states[state.name])
        self.session.run_with_iobinding(binding)
        return dict(zip(self.submodule.outputs, (v.numpy() for v in binding.get_outputs()), strict=False))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ort")
    compiled = module(write_checkpoint(folder / "model"))
    for part in compiled.parts or ():
        part.graphs = load_target("ort").lower(part.graphs, compiled.info)
    write_bundle(compiled, folder / "build")
    return folder / "build"


def test_prompts_and_tokens_through_both_parts(build: Path) -> None:
    rng = np.random.default_rng(5)
    sequences = [rng.integers(0, 16, 9), rng.integers(0, 16, 7)]
    prompts = np.array([5, 3])
    devices = [Device(build / "devices" / name, 2) for name in ("phone", "board")]
    expected = [numpy_logits(sequence) for sequence in sequences]
    ids = np.zeros((2, 5), np.int64)
    for b in range(2):
        ids[b, : prompts[b]] = sequences[b][: prompts[b]]
    position, length = np.zeros(2, np.int64), prompts.astype(np.int64)
    for _ in range(5):
        values: dict[str, Array] = {"input_ids": ids, "position": position, "length": length}
        for device in devices:
            values |= device.run(values)
        position, length = position + length, np.ones(2, np.int64)
        for b in range(2):
            np.testing.assert_allclose(values["logits"][b, 0], expected[b][position[b] - 1], atol=1e-4)
        if int(position[1]) == 7:
            break
        ids = np.array([[sequences[b][position[b]]] for b in range(2)])


def test_the_graphs_are_lean_and_anonymous(build: Path) -> None:
    model = onnx.load(build / "devices" / "phone" / "part_0.onnx", load_external_data=False)
    operators = [node.op_type for node in model.graph.node]
    assert "Transpose" not in operators
    assert operators.count("GroupQueryAttention") == 1
    assert model.producer_name == "" and model.doc_string == "" and not model.metadata_props
    assert all(not node.doc_string for node in model.graph.node)


def test_weights_are_external_aligned_and_stored_once(build: Path) -> None:
    from safetensors.numpy import load_file

    folder = build / "devices" / "phone"
    model = onnx.load(folder / "part_0.onnx", load_external_data=False)
    external = {
        t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer if t.external_data
    }
    assert all(entry["location"] == "weights/part_0.safetensors" for entry in external.values())
    assert all(int(entry["offset"]) % 64 == 0 for entry in external.values())
    assert set(load_file(folder / "weights" / "part_0.safetensors")) == set(external)


def test_a_tied_embedding_on_one_device_is_stored_once(tmp_path: Path) -> None:
    import onnxruntime
    from safetensors.numpy import load_file

    compiled = module(write_checkpoint(tmp_path / "model"))
    target = load_target("ort")
    (graph,) = target.lower([compiled.graph], compiled.info)
    target.emit(Part("phone", [graph], {}), compiled.info, tmp_path, no_progress)
    stored = load_file(tmp_path / "weights" / "tiny.safetensors")
    assert sum(array.size == tensors()["embed"].size for array in stored.values()) == 1
    session = onnxruntime.InferenceSession(str(tmp_path / "tiny.onnx"), providers=["CPUExecutionProvider"])
    tokens = np.array([[3, 1, 4, 1, 5]])
    empty = np.zeros((1, KV, MAX, SIZE), np.float32)
    cache = {state.name: empty for state in graph.states()}
    start, length = np.array([0]), np.array([5])
    feeds = {"input_ids": tokens, "position": start, "length": length, **cache}
    (logits,) = session.run(["logits"], feeds)
    np.testing.assert_allclose(logits[0, 0], numpy_logits(tokens[0])[-1], atol=1e-4)
