"""ONNX files: a convolution network with skip connections, a skip over two devices that travels once, directly, and
the networks that the onnx package brings for its own tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import DATA_DIR

from partc.cli.main import run
from partc.config.model import ModelConfig
from partc.config.sources import OnnxFile
from tests.families.check import compile_ring, devices_file, simplified

pytestmark = [pytest.mark.hf, pytest.mark.ort]

CHANNELS = 8
LIGHT = Path(DATA_DIR) / "light"
"""Nine well-known networks whose weights are made when they run, so that the files are small."""
QUICK = ("light_squeezenet", "light_shufflenet", "light_resnet50")
"""Concatenations, shuffled channels, skips; the others are slow."""


class _Net:
    """Builds an ONNX graph a layer at a time."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        values = self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, channels: int, before: int, stride: int = 1) -> str:
        weights = self.weight(channels, before, 3, 3), self.weight(channels, 1)
        bias = self.add("Squeeze", weights[1])
        return self.add("Conv", x, weights[0], bias, pads=[1, 1, 1, 1], strides=[stride, stride])

    def block(self, x: str) -> str:
        """A residual block."""
        inner = self.conv(self.add("Relu", self.conv(x, CHANNELS, CHANNELS)), CHANNELS, CHANNELS)
        return self.add("Relu", self.add("Add", inner, x))

    def save(self, path: Path, output: str, sizes: list[int | str], size: int) -> None:
        shape: list[int | str | None] = ["images", 3, size, size]
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, sizes)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def write_network(path: Path, long_skip: bool) -> str:
    """Write the network as ONNX; the name of its output."""
    net = _Net()
    x = first = net.conv("image", CHANNELS, 3, stride=2)
    for _ in range(4):
        x = net.block(x)
    if long_skip:
        x = net.add("Add", x, first)
    pooled = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    output = net.add("MatMul", pooled, net.weight(CHANNELS, 5))
    net.save(path, output, ["images", 5], 16)
    return output


def test_convolution_network_cut_in_three(tmp_path: Path) -> None:
    output = write_network(tmp_path / "net.onnx", long_skip=False)
    config = ModelConfig(OnnxFile(tmp_path / "net.onnx"), task="graph", max_batch=2)
    ring = compile_ring(simplified(config), tmp_path / "build", devices_file(tmp_path, 3))
    assert len(ring.roles) == 3
    images = np.random.default_rng(5).standard_normal((2, 3, 16, 16)).astype(np.float32)
    session = ort.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    (right,) = session.run([output], {"image": images})
    np.testing.assert_allclose(ring.outputs({"image": images})[output], right, atol=1e-5, rtol=0)


def test_a_skip_over_two_devices_travels_once_and_directly(tmp_path: Path) -> None:
    output = write_network(tmp_path / "net.onnx", long_skip=True)
    config = ModelConfig(OnnxFile(tmp_path / "net.onnx"), task="graph")
    ring = compile_ring(simplified(config), tmp_path / "build", devices_file(tmp_path, 4), rule="eq1")
    assert len(ring.roles) == 4
    image = np.random.default_rng(5).standard_normal((1, 3, 16, 16)).astype(np.float32)
    session = ort.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    (right,) = session.run([output], {"image": image})
    np.testing.assert_allclose(ring.outputs({"image": image})[output], right, atol=1e-5, rtol=0)
    crossed = [(item.peer, item.device, name) for item in ring.trace[1] for name in item.values]
    far = [entry for entry in crossed if entry[1] != "a" and ord(entry[1]) - ord(entry[0]) > 1]
    assert len(far) == 1
    assert [entry for entry in crossed if entry[2] == far[0][2]] == far


def test_there_are_nine_light_networks() -> None:
    assert len(list(LIGHT.glob("*.onnx"))) == 9


@pytest.mark.in_turns(6)
@pytest.mark.parametrize(
    "network",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.slow)
        for path in sorted(LIGHT.glob("*.onnx"))
    ],
)
def test_a_light_network_cut_in_three(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, build = tmp_path / "model.yaml", str(tmp_path / "build")
    model.write_text(f"model: {{onnx: {network}}}\ntask: graph\n")
    devices = str(devices_file(tmp_path, 3))
    assert run(["compile", str(model), "--target", devices, "--strategy", "even", "-o", build]) == 0
    capsys.readouterr()
    assert run(["verify", build, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["equal"]
    links = {cut["sender"] + cut["receiver"] for cut in report["cuts"]}
    assert links >= {"ab", "bc", "ca"}
    assert all(cut["max_abs_error"] <= 1e-4 * cut["largest"] for cut in report["cuts"])
