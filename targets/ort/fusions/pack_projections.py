"""Queries, keys and values by one matrix product; attention takes them packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from partc.ir.graph import Graph, Node, Value, Weight
from partc.ir.match import Readers, made_by
from partc.ir.weights import Join, WeightExpr
from targets.ort.fusions.grouped_attention import GROUPED
from targets.rewrite import Rewriter

_COLUMNS: Mapping[str, Mapping[int, int]] = {
    "MatMul": {1: 1},
    "com.microsoft.MatMulNBits": {1: 0, 2: 0, 5: 0},
    "com.microsoft.MatMulIntegerToFloat": {1: 1, 3: 0, 6: 0},
}
"""Product → place of each operand that goes with its columns, and the axis along which they lie."""


def pack_projections(graph: Graph) -> int:
    """Join the three products before an attention by concatenating their weights; returns how many; O(nodes).

    Contract (onnxruntime's ContribOperators.md): GroupQueryAttention takes query [batch, sequence, (heads + 2 ×
    kv_heads) × d] with queries, keys and values one behind the other, and no key and value. So the product's rows go
    there as they are, and activations are quantised and threads woken once instead of three times. A model whose own
    product makes all three, and only splits them for the attention, needs the split no more.
    """
    packer = _Packer(graph)
    fused = sum(packer.pack(node) for node in list(graph.nodes) if node.op == GROUPED)
    graph.nodes = [node for node in packer.nodes() if not packer.is_replaced(node)]
    return fused


class _Packer:
    """Packs the projections of one attention after the other; the new nodes stand where the last of theirs stood."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._r, self._readers = graph, Rewriter(graph), Readers(graph)
        self._users = graph.consumers()
        self._instead: dict[Node, list[Node]] = {}
        """Node → what stands in its place."""

    def nodes(self) -> list[Node]:
        return [new for node in self._graph.nodes for new in [*self._instead.get(node, ()), node]]

    def is_replaced(self, node: Node) -> bool:
        return node in self._instead and node.op != GROUPED

    def pack(self, attention: Node) -> bool:
        """Whether the attention reads its operands packed now."""
        operands = attention.inputs[:3]
        if any(value is None for value in operands) or len(set(operands)) < 3:
            return False
        packed = self._split_again(attention) or self._joined(attention, cast("list[Value]", operands))
        if packed is None:
            return False
        attention.inputs[:3] = [packed, None, None]
        return True

    def _split_again(self, attention: Node) -> Value | None:
        """The value that a Split divides into exactly the three operands."""
        split = made_by(attention.inputs[0], "Split")
        if (
            split is None
            or split.outputs != attention.inputs[:3]
            or not self._readers.only_inside([split], attention)
        ):
            return None
        whole = split.inputs[0]
        axis = split.attributes.get("axis", 0)
        if whole is None or len(whole.shape or ()) != 3 or axis not in (-1, 2):
            return None
        self._instead[split] = []
        return whole

    def _joined(self, attention: Node, operands: Sequence[Value]) -> Value | None:
        """One value in place of several, with the columns of all; `attention` alone reads them."""
        chain = _Chain.of(operands, self._readers, attention)
        if chain is None or not self._own_weights(chain.products):
            return None
        for node in chain.nodes:
            self._instead.setdefault(node, [])
        packed, place = self._product(chain.products, chain.nodes[-1]), self._instead[chain.nodes[-1]]
        for nodes in chain.behind:
            output = self._r.value(f"{nodes[0].name}.packed", packed.dtype, packed.shape)
            operand = _shared(nodes) or self._concat([cast("Weight", _other(node)) for node in nodes], 0)
            place.append(Node(nodes[0].op, [packed, operand], [output], {}, nodes[0].scope))
            packed = output
        return packed

    def _product(self, products: Sequence[Node], end: Node) -> Value:
        """One product for several, put in place of `end`."""
        operands, first = list(products[0].inputs), products[0]
        for place, axis in _COLUMNS[first.op].items():
            if place < len(operands) and operands[place] is not None:
                operands[place] = self._concat([cast("Weight", p.inputs[place]) for p in products], axis)
        widths = [cast("tuple[int, ...]", product.outputs[0].shape) for product in products]
        total = sum(width[-1] for width in widths)
        output = self._r.value(f"{first.name}.packed", first.outputs[0].dtype, (*widths[0][:-1], total))
        attributes = dict(first.attributes) | ({"N": total} if "N" in first.attributes else {})
        self._instead[end].append(Node(first.op, operands, [output], attributes, first.scope))
        return output

    def _own_weights(self, products: Sequence[Node]) -> bool:
        """Whether every operand that would be joined is a weight that nothing else reads."""
        places = [(product, place) for product in products for place in _COLUMNS[product.op]]
        joined = [product.inputs[place] for product, place in places if place < len(product.inputs)]
        return all(
            isinstance(value, Weight) and len(self._users[value]) == 1
            for value in joined
            if value is not None
        )

    def _concat(self, weights: Sequence[Weight], axis: int) -> Weight:
        shapes = [cast("tuple[int, ...]", weight.shape) for weight in weights]
        shape = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
        source = Join("concat", axis, tuple(cast("WeightExpr", weight.source) for weight in weights))
        return Weight(self._r.name(f"{weights[0].name}.packed"), weights[0].dtype, shape, source=source)


