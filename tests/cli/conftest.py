"""A model that is compiled in a moment: a chain of products as an ONNX file, for devices of target null."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

DEVICES = """source: phone
devices:
  phone: {target: "null", flops: 1 GFLOP/s, memory_bandwidth: 1 GB/s, memory: 64 kB}
  board: {target: "null", flops: 4 GFLOP/s, memory_bandwidth: 4 GB/s, memory: 64 kB}
  far_away_tablet: {target: "null", flops: 2 GFLOP/s, memory_bandwidth: 2 GB/s, memory: 64 kB}
links:
  default: {bandwidth: 100 Mbit/s, latency: 2 ms}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the current one, with net.onnx (96 kB of weights), model.yaml and devices.yaml."""
    monkeypatch.chdir(tmp_path)
    write_small(tmp_path)
    return tmp_path


def write_small(folder: Path) -> None:
    """The three files of `small`, in any folder."""
    onnx.save(_chain(6, 64), str(folder / "net.onnx"))
    (folder / "model.yaml").write_text("model: {onnx: net.onnx}\ntask: graph\ndims: {batch: 2}\n")
    (folder / "devices.yaml").write_text(DEVICES)


def _chain(layers: int, width: int) -> onnx.ModelProto:
    """Products with a Relu behind each; both ends are `[batch, width]`."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((width, width), np.float32) for _ in range(layers)]
    nodes, value = [], "x"
    for index in range(layers):
        nodes.append(onnx.helper.make_node("MatMul", [value, f"w{index}"], [f"m{index}"]))
        value = f"h{index}"
        nodes.append(onnx.helper.make_node("Relu", [f"m{index}"], [value]))
    ends = [onnx.helper.make_tensor_value_info(name, 1, ["batch", width]) for name in ("x", value)]
    tensors = [onnx.numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights)]
    graph = onnx.helper.make_graph(nodes, "chain", ends[:1], ends[1:], tensors)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
