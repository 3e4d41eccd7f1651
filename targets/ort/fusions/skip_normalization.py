"""A sum and the normalisation of it → com.microsoft.SkipSimplifiedLayerNormalization or SkipLayerNormalization."""

from __future__ import annotations

from collections.abc import Mapping

from partc.ir.graph import Constant, Graph, Node, Weight
from partc.ir.match import made_by
from targets.rewrite import Rewriter

_SKIPPING: Mapping[str, str] = {
    "RMSNormalization": "com.microsoft.SkipSimplifiedLayerNormalization",
    "LayerNormalization": "com.microsoft.SkipLayerNormalization",
}


def fuse_skip_normalization(graph: Graph) -> int:
    """Produce an operator that adds and normalises at once; returns how many; O(nodes).

    Contract (onnxruntime's ContribOperators.md): inputs input and skip [batch, sequence, hidden], gamma [hidden], for
    layer norms beta too; outputs the normalised sum, two that inference leaves alone, and fourth the sum itself, which
    the residual goes on with. The norm is over the last axis. For providers where the launch of a kernel is what
    costs; the CPU's kernels are scalar, and slower than the two operators.
    """
    r = Rewriter(graph)
    fused: dict[Node, Node] = {}
    for node in graph.nodes:
        total = made_by(node.inputs[0], "Add") if node.op in _SKIPPING else None
        if total is not None and total not in fused and _fits(node, total):
            fused[total] = node
    norms = set(fused.values())
    for total, norm in fused.items():
        _become(total, norm, r)
    graph.nodes = [node for node in graph.nodes if node not in norms]
    return len(fused)


def _fits(norm: Node, total: Node) -> bool:
    shape = total.outputs[0].shape
    is_last = shape is not None and norm.attributes.get("axis", -1) in (-1, len(shape) - 1)
    alike = shape is not None and len(shape) == 3 and all(value.shape == shape for value in total.operands)
    vectors = [value for value in norm.inputs[1:] if value is not None]
    return is_last and alike and all(isinstance(value, Weight | Constant) for value in vectors)


def _become(total: Node, norm: Node, r: Rewriter) -> None:
    """Make `total` the fused node: it stands where its operands are there, and before all that read it."""
    unused = [r.value(f"{norm.name}.{what}", "f32", None) for what in ("mean", "inv_std_var")]
    total.op, total.inputs = _SKIPPING[norm.op], [*total.inputs, *norm.inputs[1:]]
    total.attributes = {"epsilon": norm.attributes.get("epsilon", 1e-5)}
    total.outputs = [norm.outputs[0], *unused, total.outputs[0]]
    for value in total.outputs:
        value.producer = total
