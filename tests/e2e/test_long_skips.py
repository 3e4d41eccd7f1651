"""Networks with skips over their whole depth: nothing but cuts that several values cross divides them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from partc.cli.main import run
from partc.planner.model.plan_file import PLAN_FILE
from tests.families.check import save_tiny
from tests.families.tiny import tiny_config

pytestmark = pytest.mark.ort

DEVICES = """\
source: a
returns: 0
devices:
  a: {{target: ort, flops: 10 GFLOP/s, memory_bandwidth: 10 GB/s, memory: {memory}, overhead: 0 B}}
  b: {{target: ort, flops: 10 GFLOP/s, memory_bandwidth: 10 GB/s, memory: {memory}, overhead: 0 B}}
  c: {{target: ort, flops: 10 GFLOP/s, memory_bandwidth: 10 GB/s, memory: {memory}, overhead: 0 B}}
links:
  default: {{bandwidth: 1 Gbit/s, latency: 0.1 ms}}
"""
WIDTH = 64
RANDOM = np.random.default_rng(7)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array((RANDOM.standard_normal(shape) / shape[-1]).astype(np.float32), name)


def six_blocks(file: Path) -> None:
    """Six products, and the first one's result once more behind the last."""
    nodes, weights = [], [weight(f"w{k}", WIDTH, WIDTH) for k in range(6)]
    value = "x"
    for k in range(6):
        nodes += [
            helper.make_node("MatMul", [value, f"w{k}"], [f"m{k}"]),
            helper.make_node("Tanh", [f"m{k}"], [f"h{k}"]),
        ]
        value = f"h{k}"
    nodes.append(helper.make_node("Mul", ["h0", "h5"], ["y"]))
    shape = [1, WIDTH]
    save(file, nodes, weights, shape, shape)


def u_net(file: Path) -> None:
    """Three levels down and up; what each level made goes across to its counterpart."""
    nodes, weights = [], list[onnx.TensorProto]()
    value, kept, channels = "x", [], 4

    def convolve(given: str, ins: int, outs: int, name: str, stride: int) -> str:
        weights.append(weight(f"{name}.w", outs, ins, 3, 3))
        step = [stride, stride]
        nodes.append(
            helper.make_node("Conv", [given, f"{name}.w"], [f"{name}.c"], pads=[1, 1, 1, 1], strides=step)
        )
        nodes.append(helper.make_node("Tanh", [f"{name}.c"], [name]))
        return name

    for k in range(3):
        value = convolve(value, channels, 2 * channels, f"down{k}", 1)
        kept.append((value, 2 * channels))
        value = convolve(value, 2 * channels, 2 * channels, f"half{k}", 2)
        channels *= 2
    for k in reversed(range(3)):
        skip, wide = kept[k]
        scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), f"scales{k}")
        weights.append(scales)
        nodes.append(helper.make_node("Resize", [value, "", f"scales{k}"], [f"up{k}.r"], mode="nearest"))
        nodes.append(helper.make_node("Concat", [f"up{k}.r", skip], [f"up{k}.j"], axis=1))
        value = convolve(f"up{k}.j", channels + wide, wide // 2, f"up{k}", 1)
        channels = wide // 2
    nodes.append(helper.make_node("Identity", [value], ["y"]))
    save(file, nodes, weights, [1, 4, 16, 16], [1, 4, 16, 16])


def save(
    file: Path,
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    given: list[int],
    made: list[int],
) -> None:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, file)


@pytest.mark.parametrize(("network", "memory"), [(six_blocks, "50 kB"), (u_net, "120 kB")])
def test_it_is_cut_in_three_and_equal(network: Callable[[Path], None], memory: str, tmp_path: Path) -> None:
    network(tmp_path / "net.onnx")
    (tmp_path / "devices.yaml").write_text(DEVICES.format(memory=memory))
    build = tmp_path / "build"
    files = [str(tmp_path / "net.onnx"), "--target", str(tmp_path / "devices.yaml")]
    assert run(["compile", *files, "-o", str(build)]) == 0
    plan = json.loads((build / PLAN_FILE).read_text())
    assert set(plan["answer"]["assignment"]) == {"a", "b", "c"}
    assert "no plan fits" in plan["answer"]["explain"]["cuts"]
    residual = [
        one for one in plan["predicted"]["phases"][0]["messages"] if one["to_stage"] > one["from_stage"] + 1
    ]
    assert residual, "the skip goes past a device"
    assert run(["verify", str(build)]) == 0


@pytest.mark.slow
@pytest.mark.hf
def test_zamba2_is_cut_in_three_and_equal(tmp_path: Path) -> None:
    """Its shared blocks read the embedding again and again."""
    save_tiny(tiny_config("zamba2"), tmp_path / "checkpoint")
    (tmp_path / "model.yaml").write_text("model: ./checkpoint\nmax_sequence: 64\nmax_requests: 1\n")
    (tmp_path / "devices.yaml").write_text(DEVICES.format(memory="600 kB"))
    build = tmp_path / "build"
    files = [str(tmp_path / "model.yaml"), "--target", str(tmp_path / "devices.yaml")]
    assert run(["compile", *files, "-o", str(build)]) == 0
    plan = json.loads((build / PLAN_FILE).read_text())
    assert set(plan["answer"]["assignment"]) == {"a", "b", "c"}
    assert run(["verify", str(build)]) == 0


def test_where_a_plan_fits_nothing_more_is_cut(tmp_path: Path) -> None:
    six_blocks(tmp_path / "net.onnx")
    (tmp_path / "devices.yaml").write_text(DEVICES.format(memory="5 MB"))
    files = [str(tmp_path / "net.onnx"), "--target", str(tmp_path / "devices.yaml")]
    assert run(["compile", *files, "-o", str(tmp_path / "build")]) == 0
    assert "cuts" not in json.loads((tmp_path / "build" / PLAN_FILE).read_text())["answer"]["explain"]
