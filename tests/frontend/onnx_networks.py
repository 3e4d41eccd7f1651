"""Small ONNX files of many versions, with sizes and branches as published files have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Sizes = Sequence[int | str | None]


def tensor(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def value(name: str, sizes: Sizes | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, sizes)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    tensors: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
) -> Path:
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    return path


def weights(count: int, size: int = 64) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(0)
    scale = 1 / np.sqrt(size)
    return [
        tensor(f"w{n}", (scale * rng.standard_normal((size, size))).astype(np.float32)) for n in range(count)
    ]


def products(path: Path, opset: int) -> Path:
    """Three products with a Relu between each two."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["ar"]),
        helper.make_node("MatMul", ["ar", "w1"], ["b"]),
        helper.make_node("Relu", ["b"], ["br"]),
        helper.make_node("MatMul", ["br", "w2"], ["y"]),
    ]
    return save(path, nodes, [value("x", [1, 64])], [value("y", [1, 64])], weights(3), opset)


def old_forms(path: Path, opset: int) -> Path:
    """Operators whose form changed: axes and bounds as attributes, a Softmax over several axes."""
    old = opset < 13
    squeeze = (
        helper.make_node("Unsqueeze", ["m"], ["u"], axes=[0])
        if old
        else helper.make_node("Unsqueeze", ["m", "axes"], ["u"])
    )
    total = (
        helper.make_node("ReduceSum", ["u"], ["s"], axes=[1], keepdims=1)
        if old
        else helper.make_node("ReduceSum", ["u", "one"], ["s"], keepdims=1)
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m"]),
        squeeze,
        total,
        helper.make_node("ReduceMax", ["u"], ["l"], axes=[2], keepdims=1),
        helper.make_node("Softmax", ["u"], ["p"], axis=1),
        helper.make_node("Sub", ["p", "l"], ["d"]),
        helper.make_node("Mul", ["d", "s"], ["q"]),
        helper.make_node("MatMul", ["q", "w1"], ["y"]),
    ]
    tensors = [*weights(2), *([] if old else [tensor("axes", [0]), tensor("one", [1])])]
    return save(path, nodes, [value("x", [3, 64])], [value("y", [1, 3, 64])], tensors, opset)


def late_input(path: Path) -> Path:
    """A second input that only the last node reads."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("MatMul", ["a", "w1"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["c"]),
        helper.make_node("Add", ["c", "state"], ["y"]),
    ]
    both = [value("x", [1, 64]), value("state", [1, 64])]
    return save(path, nodes, both, [value("y", [1, 64])], weights(3))


def _branch(name: str, weight: onnx.TensorProto) -> onnx.GraphProto:
    """`Relu(m · weight)`, `m` from outside."""
    nodes = [
        helper.make_node("MatMul", ["m", weight.name], ["inner"]),
        helper.make_node("Relu", ["inner"], ["result"]),
    ]
    return helper.make_graph(nodes, name, [], [value("result", None)], [weight])


def branches(path: Path, condition: Sequence[onnx.NodeProto], opset: int = 16) -> Path:
    """An `If` on `c`, which `condition` makes of `m`, of `rate` or of both; each branch has a weight of its own."""
    first, left, right = weights(3)
    left.name = right.name = "own"
    choice = helper.make_node(
        "If", ["c"], ["k"], then_branch=_branch("then", left), else_branch=_branch("else", right)
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m"]),
        *condition,
        choice,
        helper.make_node("Tanh", ["k"], ["y"]),
    ]
    inputs = [value("x", ["n", "width"]), value("rate", [], TensorProto.INT64)]
    used = [i for i in inputs if i.name == "x" or any("rate" in node.input for node in condition)]
    tensors = [first, tensor("limit", np.int64(16000)), tensor("none", np.float32(0))]
    return save(path, nodes, used, [value("y", [None, 64])], tensors, opset)


BY_RATE = [helper.make_node("Equal", ["rate", "limit"], ["c"])]
"""Known once the input `rate` is."""
BY_RANK = [
    helper.make_node("Shape", ["m"], ["sizes"]),
    helper.make_node("Size", ["sizes"], ["rank"]),
    helper.make_node("Equal", ["rank", "limit"], ["c"]),
]
"""False, since the rank is 2."""
BY_DATA = [
    helper.make_node("ReduceSum", ["m"], ["sum"], keepdims=0),
    helper.make_node("Greater", ["sum", "none"], ["c"]),
]
"""Known only in a request."""
