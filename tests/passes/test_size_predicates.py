"""Predicates of sizes that change before the largest size: computed as onnxruntime does, or refused, never folded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from partc.config.model import ModelConfig
from partc.config.sources import OnnxFile
from partc.errors import UserError
from tests.families.check import compile_ring, devices_file, simplified

pytestmark = [pytest.mark.hf, pytest.mark.ort]

WIDTH, LARGEST = 8, 200
Nodes = list[onnx.NodeProto]


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


COUNT = [node("Shape", "x", "shape", start=0, end=1), node("Squeeze", "shape zero", "count")]


def switch(predicate: Nodes, name: str) -> Nodes:
    """`bend` times the predicate, as a number."""
    return [*COUNT, *predicate, node("Cast", name, "factor", to=1), node("Mul", "bend factor", "cut")]


def save(path: Path, middle: Nodes) -> None:
    """Three products with `middle` between the second and the third: it makes `cut` of `bend`."""
    rng = np.random.default_rng(2)
    arrays: dict[str, Any] = {f"w{i}": rng.standard_normal((WIDTH, WIDTH), np.float32) for i in range(3)}
    arrays |= {"zero": np.array([0]), "ends": np.array([150]), "most": np.array([60])}
    arrays |= {"few": np.array(40), "some": np.array(120), "two": np.array(2)}
    begin = [node("MatMul", "x w0", "a"), node("Relu", "a", "b"), node("MatMul", "b w1", "bend")]
    graph = helper.make_graph(
        [*begin, *middle, node("MatMul", "cut w2", "y")],
        "sizes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["s", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["t", WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def compiled(folder: Path, middle: Nodes) -> Any:
    save(folder / "sizes.onnx", middle)
    config = ModelConfig(OnnxFile(folder / "sizes.onnx"), task="graph", dims={"s": LARGEST})
    return compile_ring(simplified(config), folder / "build", devices_file(folder, 3))


@pytest.mark.parametrize(
    "middle",
    [
        switch([node("Less", "count some", "p")], "p"),
        switch([node("Greater", "count some", "p")], "p"),
        switch([node("Equal", "count some", "p")], "p"),
        switch(
            [node("Greater", "count few", "l"), node("Less", "count some", "r"), node("And", "l r", "p")], "p"
        ),
    ],
    ids=["less", "greater", "equal", "between"],
)
def test_what_depends_on_a_size_is_computed_for_each(middle: Nodes, tmp_path: Path) -> None:
    ring = compiled(tmp_path, middle)
    assert len(ring.roles) == 3
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(tmp_path / "sizes.onnx"), options, providers=["CPUExecutionProvider"])
    for size in (1, 40, 41, 60, 119, 120, 121, 190, LARGEST):
        x = np.random.default_rng(size).standard_normal((size, WIDTH), np.float32)
        (right,) = session.run(["y"], {"x": x})
        np.testing.assert_allclose(ring.outputs({"x": x})["y"], right, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "middle",
    [
        [node("Slice", "bend zero ends zero", "cut")],
        [*COUNT, node("Min", "shape most", "end"), node("Slice", "bend zero end zero", "cut")],
    ],
    ids=["slice", "min"],
)
def test_a_size_with_a_bend_is_refused(middle: Nodes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a size is no sum, product or quotient") as error:
        compiled(tmp_path, middle)
    assert error.value.where == "node cut (Slice)"
