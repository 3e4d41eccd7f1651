"""A value that crosses a link is compared with the tensor that it is, never with one that looks like it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from onnx import helper

from partc.config.model import ModelConfig
from partc.config.sources import OnnxFile
from partc.verifier.expectation import Original
from partc.verifier.inputs import StepRequest
from partc.verifier.onnx_reference import OnnxReference
from partc.verifier.report import CutError, Report, Unknown
from tests.frontend.onnx_networks import BY_RATE, branches, late_input, save, tensor, value

pytestmark = [pytest.mark.hf, pytest.mark.ort]

Array = npt.NDArray[np.float32]


def _drawn(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((1, 64)).astype(np.float32)


X = {"x": _drawn(0), "state": _drawn(1)}


def _errors(
    config: ModelConfig, given: dict[str, Array], **crossed: Array
) -> dict[str, tuple[float, float] | None]:
    assert isinstance(config.model, OnnxFile)
    original = Original(OnnxReference(config.model.path, config), "float32")
    places = {(name, "a", "b"): array for name, array in crossed.items()}
    found = original.cuts_of_step(StepRequest("request", given, given), places)
    return {name: found[name, "a", "b"] for name in crossed}


def test_an_input_that_crosses_is_compared_with_itself(tmp_path: Path) -> None:
    config = ModelConfig(OnnxFile(late_input(tmp_path / "net.onnx")), task="graph")
    assert _errors(config, X, state=X["state"]) == {"state": (0.0, float(np.abs(X["state"]).max()))}


@pytest.mark.parametrize("other", ["state", "a", "b"])
def test_another_tensor_of_the_same_sizes_hides_no_error(tmp_path: Path, other: str) -> None:
    """The wrong value is exactly one that the original computes, elsewhere."""
    path = late_input(tmp_path / "net.onnx")
    seen = {**X, **OnnxReference(path).tensors(X, {"a", "b", "c"})}
    config = ModelConfig(OnnxFile(path), task="graph")
    right = _errors(config, X, c=seen["c"])["c"]
    wrong = _errors(config, X, c=seen[other])["c"]
    assert right is not None
    assert right[0] < 1e-5
    assert wrong is not None
    assert wrong[0] > 0.1


def test_values_that_passes_rewrote(tmp_path: Path) -> None:
    """Duplicates are one value, two transposes are one node, and an Identity is none."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("MatMul", ["x", "w"], ["again"]),
        helper.make_node("Transpose", ["m"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "sizes"], ["r"]),
        helper.make_node("Reshape", ["r", "back"], ["s"]),
        helper.make_node("Identity", ["again"], ["i"]),
        helper.make_node("Transpose", ["s"], ["u"], perm=[1, 0]),
        helper.make_node("Add", ["u", "i"], ["y"]),
    ]
    tensors = [
        tensor("w", np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)),
        tensor("sizes", [8, 8]),
        tensor("back", [64, 1]),
    ]
    path = save(tmp_path / "net.onnx", nodes, [value("x", [1, 64])], [value("y", [1, 64])], tensors)
    given = {"x": _drawn(0)}
    right = OnnxReference(path).tensors(given, {"m", "t", "s", "u", "y"})
    found = _errors(ModelConfig(OnnxFile(path), task="graph"), given, **right)
    known = {name: error for name, error in found.items() if error is not None}
    assert known.keys() >= {"m", "y"}
    assert all(error < 1e-4 for error, _ in known.values())
    wrong = _errors(ModelConfig(OnnxFile(path), task="graph"), given, m=right["y"])["m"]
    assert wrong is not None
    assert wrong[0] > 0.1


def test_a_value_that_only_a_pass_made_is_computed_from_those_that_are_known(tmp_path: Path) -> None:
    """Opset 12 has a Softmax over all following axes; the newer form of the graph has nodes around it."""
    node = helper.make_node("Softmax", ["m"], ["y"], axis=1)
    product = helper.make_node("Add", ["x", "x"], ["m"])
    path = save(
        tmp_path / "net.onnx", [product, node], [value("x", [2, 3, 4])], [value("y", [2, 3, 4])], (), 12
    )
    config = ModelConfig(OnnxFile(path), task="graph")
    reference = OnnxReference(path, config)
    given = {"x": np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)}
    own = {name: value for name, value in reference.graph.values.items() if value.producer is not None}
    made = sorted(own.keys() - {"m", "y"})
    assert made
    found = reference.counterparts(given, (*made, "m"))
    assert found.keys() == {*made, "m"}
    flat = (2 * given["x"]).reshape(2, 12)
    np.testing.assert_allclose(found[made[0]], flat, rtol=1e-6)


def test_values_of_a_branch_that_is_taken(tmp_path: Path) -> None:
    path = branches(tmp_path / "net.onnx", BY_RATE)
    config = ModelConfig(
        OnnxFile(path), task="graph", dims={"width": 64}, exact=frozenset({"width"}), inputs={"rate": 16000}
    )
    reference = OnnxReference(path, config)
    given = {"x": _drawn(0)}
    found = reference.counterparts(given, reference.graph.values)
    assert {"m", "k", "y"} <= found.keys()
    np.testing.assert_allclose(np.tanh(found["k"]), reference.outputs(given)["y"], atol=1e-6)


def test_a_value_without_a_counterpart_is_not_compared(tmp_path: Path) -> None:
    config = ModelConfig(OnnxFile(late_input(tmp_path / "net.onnx")), task="graph")
    assert _errors(config, X, unheard=X["state"]) == {"unheard": None}


def test_the_report_says_what_was_not_compared() -> None:
    report = Report([], [CutError("v", "a", "b", 0.0, 1.0)], 1e-4, 1.0, unknown=[Unknown("u", "b", "c")])
    assert report.to_json()["not_compared"] == [{"value": "u", "sender": "b", "receiver": "c"}]
    assert "not_compared" not in Report([], [], 1e-4, 1.0).to_json()
