"""Single nodes computed on arrays, for constant folding and size inference."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from partc.ir.effects import is_random, updates
from partc.ir.graph import Attribute, Node
from partc.ir.operators import OPERATORS
from partc.ir.weights import Array


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
    """The results of a standard, deterministic node for these arrays; None where the reference has no answer.

    The arithmetic is `onnx.reference`'s, or that of the table of our own operators: folding agrees with the
    operator's specification, not with one engine.
    """
    domain, _ = split_op(node.op)
    if node.op in OPERATORS and not updates(node):
        return OPERATORS[node.op].evaluate(node, operands)
    if domain or is_random(node):
        return None
    names = ["" if array is None else f"i{index}" for index, array in enumerate(operands)]
    outputs = [f"o{index}" for index in range(len(node.outputs))]
    feeds = {f"i{index}": array for index, array in enumerate(operands) if array is not None}
    try:
        evaluator = ReferenceEvaluator(node_proto(node, names, outputs), opsets={"": opset})
        # An infinity or a NaN is a result like any other; numpy's warnings would name the reference's own code.
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = evaluator.run(None, feeds)
    except Exception:  # the reference raises whatever numpy does; not folding is always right
        return None
    return [np.asarray(array) for array in found]
