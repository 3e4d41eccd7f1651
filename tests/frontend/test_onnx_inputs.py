"""Sizes and inputs that model.yaml fixes, and the branches that follow from them; files of older versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from partc.config.model import ModelConfig, load_model_config
from partc.config.sources import OnnxFile
from partc.errors import ConfigError, ModelError, UserError
from partc.frontend import load_module
from partc.ir.text import parse_module
from tests.families.check import compile_ring, devices_file, simplified
from tests.frontend.onnx_networks import (
    BY_DATA,
    BY_RANK,
    BY_RATE,
    branches,
    old_forms,
    products,
    save,
    tensor,
    value,
)

pytestmark = [pytest.mark.hf, pytest.mark.ort]


def _picture(folder: Path, sizes: list[Any]) -> Path:
    """An enlarged picture, whose sizes are no sums or quotients of those of the given one."""
    scale = helper.make_node("Resize", ["x", "", "scales"], ["p"], mode="nearest")
    flat = helper.make_node("Flatten", ["p"], ["y"])
    scales = [tensor("scales", np.array([1, 1, 1.37, 1.73], np.float32))]
    return save(folder / "net.onnx", [scale, flat], [value("x", sizes)], [value("y", [None, None])], scales)


def _model(folder: Path, text: str, file: str = "net.onnx") -> ModelConfig:
    path = folder / "model.yaml"
    path.write_text(f"model: {{onnx: {file}}}\ntask: graph\n{text}\n")
    return load_model_config(path)


@pytest.mark.parametrize(
    ("sizes", "dims", "shape"),
    [
        (["n", 3, "h.0", "h.1"], "{h.0: {exactly: 9}, h.1: {exactly: 7}}", ("n", 3, 9, 7)),
        (["n", 3, "h.0", "h.1"], "{h.0: 9, h.1: {exactly: 7}}", ("n", 3, "h_0", 7)),
        (["n", 3, "h.0", "h.1"], "{h_0: 9, h_1: 7}", ("n", 3, "h_0", "h_1")),
        ([-1, 3, "?", "?"], "{x.2: {exactly: 9}, x.3: {exactly: 7}}", ("x_0", 3, 9, 7)),
        ([-1, 3, "?", "?"], "{x_2: 9, x_3: 7}", ("x_0", 3, "x_2", "x_3")),
        ([-1, 3, "?", "?"], "{_: {exactly: 9}}", ("x_0", 3, 9, 9)),
        ([-1, 3, None, "?"], '{x.0: {exactly: 2}, x.2: 5, "?": 9}', (2, 3, "x_2", "x_3")),
        (["s", 3, "s", "t"], "{s: {exactly: 4}, t: 2}", (4, 3, 4, "t")),
    ],
)
def test_names_of_sizes(tmp_path: Path, sizes: list[Any], dims: str, shape: tuple[Any, ...]) -> None:
    _picture(tmp_path, sizes)
    module = load_module(_model(tmp_path, f"dims: {dims}"))
    assert module.graph.inputs[0].shape == shape
    assert module.info.dims.keys() == {dim for dim in shape if isinstance(dim, str)}


def test_a_name_wins_over_the_same_text_as_an_identifier(tmp_path: Path) -> None:
    _picture(tmp_path, ["a b", 3, "a_b", 8])
    module = load_module(_model(tmp_path, 'dims: {"a b": 2, a_b: 8}'))
    assert module.graph.inputs[0].shape == ("a_b", 3, "a_b_1", 8)
    assert module.info.dims == {"a_b": 2, "a_b_1": 8}


def test_a_network_that_needs_fixed_sizes(tmp_path: Path) -> None:
    path = _picture(tmp_path, ["n", 3, "h", "w"])
    open_sizes = ModelConfig(OnnxFile(path), task="graph", dims={"h": 9, "w": 7})
    with pytest.raises(UserError, match="cannot infer the size") as caught:
        simplified(open_sizes)
    assert "h: {exactly: N}, w: {exactly: N}}" in str(caught.value.hint)
    fixed = parse_module(simplified(_model(tmp_path, "dims: {h: {exactly: 9}, w: {exactly: 7}}")))
    assert fixed.graph.outputs[0].shape == ("n", 3 * 12 * 12)


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("dims: {h: 4, w: 4, nosuch: 7}", "no input has a size 'nosuch'", "its open sizes: n, h, w"),
        ("dims: {h: 4, ww: 4}", "no input has a size 'ww'", "did you mean `w`"),
        ("dims: {h: 4, x.2: 5, w: 4}", "two values for one size: h and x.2", "keep one"),
        ("dims: {h: 4, x_2: {exactly: 4}, w: 4}", "two values for one size: h and x_2", "keep one"),
        ("dims: {h: 4, w: 4, x.1: 3}", "'x.1', which `dims` in model.yaml names, is always 3", "remove it"),
        ("dims: {h: 4}", "size 'w' of input x has no limit", "dims: {w: {exactly: N}}"),
        ("dims: {h: 4, w: 4}\ninputs: {z: 1}", "there is no input 'z'", "its inputs: x"),
        ("dims: {h: 4, w: 4}\ninputs: {x: [1, [2]]}", "cannot be what `inputs` in model.yaml says", "float"),
        ("dims: {h: 4, w: 4}\ninputs: {x: [1, 2]}", r"its sizes are \[2\]", "float"),
        ("dims: {h: 4, w: 4}\ninputs: {x: 1}", "no input is left", "remove one from `inputs`"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str, hint: str) -> None:
    _picture(tmp_path, ["n", 3, "h", "w"])
    with pytest.raises(ModelError, match=said) as caught:
        load_module(_model(tmp_path, text))
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "dims: {h: {exact: 4}}",
        "dims: {h: {}}",
        "dims: {h: {exactly: 0}}",
        "dims: {h: four}",
        "inputs: {x: wide}",
    ],
)
def test_values_that_are_none(tmp_path: Path, text: str) -> None:
    _picture(tmp_path, ["n", 3, "h", "w"])
    with pytest.raises(ConfigError):
        _model(tmp_path, text)


def test_sizes_and_inputs_belong_to_onnx_graphs(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    for key in ("dims: {h: 4}", "inputs: {x: 4}"):
        path.write_text(f"model: {{config: {{model_type: llama}}}}\n{key}\n")
        with pytest.raises(ConfigError, match="belongs to ONNX graphs"):
            load_model_config(path)


def _runs_as_onnxruntime(config: ModelConfig, folder: Path, devices: int, **given: Any) -> list[str]:
    """Compare a ring with the file; the operators of all parts."""
    assert isinstance(config.model, OnnxFile)
    ring = compile_ring(simplified(config), folder / "build", devices_file(folder, devices))
    session = ort.InferenceSession(str(config.model.path), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((1, 64)).astype(np.float32)
        right = session.run(["y"], {name: given.get(name, x) for name in names})[0]
        np.testing.assert_allclose(ring.outputs({"x": x})["y"], right, atol=1e-5)
    files = (folder / "build").rglob("*.onnx")
    return [node.op_type for file in sorted(files) for node in onnx.load(file).graph.node]


@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_branch_that_a_constant_input_decides(tmp_path: Path, rate: int) -> None:
    branches(tmp_path / "net.onnx", BY_RATE)
    config = _model(tmp_path, f"dims: {{width: {{exactly: 64}}}}\ninputs: {{rate: {rate}}}")
    operators = _runs_as_onnxruntime(config, tmp_path, 2, rate=np.array(rate))
    assert "If" not in operators
    assert operators.count("MatMul") == 2


def test_a_branch_that_sizes_decide(tmp_path: Path) -> None:
    branches(tmp_path / "net.onnx", BY_RANK)
    config = _model(tmp_path, "dims: {width: {exactly: 64}}")
    assert "If" not in _runs_as_onnxruntime(config, tmp_path, 2)


@pytest.mark.parametrize("opset", [11, 16, 18])
def test_a_branch_that_data_decides_stays_whole(tmp_path: Path, opset: int) -> None:
    branches(tmp_path / "net.onnx", BY_DATA, opset)
    config = _model(tmp_path, "dims: {width: {exactly: 64}}")
    assert _runs_as_onnxruntime(config, tmp_path, 2).count("If") == 1


def test_a_condition_that_is_an_open_input_stays_whole(tmp_path: Path) -> None:
    branches(tmp_path / "net.onnx", BY_RATE)
    assert "whole.If" in simplified(_model(tmp_path, "dims: {width: {exactly: 64}}"))


@pytest.mark.tvm
def test_a_target_without_branches_says_so(tmp_path: Path) -> None:
    from partc.pipeline.registry import load_target

    branches(tmp_path / "net.onnx", BY_DATA)
    module = parse_module(simplified(_model(tmp_path, "dims: {width: {exactly: 64}}")))
    refusals = [load_target("tvm", {}).refusal(node) for node in module.graph.nodes]
    (found,) = [str(refusal) for refusal in refusals if refusal is not None]
    assert "no code for If" in found
    assert "`target: ort`" in found


def test_branches_of_different_sizes_are_refused(tmp_path: Path) -> None:
    wide = helper.make_graph(
        [helper.make_node("Concat", ["x", "x"], ["r"], axis=1)], "t", [], [value("r", None)]
    )
    plain = helper.make_graph([helper.make_node("Neg", ["x"], ["r"])], "e", [], [value("r", None)])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "none"], ["c"]),
        helper.make_node("If", ["c"], ["k"], then_branch=wide, else_branch=plain),
        helper.make_node("Neg", ["k"], ["y"]),
    ]
    save(
        tmp_path / "net.onnx",
        nodes,
        [value("x", [1, 4])],
        [value("y", None)],
        [tensor("none", np.float32(0))],
    )
    with pytest.raises(UserError, match="the graphs inside do not give one size"):
        simplified(_model(tmp_path, ""))


def test_constant_inputs_may_be_lists_and_truth_values(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Where", ["flag", "x", "shift"], ["a"]),
        helper.make_node("Add", ["a", "shift"], ["y"]),
    ]
    inputs = [value("x", [1, 3]), value("flag", [1], TensorProto.BOOL), value("shift", [3])]
    save(tmp_path / "net.onnx", nodes, inputs, [value("y", [1, 3])])
    module = load_module(_model(tmp_path, "inputs: {flag: [true], shift: [1, 2, 0.5]}"))
    assert [given.name for given in module.graph.inputs] == ["x"]
    with pytest.raises(ModelError, match="99999 is no bool"):
        load_module(_model(tmp_path, f"inputs: {{flag: {25 * '9'}}}"))


def test_a_raw_warning_of_a_library_is_not_shown(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Constants are computed when the model is compiled: the logarithm of zero among them."""
    nodes = [helper.make_node("Log", ["zero"], ["l"]), helper.make_node("Max", ["x", "l"], ["y"])]
    save(
        tmp_path / "net.onnx",
        nodes,
        [value("x", [1])],
        [value("y", [1])],
        [tensor("zero", np.zeros(1, np.float32))],
    )
    simplified(_model(tmp_path, ""))
    assert not recwarn.list


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 15, 17, 18, 21])
def test_files_of_all_versions_are_quantised(tmp_path: Path, opset: int) -> None:
    """Each graph that is written is legal in the version that it states; `write_onnx` checks it."""
    products(tmp_path / "net.onnx", opset)
    config = _model(tmp_path, "quantize: int8")
    compile_ring(simplified(config), tmp_path / "build", devices_file(tmp_path, 2))
    files = [onnx.load(file, load_external_data=False) for file in (tmp_path / "build").rglob("*.onnx")]
    assert {entry.version for file in files for entry in file.opset_import if not entry.domain} == {
        max(opset, 18)
    }


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 17])
def test_operators_whose_form_changed_compute_the_same(tmp_path: Path, opset: int) -> None:
    path = old_forms(tmp_path / "net.onnx", opset)
    ring = compile_ring(simplified(_model(tmp_path, "")), tmp_path / "build", devices_file(tmp_path, 2))
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(ring.outputs({"x": x})["y"], session.run(None, {"x": x})[0], atol=1e-4)
