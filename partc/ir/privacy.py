"""Raw input: pictures and sound as a request brings them, and what merely rearranges them.

EdgeShard keeps the first layer on the source, so that no other device sees what a user gives (Eq. 4). Token ids
stay there because the table of embeddings is the first node that reads them. A picture passes through several nodes
before it is embedded (casts, scaling, cutting into patches), and each of them still shows it; so here a value is raw
until a product with learnt weights has read it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from partc.ir.graph import Graph, Input, Node, Value, Weight

_FLOATS = ("f16", "bf16", "f32", "f64")
_SIZES = frozenset(("Shape", "Size"))
"""Operators whose results say nothing of the contents."""
_PRODUCTS = frozenset(("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul", "QuantizedMatMul"))
"""Operators that embed what they read, without their domain."""


def raw_values(graph: Graph) -> set[Value]:
    """The float inputs of a request and all values that show them; O(V + E)."""
    raw: set[Value] = {value for value in graph.inputs if is_raw_input(value)}
    for node in graph.nodes:
        if _shows(node, raw):
            raw.update(node.outputs)
    return raw


def is_raw_input(value: Value) -> bool:
    """Whether a value is a picture or a sound: an input of the request that holds floats."""
    return isinstance(value, Input) and not value.is_step and value.dtype in _FLOATS


def _shows(node: Node, raw: Collection[Value]) -> bool:
    if node.op in _SIZES or not any(value in raw for value in node.operands):
        return False
    return not is_product(node)


def is_product(node: Node, made: Collection[Value] = ()) -> bool:
    """Whether a node multiplies with learnt weights, or with values `made` of them."""
    learnt = any(isinstance(value, Weight) or value in made for value in node.operands)
    return learnt and node.op.rpartition(".")[2] in _PRODUCTS


def behind_raw(graph: Graph, order: Sequence[Node], candidates: Sequence[Node]) -> list[Node]:
    """The candidates before which nothing raw is made, and behind which nothing raw is read; O(V + E).

    `order`: the nodes as they are scheduled.
    """
    raw = raw_values(graph)
    last = max((place for place, node in enumerate(order) if _reads(node, raw)), default=-1)
    private = set(order[: last + 1])
    return [node for node in candidates if node not in private]


def _reads(node: Node, raw: Collection[Value]) -> bool:
    return node.op not in _SIZES and any(value in raw for value in node.operands)
