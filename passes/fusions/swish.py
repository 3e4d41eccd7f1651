"""x · sigmoid(α x) becomes one `Swish`."""

from __future__ import annotations

from partc.ir.graph import Graph, Node, Value
from partc.ir.match import Readers, become, either_order, made_by
from passes.fusions.match import with_number


def fuse_swish(graph: Graph) -> int:
    """Produce ONNX `Swish` (opset 24): Y = X · sigmoid(alpha · X); alpha = 1 is SiLU, 1.702 the quick GELU.

    Returns the number of fused patterns; O(nodes).
    """
    readers = Readers(graph)
    return sum(_fuse(node, readers) for node in graph.nodes if node.op == "Mul")


def _fuse(node: Node, readers: Readers) -> bool:
    for x, gate in either_order(node):
        sigmoid = made_by(gate, "Sigmoid")
        found = _scaled(sigmoid.inputs[0], x) if sigmoid else None
        if sigmoid is None or found is None or not readers.only_inside([sigmoid, *found[1]], node):
            continue
        become(node, "Swish", [x], alpha=found[0])
        return True
    return False


def _scaled(value: Value | None, x: Value) -> tuple[float, list[Node]] | None:
    """(α, nodes) of α x."""
    if value is x:
        return 1.0, []
    product = made_by(value, "Mul")
    found = with_number(product)
    return (found[1], [product]) if product is not None and found is not None and found[0] is x else None