@dataclass(frozen=True)
class _Chain:
    """Alike products, and what is done to each of them alike: a bias a column, a factor a row."""

    products: Sequence[Node]
    behind: Sequence[Sequence[Node]]
    """From the products on; each an Add of weights or a Mul by one value for all."""

    @property
    def nodes(self) -> list[Node]:
        return [*self.products, *(node for nodes in self.behind for node in nodes)]

    @staticmethod
    def of(values: Sequence[Value], readers: Readers, end: Node) -> _Chain | None:
        """The chain that makes `values`, which nobody but `end` reads."""
        makers = [made_by(value, "Add", "Mul", *_COLUMNS) for value in values]
        nodes = [maker for maker in makers if maker is not None]
        if len(nodes) < len(values) or not readers.only_inside(nodes, end):
            return None
        if nodes[0].op in _COLUMNS:
            return _Chain(nodes, []) if _are_alike(nodes) else None
        if _shared(nodes) is None and not _are_biased(nodes):
            return None
        inner = [cast("Value", node.inputs[0]) for node in nodes]
        found = [_Chain.of([value], readers, node) for value, node in zip(inner, nodes, strict=True)]
        return _merged(found, nodes)


def _merged(chains: Sequence[_Chain | None], nodes: Sequence[Node]) -> _Chain | None:
    """One chain of several with one column each, and `nodes` behind."""
    whole = [chain for chain in chains if chain is not None]
    if len(whole) < len(chains) or len({len(chain.behind) for chain in whole}) > 1:
        return None
    products = [node for chain in whole for node in chain.products]
    behind = [[node for row in rows for node in row] for rows in zip(*(c.behind for c in whole), strict=True)]
    alike = _are_alike(products) and all(_shared(row) is not None or _are_biased(row) for row in behind)
    return _Chain(products, [*behind, nodes]) if alike else None


def _other(node: Node) -> Value | None:
    return node.inputs[1]


def _shared(nodes: Sequence[Node]) -> Value | None:
    """The one value, a number a row, that all these multiply by."""
    factor = _other(nodes[0])
    same = factor is not None and (factor.shape or (0,))[-1] == 1
    return factor if same and all(node.op == "Mul" and _other(node) is factor for node in nodes) else None


def _are_biased(nodes: Sequence[Node]) -> bool:
    """Whether each adds a weight [columns]."""
    return all(
        node.op == "Add"
        and isinstance(bias := _other(node), Weight)
        and bias.shape == (node.outputs[0].shape or ())[-1:]
        for node in nodes
    )


def _are_alike(products: Sequence[Node]) -> bool:
    """Whether they differ in their columns alone, and have two axes of weights."""

    def rest(node: Node) -> tuple[object, ...]:
        columns = _COLUMNS.get(node.op, {})
        kept = [value if place not in columns else value is None for place, value in enumerate(node.inputs)]
        return node.op, kept, {name: value for name, value in node.attributes.items() if name != "N"}

    matrices = all(
        product.inputs[1] is not None and len(product.inputs[1].shape or ()) >= 2 for product in products
    )
    return matrices and all(rest(product) == rest(products[0]) for product in products)
