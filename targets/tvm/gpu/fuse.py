"""Nodes joined with their neighbours for GPUs, where every launch costs microseconds.

| nodes | become |
| --- | --- |
| products of one x, gated ones, those that something is added to | as for processors (`targets.tvm.fuse`) |
| products of few rows of an x that alone reads its RMS norm | products of what the norm reads, with `epsilon` |
| attention of one row, its rotations, and its rows of both caches | `tvm.AttentionStep` |
| convolutions and the activation that alone reads them | as for processors |

So a token of a Llama layer is five launches. TVM joins nodes of other kinds itself.
"""

from __future__ import annotations

import math

from partc.ir.edit import drop_dead
from partc.ir.graph import Graph, Node, State, Value
from partc.ir.operators import ATTENTION, UPDATE_STATE
from targets.tvm.fuse import (
    PRODUCTS,
    Fuser,
    activate_convolutions,
    apply,
    gated_product,
    join_products,
    product_plus,
)
from targets.tvm.gpu.kernels.attention_step import ATTENTION_STEP
from targets.tvm.gpu.kernels.few_rows import MOST_ROWS
from targets.tvm.kernels.rotary import fits as fits_rotary
from targets.tvm.kernels.update_state import fits as fits_update

_NORM = "RMSNormalization"
_ROTARY = "RotaryEmbedding"
_PLAIN = {"MatMul": "tvm.Product"}
"""Operator of a product → what it becomes beside a norm, where it does not keep its name."""


def fuse_for_gpu(graph: Graph, packed: frozenset[str]) -> None:
    """Join the nodes of a static graph, in place; `packed`: names of the weights in panels. O(nodes) a rule."""
    apply(graph, packed, gated_product, product_plus)
    activate_convolutions(Fuser(graph, packed))
    join_products(Fuser(graph, packed))
    apply(graph, packed, _normalised_product)
    _join_attention(Fuser(graph, packed))


def _normalised_product(f: Fuser, node: Node) -> Node | None:
    if not _is_product(f, node):
        return None
    x = node.operand(0)
    norm = x.producer
    if norm is None or norm.op != _NORM or not f.is_private(x) or not _is_plain(norm):
        return None
    if math.prod(int(size) for size in (x.shape or ())[:-1]) > MOST_ROWS:
        return None
    attributes = {**node.attributes, "epsilon": norm.attributes["epsilon"]}
    operands = [norm.inputs[0], *node.inputs[1:], norm.inputs[1]]
    return Node(_PLAIN.get(node.op, node.op), operands, node.outputs, attributes, node.scope)


def _is_product(f: Fuser, node: Node) -> bool:
    if node.op in PRODUCTS:
        return f.is_product(node.outputs[0])
    return any(
        node.op == f"{kind}{name}"
        for kind in PRODUCTS.values()
        for name in ("GatedProduct", "ProductPlus", "Products")
    )


def _is_plain(norm: Node) -> bool:
    """Whether a norm is that of the last axis, of float32, by one factor a column."""
    x, factors = norm.operand(0), norm.operand(1)
    if norm.attributes.get("axis", -1) not in (-1, len(x.shape or ()) - 1) or not norm.attributes.get(
        "epsilon"
    ):
        return False
    return x.dtype == factors.dtype == "f32" and factors.shape == (x.shape or ())[-1:]


def _join_attention(f: Fuser) -> None:
    """Attention of one row takes the place of what only it needs; updates of caches go with it."""
    done: set[Node] = set()
    nodes = []
    for node in f.graph.nodes:
        updates = _updates_of(f, node)
        if updates:
            done.update(updates)
        nodes.append(_attention_step(f, node, *updates) if updates else node)
    f.graph.nodes = [node for node in nodes if node not in done]
    drop_dead(f.graph)


def _updates_of(f: Fuser, node: Node) -> tuple[Node, Node] | None:
    """The updates of both caches of an attention of one row, where it alone reads them."""
    if node.op != ATTENTION.name or (node.operand(0).shape or ())[2] != 1 or node.operand(0).dtype != "f32":
        return None
    position, mask = (*node.inputs[3:], None, None)[:2]
    found = [value.producer for value in (node.operand(1), node.operand(2)) if f.is_private(value)]
    if position is None or mask is not None or not node.attributes.get("causal") or len(found) < 2:
        return None
    keys, values = found
    if keys is None or values is None or not all(_is_row(update, position) for update in (keys, values)):
        return None
    return keys, values


def _is_row(update: Node, position: Value) -> bool:
    """Whether this writes a row of float32, as long as those of the cache, at the place of the attention's query."""
    if update.op != UPDATE_STATE.name or not isinstance(update.inputs[0], State) or not fits_update(update):
        return False
    return update.inputs[2] is position and update.operand(1).dtype == "f32"


def _attention_step(f: Fuser, node: Node, keys: Node, values: Node) -> Node:
    query, key = node.operand(0), keys.operand(1)
    rotations = [value.producer for value in (query, key)]
    tables: list[Value] = []
    one, other = rotations
    if one is not None and other is not None and _are_alike(f, one, other):
        query, key, tables = one.operand(0), other.operand(0), [one.operand(1), one.operand(2)]
    sinks = node.inputs[5] if len(node.inputs) > 5 else None
    operands = [query, keys.inputs[0], values.inputs[0], node.inputs[3], None, sinks, key, values.inputs[1]]
    return Node(ATTENTION_STEP, [*operands, *tables], node.outputs, node.attributes, node.scope)


def _are_alike(f: Fuser, one: Node, other: Node) -> bool:
    """Whether both are rotations by the same tables, each for one reader."""
    alike = one.op == other.op == _ROTARY and one.inputs[1:] == other.inputs[1:]
    if not alike or one.attributes != other.attributes:
        return False
    return all(fits_rotary(node) and f.is_private(node.outputs[0]) for node in (one, other))
