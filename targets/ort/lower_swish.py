"""Swish → Mul and Sigmoid."""

from __future__ import annotations

from typing import cast

import numpy as np

from partc.ir.graph import Node, Value
from partc.ir.types import BY_SHORT
from targets.rewrite import Rewriter


def lower_swish(node: Node, r: Rewriter) -> bool:
    """Lower `Swish(x) = x · sigmoid(alpha · x)` (ONNX 24), which onnxruntime has no kernel for."""
    x = cast("Value", node.inputs[0])
    alpha = float(cast("float", node.attributes.get("alpha", 1.0)))
    gate = x
    if alpha != 1.0:
        number = r.constant(np.array(alpha, BY_SHORT[x.dtype or "f32"].numpy), "alpha")
        gate = r.op("Mul", [x, number], x.dtype, x.shape, "gate")
    r.emit("Mul", [x, r.op("Sigmoid", [gate], x.dtype, x.shape, "sigmoid")], node.outputs, {}, node.scope)
    return True
