"""ONNX files whose external data lies where it must not, or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from partc.config.model import ModelConfig
from partc.config.sources import OnnxFile
from partc.errors import ModelError
from partc.frontend import load_module

pytestmark = pytest.mark.hf


def _model(folder: Path, location: str, length: int = 64) -> Path:
    """A model whose one weight, f32[4, 4], lies in the file `location`."""
    weight = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        weight.external_data.add(key=key, value=value)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    path = folder / "model" / "net.onnx"
    path.parent.mkdir()
    _save(path, graph)
    return path


def _save(path: Path, graph: onnx.GraphProto, ir_version: int = 9, opset: int = 17, domain: str = "") -> None:
    opsets = {"": 17, domain: opset}
    imports = [helper.make_opsetid(*entry) for entry in opsets.items()]
    onnx.save_model(helper.make_model(graph, ir_version=ir_version, opset_imports=imports), path)


def _load(path: Path) -> None:
    load_module(ModelConfig(OnnxFile(path), task="graph"))


def _data(path: Path) -> None:
    path.write_bytes(np.ones((4, 4), np.float32).tobytes())


def test_data_beside_the_model_is_read(tmp_path: Path) -> None:
    path = _model(tmp_path, "weights.bin")
    _data(path.parent / "weights.bin")
    _load(path)


@pytest.mark.parametrize(
    "location", ["../weights.bin", "{absolute}", "a/../../weights.bin", "weights.bin\0.png", ""]
)
def test_a_place_outside_the_folder_is_refused(location: str, tmp_path: Path) -> None:
    _data(tmp_path / "weights.bin")
    path = _model(tmp_path, location.replace("{absolute}", str(tmp_path / "weights.bin")))
    with pytest.raises(ModelError, match="outside the model's folder"):
        _load(path)


@pytest.mark.parametrize(("link", "said"), [(os.symlink, "symbolic link"), (os.link, "hard link")])
def test_links_are_refused(link: Callable[[Path, Path], None], said: str, tmp_path: Path) -> None:
    _data(tmp_path / "elsewhere.bin")
    path = _model(tmp_path, "weights.bin")
    link(tmp_path / "elsewhere.bin", path.parent / "weights.bin")
    with pytest.raises(ModelError, match=said):
        _load(path)


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    _data(tmp_path / "elsewhere" / "weights.bin")
    path = _model(tmp_path, "inside/weights.bin")
    (path.parent / "inside").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelError, match="symbolic link"):
        _load(path)


def test_missing_and_truncated_data_are_named(tmp_path: Path) -> None:
    path = _model(tmp_path, "weights.bin")
    with pytest.raises(ModelError, match=r"'weights\.bin' is missing"):
        _load(path)
    (path.parent / "weights.bin").write_bytes(b"\0" * 63)
    with pytest.raises(ModelError, match="truncated"):
        _load(path)


def test_a_model_without_inputs_is_refused(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones(3, np.float32), "w")
    node = onnx.helper.make_node("Add", ["w", "w"], ["y"])
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])
    graph = onnx.helper.make_graph([node], "g", [], [output], [weight])
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(graph), path)
    with pytest.raises(ModelError, match="has no inputs"):
        _load(path)


def test_a_truncated_model_is_refused(tmp_path: Path) -> None:
    path = _model(tmp_path, "weights.bin")
    _data(path.parent / "weights.bin")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ModelError, match=r"not an ONNX model|no nodes"):
        _load(path)


@pytest.mark.ort
@pytest.mark.parametrize(
    ("domain", "opset", "what"),
    [("", 99, "opset 99"), ("ai.onnx", 99, "opset 99"), ("ai.onnx.ml", 99, "ai.onnx.ml opset 99")],
)
def test_a_newer_opset_than_onnxruntime_reads_is_refused(
    domain: str, opset: int, what: str, tmp_path: Path
) -> None:
    path = _model(tmp_path, "weights.bin")
    _data(path.parent / "weights.bin")
    _save(path, onnx.load(path, load_external_data=False).graph, opset=opset, domain=domain)
    with pytest.raises(ModelError, match=f"the file has {what}; the installed onnxruntime") as caught:
        _load(path)
    assert caught.value.where == str(path)
    (most,) = re.findall(r"reads up to (?:ai.onnx.ml )?opset (\d+)$", caught.value.message)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(f"opset {most}")
    _save(path, onnx.load(path, load_external_data=False).graph, opset=int(most), domain=domain)
    _load(path)


@pytest.mark.ort
def test_a_newer_file_format_than_onnxruntime_reads_is_refused(tmp_path: Path) -> None:
    path = _model(tmp_path, "weights.bin")
    _data(path.parent / "weights.bin")
    _save(path, onnx.load(path, load_external_data=False).graph, ir_version=99, opset=99)
    with pytest.raises(ModelError, match="the file has IR version 99 and opset 99") as caught:
        _load(path)
    most, opset = map(
        int, re.findall(r"reads up to IR version (\d+) and opset (\d+)$", caught.value.message)[0]
    )
    assert f"`model.ir_version = {most}`" in str(caught.value.hint)
    _save(path, onnx.load(path, load_external_data=False).graph, ir_version=most, opset=opset)
    _load(path)


def test_versions_are_no_matter_where_onnxruntime_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _model(tmp_path, "weights.bin")
    _data(path.parent / "weights.bin")
    _save(path, onnx.load(path, load_external_data=False).graph, ir_version=99)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    _load(path)


def test_bfloat16_is_read_without_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a library writes to standard output would stand before the JSON of a command."""
    kind = helper.make_tensor_value_info
    x, y = (kind(name, TensorProto.BFLOAT16, ["n", 4]) for name in "xy")
    path = tmp_path / "net.onnx"
    _save(path, helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [x], [y]))
    _load(path)
    assert capfd.readouterr().out == ""
