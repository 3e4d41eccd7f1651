"""The original as an ONNX file: what onnxruntime cannot read or run is the file's fault, and is said so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from partc.errors import ModelError
from partc.verifier.onnx_reference import OnnxReference

pytestmark = pytest.mark.ort

X = {"x": np.array([[1.0, -2.0]], np.float32)}


def _file(folder: Path, op: str = "Relu", **versions: Any) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node(op, ["a"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y])
    opset = helper.make_opsetid("", versions.pop("opset", 17))
    onnx.save(
        helper.make_model(graph, **{"ir_version": 9, **versions}, opset_imports=[opset]), folder / "net.onnx"
    )
    return folder / "net.onnx"


def test_outputs_and_what_is_computed_on_the_way(tmp_path: Path) -> None:
    reference = OnnxReference(_file(tmp_path))
    assert reference.outputs(X)["y"].tolist() == [[0.0, 2.0]]
    found = reference.tensors(X, {"a", "y"})
    assert {name: array.tolist() for name, array in found.items()} == {"a": [[-1.0, 2.0]], "y": [[0.0, 2.0]]}


@pytest.mark.parametrize("version", ["1.20.1", onnxruntime.__version__])
def test_weights_beside_a_file_are_found(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a folder below, and by an onnxruntime that knows nothing of where a model in memory comes from."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    weight = numpy_helper.from_array(np.array([2.0, 3.0], np.float32), "w")
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "data").mkdir()
    onnx.save(
        model, tmp_path / "net.onnx", save_as_external_data=True, location="data/w.bin", size_threshold=0
    )
    monkeypatch.setattr(onnxruntime, "__version__", version)
    monkeypatch.chdir(tmp_path)
    found = OnnxReference(Path("net.onnx")).tensors(X, {"a", "y"})
    assert sorted(value.tolist() for value in found.values()) == [[[-2.0, 6.0]], [[2.0, -6.0]]]


def test_an_error_without_words_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = onnxruntime.InferenceSession

    def fail(model: str | bytes, *more: Any, **options: Any) -> Any:
        if isinstance(model, str):
            raise MemoryError
        return real(model, *more, **options)  # to ask which versions it reads

    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    with pytest.raises(ModelError, match="cannot run the original: MemoryError"):
        OnnxReference(_file(tmp_path)).outputs(X)


def test_weights_beside_a_file_may_be_more_than_protobuf_writes(tmp_path: Path) -> None:
    """2.4 GB, of which no byte is on the disk, and of which few are read."""
    rows = 300_000_000
    with (tmp_path / "net.bin").open("wb") as data:
        data.truncate(rows * 8)
    table = TensorProto(
        name="table", data_type=TensorProto.FLOAT, dims=[rows, 2], data_location=TensorProto.EXTERNAL
    )
    for key, value in {"location": "net.bin", "offset": "0", "length": str(rows * 8)}.items():
        table.external_data.add(key=key, value=value)
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    nodes = [helper.make_node("Gather", ["table", "x"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [table]),
        ir_version=9,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    found = OnnxReference(tmp_path / "net.onnx").tensors({"x": np.array([rows - 1])}, {"a", "y"})
    (tmp_path / "net.bin").unlink()
    assert sorted(value.tolist() for value in found.values()) == [[[0.0, 0.0]], [[1.0, 1.0]]]


@pytest.mark.parametrize("versions", [{"ir_version": 99}, {"opset": 99}])
def test_a_file_that_is_too_new_is_said_with_its_versions(versions: dict[str, Any], tmp_path: Path) -> None:
    reference = OnnxReference(_file(tmp_path, **versions))
    for ask in (reference.outputs, lambda inputs: reference.tensors(inputs, {"a"})):
        with pytest.raises(
            ModelError, match=r"the file has .* 99; the installed onnxruntime, .*, reads up to"
        ) as caught:
            ask(X)
        assert caught.value.where == str(reference.path)
        assert caught.value.hint is not None


def test_what_onnxruntime_cannot_load_or_run_is_no_bug_of_partc(tmp_path: Path) -> None:
    unknown = OnnxReference(_file(tmp_path, "NoSuchOperator"))
    with pytest.raises(ModelError, match=r"NoSuchOperator.*not a legal node"):
        unknown.outputs(X)
    wrong = OnnxReference(_file(tmp_path))
    with pytest.raises(ModelError, match="onnxruntime cannot run the original"):
        wrong.outputs({"x": np.ones((1, 3), np.float32)})
