"""Runs single nodes on arrays: what constant folding and size inference need, never for whole models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from partc.ir.graph import Attribute, Node
from partc.ir.quantization import dequantize
from partc.ir.weights import Array

RANDOM_OPERATORS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Two nodes of these are never equal, and their results are never known."""


def _quantized_matmul(node: Node, operands: Sequence[Array]) -> Array:
    """X · Wᵀ with the weights that data and scales stand for; what fills up their last block is cut off."""
    x, data, scales = operands
    columns = x.shape[-1]
    matrix = dequantize(data, scales, _bits(node))[:, :columns].astype(x.dtype)
    return np.asarray(np.matmul(x, matrix.T), x.dtype)


def _quantized_gather(node: Node, operands: Sequence[Array]) -> Array:
    data, scales, indices = operands
    rows = indices.astype(np.int64)
    found = dequantize(data[rows], scales[rows], _bits(node)).astype(scales.dtype)
    return found.reshape(*indices.shape, -1)


def _quantized_experts(node: Node, operands: Sequence[Array]) -> Array:
    """Row n of X · Wᵀ with the weights of its expert; operands are X, the choice, then data and scales of each."""
    x, chosen, *weights = operands
    pairs = list(zip(weights[::2], weights[1::2], strict=True))
    rows = [_quantized_matmul(node, [row, *pairs[index]]) for row, index in zip(x, chosen, strict=True)]
    return np.asarray(rows, x.dtype).reshape(len(x), len(weights[0]))


def _bits(node: Node) -> int:
    bits = node.attributes["bits"]
    assert isinstance(bits, int)
    return bits


OWN_OPERATORS: dict[str, Callable[[Node, Sequence[Array]], Array]] = {
    "partc.QuantizedMatMul": _quantized_matmul,
    "partc.QuantizedGather": _quantized_gather,
    "partc.QuantizedExperts": _quantized_experts,
}
"""Operators of our own that are plain arithmetic; those with a state are none."""


def split_op(op: str) -> tuple[str, str]:
    """Domain and operator: `partc.Attention` is `("partc", "Attention")`, `Add` is `("", "Add")`."""
    domain, _, name = op.rpartition(".")
    return domain, name


def node_proto(node: Node, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
    """The ONNX form of a node, with these names for its operands; `""` is one that is left out."""
    domain, name = split_op(node.op)
    result = onnx.helper.make_node(name, list(inputs), list(outputs), domain=domain)
    result.attribute.extend(_attribute(key, node.attributes[key]) for key in sorted(node.attributes))
    return result


def _attribute(key: str, value: Attribute) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        return onnx.helper.make_attribute(key, onnx.numpy_helper.from_array(value))
    if value == ():
        return onnx.helper.make_attribute(key, [], attr_type=onnx.AttributeProto.INTS)
    return onnx.helper.make_attribute(key, list(value) if isinstance(value, tuple) else value)


def evaluate_node(node: Node, operands: Sequence[Array | None], opset: int) -> list[Array] | None:
    """What a standard, deterministic node makes of these arrays; None where the reference has no answer.

    The arithmetic is `onnx.reference`'s, or stands in `OWN_OPERATORS`: folding agrees with the operator's
    specification, not with one engine.
    """
    domain, name = split_op(node.op)
    if node.op in OWN_OPERATORS:
        return [OWN_OPERATORS[node.op](node, [array for array in operands if array is not None])]
    if domain or name in RANDOM_OPERATORS:
        return None
    names = ["" if array is None else f"i{index}" for index, array in enumerate(operands)]
    outputs = [f"o{index}" for index in range(len(node.outputs))]
    feeds = {f"i{index}": array for index, array in enumerate(operands) if array is not None}
    try:
        evaluator = ReferenceEvaluator(node_proto(node, names, outputs), opsets={"": opset})
        found = evaluator.run(None, feeds)
    except Exception:  # the reference raises whatever numpy does; not folding is always right
        return None
    return [np.asarray(array) for array in found]
