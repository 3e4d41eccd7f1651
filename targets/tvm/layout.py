"""Layout of the weights that are packed for the kernels.

A product reads its weight `[K, N]` panel by panel: `PANEL` columns lie side by side for every row, so that one pass
over K streams the panel with unit stride, whether one row (decode) or many (prefill) are multiplied:

    packed[n // PANEL, k, n % PANEL] = weight[k, n]          shape [ceil(N / PANEL), K, PANEL], zeros behind N

Packing is an expression over the checkpoint's tensor, as every other layout change, so that it happens while the weight
is streamed into the artifact; one tensor is in memory at a time.

Before that, `unify_products` writes everything that multiplies by a weight as `MatMul(x, w)`, and lets a table of
embeddings that the device also multiplies by (tied embeddings) be read from its panels: one copy, as was planned.

| node | becomes |
| --- | --- |
| `Gemm(x, w, c)` | `Add(MatMul(x, w), c)`, w turned where it was transposed |
| `Gather(table, rows)`, table transposed is a product's weight w | `tvm.GatherColumns(w, rows)` |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

from partc.ir.graph import Graph, Node, Value, Weight
from partc.ir.types import HALF
from partc.ir.weights import Step, WeightExpr
from targets.rewrite import Rewriter, rewrite

PANEL = 16
"""Columns of a panel: two registers of AVX2, four of NEON, one cache line."""
GATHER = "tvm.GatherColumns"
"""`(w [K, N], rows)` → columns of w by number, [*rows, K]; numbers count as in `Gather`."""
_STORED = frozenset(("f32", *HALF))
"""Types that kernels read weights in; they compute in float32."""
_READERS = {"MatMul": 1, GATHER: 0}
"""Operator → place of the operand that may be packed."""


def unify_products(graphs: Sequence[Graph]) -> None:
    """Rewrite the static graphs of one device as the table above says, in place; O(nodes)."""
    for graph in graphs:
        rewrite(graph, {"Gemm": _gemm})
    products = {
        node.inputs[1].source
        for graph in graphs
        for node in graph.nodes
        if node.op == "MatMul" and isinstance(node.inputs[1], Weight) and _fits(node.inputs[1])
    }
    for graph in graphs:
        rewrite(graph, {"Gather": lambda node, r: _tied_gather(node, r, products)})


def _gemm(node: Node, r: Rewriter) -> bool:
    weight, added = node.inputs[1], [*node.inputs, None][2]
    attributes, output = node.attributes, node.outputs[0]
    plain = all(float(cast("float", attributes.get(name, 1.0))) == 1.0 for name in ("alpha", "beta"))
    if not isinstance(weight, Weight) or attributes.get("transA") or not plain:
        return False
    if attributes.get("transB"):
        weight = _turned(r, weight)
    if added is None:
        r.emit("MatMul", [node.inputs[0], weight], [output], {}, node.scope)
        return True
    product = r.op("MatMul", [node.inputs[0], weight], output.dtype, output.shape, f"{node.name}.product")
    r.emit("Add", [product, added], [output], {}, node.scope)
    return True


def _tied_gather(node: Node, r: Rewriter, products: set[WeightExpr | None]) -> bool:
    table = node.inputs[0]
    tied = (
        isinstance(table, Weight)
        and _fits(table)
        and node.attributes.get("axis", 0) == 0
        and len(r.users[table]) == 1
        and _transposed(table) in products
    )
    if tied:
        r.emit(GATHER, [_turned(r, cast("Weight", table)), node.inputs[1]], node.outputs, {}, node.scope)
    return tied


def _turned(r: Rewriter, weight: Weight) -> Weight:
    """The transpose of a weight, as a weight; its name says so, so that it is the same one in every graph."""
    shape = tuple(reversed(weight.shape or ()))
    return r.once(
        ("turned", weight),
        lambda: Weight(f"{weight.name}.turned", weight.dtype, shape, source=_transposed(weight)),
    )


def _transposed(weight: Weight) -> WeightExpr | None:
    match weight.source:
        case Step(op="transpose", arguments=(1, 0), source=source):
            return source
        case None:
            return None
        case source:
            return Step("transpose", (1, 0), source)


def _fits(weight: Weight) -> bool:
    return weight.dtype in _STORED and len(weight.shape or ()) == 2


def packable(graphs: Iterable[Graph]) -> frozenset[str]:
    """Names of the weights that only products, and look-ups in tied tables, read in all of these graphs."""
    fit: set[str] = set()
    unfit: set[str] = set()
    for graph in graphs:
        outputs = set(graph.outputs)
        for value, nodes in graph.consumers().items():
            if isinstance(value, Weight):
                fits = (
                    _fits(value)
                    and value not in outputs
                    and all(_reads_columns(node, value) for node in nodes)
                )
                (fit if fits else unfit).add(value.name)
    return frozenset(fit - unfit)


def _reads_columns(node: Node, value: Value) -> bool:
    place = _READERS.get(node.op)
    return place is not None and node.inputs[place] is value and node.inputs.count(value) == 1


def packed_shape(weight: Weight) -> tuple[int, int, int]:
    """(panels, K, PANEL)."""
    rows, columns = (int(size) for size in weight.shape or ())
    return math.ceil(columns / PANEL), rows, PANEL


def packed_source(weight: Weight) -> WeightExpr:
    """The expression that gives the packed weight."""
    assert weight.source is not None
    panels, rows, _ = packed_shape(weight)
    missing = panels * PANEL - int((weight.shape or ())[1])
    whole = Step("pad", (1, missing), weight.source) if missing else weight.source
    return Step("transpose", (1, 0, 2), Step("reshape", (rows, panels, PANEL), whole))
