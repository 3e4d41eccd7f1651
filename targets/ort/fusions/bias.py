"""A product with quantised weights and the addition behind it → one operator with a bias."""

from __future__ import annotations

from partc.ir.graph import Constant, Graph, Node, Weight
from partc.ir.match import Readers, become, either_order, made_by

_BIAS = 5
"""Place of the operand `bias`."""


def fuse_bias(graph: Graph) -> int:
    """Hand `Add(product, b)` with b [N] to the product; returns how many; O(nodes).

    Contract (ContribOperators.md): MatMulNBits adds its input 5 [N] to every row. For float32 products onnxruntime
    makes a Gemm of MatMul and Add when it loads the graph.
    """
    readers = Readers(graph)
    return sum(_fuse(node, readers) for node in graph.nodes if node.op == "Add")


def _fuse(node: Node, readers: Readers) -> bool:
    for product, bias in either_order(node):
        maker = made_by(product, "com.microsoft.MatMulNBits")
        if maker is None or not isinstance(bias, Weight | Constant):
            continue
        fits = bias.shape == (product.shape or ())[-1:] and len(maker.inputs) <= _BIAS
        if fits and readers.only_inside([maker], node):
            inputs = [*maker.inputs, *[None] * (_BIAS - len(maker.inputs)), bias]
            become(node, maker.op, inputs, **maker.attributes)
            return True
    return False
