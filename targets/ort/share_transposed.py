"""One copy of a weight that a device reads both as it is and transposed: tied embeddings on one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import cast

from partc.ir.graph import Graph, Node, Weight
from partc.ir.weights import Step, WeightExpr
from targets.rewrite import Rewriter, rewrite


def share_transposed(graphs: Sequence[Graph]) -> None:
    """Let `MatMul(x, wᵀ)` read `w` where one of a device's graphs has `w` too, in place; O(nodes).

    It becomes `Gemm(x, w, transB=1)` over the rows of x. A Transpose of `w` would not do: onnxruntime folds
    it when it loads the graph, and the second copy is back.
    """
    weights = [weight for graph in graphs for weight in graph.weights()]
    plain = {weight.source: weight for weight in weights if len(weight.shape or ()) == 2}
    for graph in graphs:
        _share(graph, plain)


def _share(graph: Graph, plain: Mapping[WeightExpr | None, Weight]) -> None:
    own = {weight.source: weight for weight in graph.weights()}

    def borrowed(r: Rewriter, weight: Weight) -> Weight:
        """The weight of another graph, as one of this graph; what is stored is the same."""
        twin = copy(weight)
        twin.name = r.name(weight.name)
        return twin

    def lower(node: Node, r: Rewriter) -> bool:
        weight = node.inputs[1]
        source = _transposed(weight) if isinstance(weight, Weight) else None
        if source is None or source not in plain:
            return False
        there = plain[source]
        _write_gemm(r, node, own.get(source) or r.once(source, lambda: borrowed(r, there)))
        return True

    rewrite(graph, {"MatMul": lower})


def _transposed(weight: Weight) -> WeightExpr | None:
    """The source of which this weight is the transpose."""
    match weight.source:
        case Step(op="transpose", arguments=(1, 0), source=source):
            return source
        case _:
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
