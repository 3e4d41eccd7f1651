"""Costs of a node at given sizes: floating-point operations, and bytes that it moves through memory.

Operators of the `partc` domain have theirs in `partc.ir.operators`. Of the others, products are exact (2 · m · n · k);
an elementwise or reducing operator counts a small constant per element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from partc.format.dims import element_count, evaluate
from partc.ir.graph import Node
from partc.ir.operators import ATTENTION, OPERATORS
from partc.ir.operators.operator import Operator
from partc.ir.workload import Step


@dataclass(frozen=True)
class NodeCost:
    """The costs of one node in one step."""

    flops: int
    moved_bytes: int
    """Read and written: operands, results, the valid rows of states."""


UNMOVED = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size"})
"""Operators that look at the same bytes in another way, or at none."""
_SAME_COSTS = {"Attention": ATTENTION.name}
"""Operators of other domains that cost what one of ours does."""
_PICKS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Split"})
_MOVES = UNMOVED | _PICKS | {
    "Transpose", "Concat", "Cast", "Expand", "Tile", "Pad", "Where", "Constant",
    "ConstantOfShape",
    "ScatterElements", "ScatterND", "TensorScatter", "Range", "Trilu", "EyeLike", "OneHot",
}  # fmt: skip
_PER_OUTPUT = {
    **dict.fromkeys(
        ("Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Erf", "Gelu", "Swish", "Mish", "Softplus"), 8
    ),
    **dict.fromkeys(("Div", "Sqrt", "Reciprocal", "Pow"), 4),
    **dict.fromkeys(
        ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "GroupNormalization"), 8
    ),
    **dict.fromkeys(("SimplifiedLayerNormalization", "SkipLayerNormalization", "BatchNormalization"), 8),
    "RotaryEmbedding": 3,
}
"""Operations per element of the result; 1 for any operator that is listed nowhere."""


def node_cost(node: Node, step: Step) -> NodeCost:
    """The cost of one node; its values must be sized; O(operands)."""
    return NodeCost(_flops(node, step), _moved(node, step))


def scratch_bytes(node: Node, step: Step) -> int:
    """Bytes that a node needs besides operands and results: scores of an attention."""
    own = _own(node)
    return own.scratch_bytes(node, step) if own else 0


def _own(node: Node) -> Operator | None:
    """The entry with the costs of a node: that of our operator, or of the one that computes the same."""
    return OPERATORS.get(_SAME_COSTS.get(node.op, node.op))


def _flops(node: Node, step: Step) -> int:
    own, op = _own(node), node.op.rpartition(".")[2]
    if own:
        return own.flops(node, step)
    if op in _PRODUCTS:
        return 2 * _PRODUCTS[op](node, step)
    if node.op in _MOVES:
        return 0
    if op.startswith(("Reduce", "Arg", "CumSum", "TopK")):
        return node.operand(0).elements(step.sizes)
    return _PER_OUTPUT.get(op, 1) * node.outputs[0].elements(step.sizes)


def _matmul(node: Node, step: Step) -> int:
    shape = node.operand(0).shape
    assert shape is not None
    inner = shape[-2] if node.attributes.get("transA") and len(shape) > 1 else shape[-1]
    return node.outputs[0].elements(step.sizes) * evaluate(inner, step.sizes)


def _conv(node: Node, step: Step) -> int:
    kernel = node.operand(1).shape
    assert kernel is not None
    side = node.operand(0) if node.op == "ConvTranspose" else node.outputs[0]
    return side.elements(step.sizes) * element_count(kernel[1:], step.sizes)


def _einsum(node: Node, step: Step) -> int:
    """The product of the sizes of all indices that occur."""
    sizes: dict[str, int] = {}
    terms = str(node.attributes.get("equation", "")).partition("->")[0].replace(" ", "").split(",")
    for term, value in zip(terms, node.operands, strict=False):
        letters = re.findall(r"\.\.\.|.", term)
        dims = [evaluate(dim, step.sizes) for dim in value.shape or ()]
        spread = len(dims) - len(letters) + 1
        for letter in letters:
            taken, dims = (dims[:spread], dims[spread:]) if letter == "..." else (dims[:1], dims[1:])
            sizes[letter] = max(sizes.get(letter, 1), math.prod(taken))
    return math.prod(sizes.values())


_PRODUCTS: Mapping[str, Callable[[Node, Step], int]] = {
    "MatMul": _matmul,
    "Gemm": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "MatMulIntegerToFloat": _matmul,
    "DynamicQuantizeMatMul": _matmul,
    "QLinearMatMul": _matmul,
    "MatMulNBits": _matmul,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv,
    "Einsum": _einsum,
}
"""Operator without its domain → multiplications with an addition each."""


def _moved(node: Node, step: Step) -> int:
    if node.op in UNMOVED:
        return 0
    if own := _own(node):
        return own.moved_bytes(node, step)
    written = sum(value.bytes(step.sizes) for value in node.outputs if value.dtype is not None)
    if node.op in _PICKS:
        rest = sum(value.bytes(step.sizes) for value in list(node.operands)[1:])
        return 2 * written + rest
    return written + sum(value.bytes(step.sizes) for value in dict.fromkeys(node.operands))
