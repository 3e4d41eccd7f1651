"""(x - mean(x)) / sqrt(var(x) + ε) · w + b becomes one `LayerNormalization`."""

from __future__ import annotations

from partc.ir.edit import drop_dead
from partc.ir.graph import Graph, Node, Value
from partc.ir.match import Readers, become, either_order, made_by
from passes.fusions.match import divided, is_last_axis, is_scale, mean_of_square, reduce_axes, root_of


def fuse_layer_normalization(graph: Graph) -> int:
    """Produce ONNX `LayerNormalization` (opset 17) over the last axis.

    Y = (X - mean) / sqrt(var + epsilon) · scale + bias. Inputs X, scale, [bias]; attributes axis, epsilon.
    Recognised: the same variants as for RMSNormalization; only in f32 and f64, because the operator
    computes its first stage in f32. Returns the number of fused patterns; O(nodes).
    """
    readers = Readers(graph)
    fused = sum(_fuse_sum(node, readers) for node in graph.nodes if node.op == "Add")
    drop_dead(graph)  # what the first step replaced must not count as readers in the second
    readers = Readers(graph)
    return fused + sum(_fuse_product(node, readers) for node in graph.nodes if node.op == "Mul")


def _fuse_sum(node: Node, readers: Readers) -> bool:
    for bias, product in either_order(node):
        scaled = made_by(product, "Mul")
        found = _scaled(scaled) if scaled else None
        if scaled is None or found is None:
            continue
        x, scale, epsilon, inner = found
        if x.shape and is_scale(bias, x.shape[-1]) and readers.only_inside([*inner, scaled], node):
            become(node, "LayerNormalization", [x, scale, bias], axis=-1, epsilon=epsilon)
            return True
    return False


def _fuse_product(node: Node, readers: Readers) -> bool:
    found = _scaled(node)
    if found is None or not readers.only_inside(found[3], node):
        return False
    become(node, "LayerNormalization", [found[0], found[1]], axis=-1, epsilon=found[2])
    return True


def _scaled(node: Node) -> tuple[Value, Value, float, list[Node]] | None:
    """(x, w, ε, nodes without `node`) where `node` multiplies the normalised x with w."""
    for scale, normalized in either_order(node):
        quotient = made_by(normalized, "Mul", "Div")
        found = _normalized(quotient) if quotient else None
        if quotient is None or found is None:
            continue
        x, epsilon, inner = found
        if x.shape and is_scale(scale, x.shape[-1]) and x.dtype in ("f32", "f64"):
            return x, scale, epsilon, [*inner, quotient]
    return None


def _normalized(node: Node) -> tuple[Value, float, list[Node]] | None:
    for centered, denominator, inverse in divided(node):
        root = root_of(denominator)
        square = mean_of_square(root[0]) if root else None
        found = _centered(made_by(centered, "Sub"))
        if root is None or square is None or found is None or square[0] is not centered:
            continue
        return found[0], root[1], [*inverse, *root[2], *square[1], *found[1]]
    return None


def _centered(node: Node | None) -> tuple[Value, list[Node]] | None:
    """(x, nodes) of x - mean(x, last axis)."""
    mean = made_by(node.inputs[1], "ReduceMean") if node else None
    if node is None or mean is None or node.inputs[0] is None or mean.inputs[0] is not node.inputs[0]:
        return None
    keeps = mean.attributes.get("keepdims", 1) == 1
    return (
        (node.inputs[0], [node, mean]) if keeps and is_last_axis(reduce_axes(mean), node.inputs[0]) else None
    )
