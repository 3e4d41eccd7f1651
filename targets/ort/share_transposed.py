"""One copy of a weight that the graph reads both as it is and transposed: tied embeddings on one device."""

from __future__ import annotations

from typing import cast

from partc.ir.graph import Graph, Node, Weight
from partc.ir.weights import Step, WeightExpr
from targets.rewrite import Rewriter, rewrite


def share_transposed(graph: Graph) -> None:
    """Let `MatMul(x, wᵀ)` read `w` where the graph has `w` too, in place; O(nodes).

    It becomes `Gemm(x, w, transB=1)` over the rows of x. A Transpose of `w` would not do: onnxruntime folds
    it when it loads the graph, and the second copy is back.
    """
    plain = {weight.source: weight for weight in graph.weights() if len(weight.shape or ()) == 2}
    twins = {weight: plain[source] for weight in graph.weights() if (source := _transposed(weight)) in plain}

    def lower(node: Node, r: Rewriter) -> bool:
        weight = node.inputs[1]
        if not isinstance(weight, Weight) or weight not in twins:
            return False
        _write_gemm(r, node, twins[weight])
        return True

    rewrite(graph, {"MatMul": lower})


def _transposed(weight: Weight) -> WeightExpr | None:
    """What this weight is the transpose of."""
    match weight.source:
        case Step(op="transpose", arguments=(1, 0), source=source):
            return source
    return None


def _write_gemm(r: Rewriter, node: Node, weight: Weight) -> None:
    x, output = node.inputs[0], node.outputs[0]
    assert x is not None
    columns, width = cast("tuple[int, int]", weight.shape)
    rows = r.op("Reshape", [x, r.integers(-1, width)], x.dtype, None, f"{node.name}.rows")
    product = r.op("Gemm", [rows, weight], x.dtype, None, f"{node.name}.product", transB=1)
    leading = r.op("Shape", [x], "i64", None, "leading", start=0, end=-1)
    shape = r.op("Concat", [leading, r.integers(columns)], "i64", None, "shape", axis=0)
    r.emit("Reshape", [product, shape], [output], {}, node.scope)
