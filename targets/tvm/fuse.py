"""Nodes joined with their neighbours, for kernels that do both in one pass over memory.

| nodes | become | saves |
| --- | --- | --- |
| `activation(x · a) × (x · b)` | `tvm.GatedProduct` | writing and reading both products |
| `x · a + residual or bias` | `tvm.ProductPlus` | a pass over the product |
| two or three products of one x | `tvm.Products` | waking the threads for each |
| heads and rows of an operand or result swapped | the attribute `rows_first` of the node beside | a copy |
| an activation between a turn and the turn back | the activation alone | two copies |
| `activation(convolution of x)` | the attribute `activation` of the convolution | a pass over its result |
| `activation(x) × y` | `tvm.Gated` | a pass over the activated x |

Products with quantised weights (`tvm.QuantizedProduct`) become `tvm.QuantizedGatedProduct` and so on.
The graph is that of one entry; only products with a packed weight are joined, since only these have kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from partc.ir.edit import drop_dead
from partc.ir.graph import Attribute, Graph, Node, Value
from partc.ir.operators import CAUSAL_CONV, QUANTIZE_ROWS, UPDATE_STATE
from targets.tvm.kernels.activate import GATED, activation_of
from targets.tvm.kernels.activate import fits as fits_activation
from targets.tvm.kernels.cache_rows import fits as fits_rows
from targets.tvm.kernels.rotary import fits as fits_rotary
from targets.tvm.kernels.update_state import fits as fits_update
from targets.tvm.panels import PANEL_ATTENTION, PANEL_QUANTIZED_ATTENTION, PANELS, UPDATE_PANELS
from targets.tvm.quantized import PRODUCT as QUANTIZED_PRODUCT

_TURNED: Mapping[str, tuple[int, Callable[[Node], bool]]] = {
    "RotaryEmbedding": (0, fits_rotary),
    UPDATE_STATE.name: (1, fits_update),
    UPDATE_PANELS: (1, lambda node: True),
    PANELS: (0, lambda node: True),
    QUANTIZE_ROWS.name: (0, fits_rows),
}
"""Operator → the operand that its kernel reads by heads or by rows, and whether there is a kernel."""
_ATTENTIONS = (PANEL_ATTENTION, PANEL_QUANTIZED_ATTENTION)
MOST = 3
"""Products of one x that a kernel takes together."""
PRODUCTS = {"MatMul": "tvm.", QUANTIZED_PRODUCT: "tvm.Quantized"}
"""Operator of a product → how the names of what it becomes begin."""


class Fuser:
    """One graph, and what rules ask about it."""

    def __init__(self, graph: Graph, packed: frozenset[str]) -> None:
        self.graph = graph
        self.packed = packed
        self.readers = graph.consumers()
        self.outputs = frozenset(graph.outputs)

    def is_product(self, value: Value | None) -> bool:
        """Whether this is made by a product with a packed weight."""
        node = value.producer if value is not None else None
        if node is None or node.op not in PRODUCTS:
            return False
        return node.op != "MatMul" or node.operand(1).name in self.packed

    def is_private(self, value: Value | None) -> bool:
        """Whether one node alone reads this."""
        return value is not None and len(self.readers.get(value, ())) == 1 and value not in self.outputs


def fuse_for_processor(graph: Graph, packed: frozenset[str]) -> None:
    """Join the nodes of a static graph, in place; `packed`: names of the weights in panels. O(nodes) a rule."""
    rules = gated_product, product_plus, _turned_operand, _turned_result, _turned_activation, _gated
    apply(graph, packed, *rules)
    activate_convolutions(Fuser(graph, packed))
    join_products(Fuser(graph, packed))


Rule = Callable[[Fuser, Node], "Node | None"]
"""The node that takes the place of one, where it does."""


def apply(graph: Graph, packed: frozenset[str], *rules: Rule) -> None:
    """Each rule in turn, over all nodes; O(nodes) a rule."""
    for rule in rules:
        fuser = Fuser(graph, packed)
        graph.nodes = [rule(fuser, node) or node for node in graph.nodes]
        drop_dead(graph)


def gated_product(f: Fuser, node: Node) -> Node | None:
    """The first row of the table."""
    if node.op != "Mul":
        return None
    for gate, up in (node.inputs, reversed(node.inputs)):
        activated = gate.producer if gate is not None else None
        name = activation_of(activated) if activated is not None else None
        if name is None or not (f.is_private(gate) and f.is_product(up) and f.is_private(up)):
            continue
        inner = gate.producer.inputs[0]  # type: ignore[union-attr]
        if not (f.is_product(inner) and f.is_private(inner)):
            continue
        one, other = inner.producer, up.producer  # type: ignore[union-attr]
        if one is not None and other is not None and _are_alike(one, other):
            operands = [*one.inputs, other.inputs[1]]
            return _made_of(one, "GatedProduct", operands, node.outputs, {"activation": name}, node.scope)
    return None


def _are_alike(one: Node, other: Node) -> bool:
    """Whether two products are of one x, with weights of one type and of as many bits."""
    alike = one.op == other.op and one.attributes == other.attributes
    return alike and one.inputs[0] is other.inputs[0] and one.operand(1).dtype == other.operand(1).dtype


def _made_of(
    product: Node, name: str, operands: list[Value | None], outputs: list[Value],
    attributes: Mapping[str, Attribute], scope: str,
) -> Node:  # fmt: skip
    """A node for a product and what is joined with it."""
    return Node(
        f"{PRODUCTS[product.op]}{name}", operands, outputs, {**product.attributes, **attributes}, scope
    )


def product_plus(f: Fuser, node: Node) -> Node | None:
    """The second row of the table."""
    if node.op != "Add":
        return None
    for product, added in (node.inputs, reversed(node.inputs)):
        if not (f.is_product(product) and f.is_private(product)) or added is None or added is product:
            continue
        fits = added.shape in (product.shape, product.shape[-1:])  # type: ignore[union-attr, index]
        if fits and node.outputs[0].shape == product.shape:  # type: ignore[union-attr]
            made: Node = product.producer  # type: ignore[union-attr, assignment]
            return _made_of(made, "ProductPlus", [*made.inputs, added], node.outputs, {}, node.scope)
    return None


def _turned_operand(f: Fuser, node: Node) -> Node | None:
    place, fits = _TURNED.get(node.op, (0, lambda node: False))
    turned = node.inputs[place] if fits(node) else None
    turn = turned.producer if turned is not None else None
    if turn is None or not _swaps_heads_and_rows(turn):
        return None
    operands = [turn.inputs[0] if i == place else value for i, value in enumerate(node.inputs)]
    return Node(node.op, operands, node.outputs, {**node.attributes, "rows_first": 1}, node.scope)


def _turned_result(f: Fuser, node: Node) -> Node | None:
    made = node.inputs[0].producer if _swaps_heads_and_rows(node) and node.inputs[0] is not None else None
    if made is None or made.op not in _ATTENTIONS or not f.is_private(node.inputs[0]):
        return None
    return Node(made.op, made.inputs, node.outputs, {**made.attributes, "rows_first": 1}, node.scope)


def _swaps_heads_and_rows(node: Node) -> bool:
    return node.op == "Transpose" and node.attributes.get("perm") == (0, 2, 1, 3)


def _turned_activation(f: Fuser, node: Node) -> Node | None:
    """The activation of x, where it is that of x turned, turned back."""
    activated = node.inputs[0].producer if node.op == "Transpose" and node.inputs[0] is not None else None
    if activated is None or activation_of(activated) is None or not f.is_private(node.inputs[0]):
        return None
    turn = activated.operand(0).producer
    if turn is None or turn.op != "Transpose" or not _turns_back(turn, node):
        return None
    return Node(activated.op, turn.inputs, node.outputs, activated.attributes, activated.scope)


def _turns_back(first: Node, second: Node) -> bool:
    one, other = first.attributes.get("perm"), second.attributes.get("perm")
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return False
    return [one[int(axis)] for axis in other] == list(range(len(one)))


def _gated(f: Fuser, node: Node) -> Node | None:
    if node.op != "Mul":
        return None
    for gate, other in (node.inputs, reversed(node.inputs)):
        activated = gate.producer if gate is not None else None
        name = activation_of(activated) if activated is not None else None
        if activated is None or name is None or other is None or not f.is_private(gate):
            continue
        if fits_activation(activated) and other.shape == node.outputs[0].shape == activated.operand(0).shape:
            return Node(GATED, [activated.inputs[0], other], node.outputs, {"activation": name}, node.scope)
    return None


def activate_convolutions(f: Fuser) -> None:
    """Convolutions compute the activation that alone reads their result."""
    done: set[Node] = set()
    for node in f.graph.nodes:
        if node.op != CAUSAL_CONV.name or not f.is_private(node.outputs[0]):
            continue
        (reader,) = f.readers[node.outputs[0]]
        name = activation_of(reader)
        if name is not None:
            node.attributes = {**node.attributes, "activation": name}
            node.outputs[0] = reader.outputs[0]
            node.outputs[0].producer = node
            done.add(reader)
    f.graph.nodes = [node for node in f.graph.nodes if node not in done]


def join_products(f: Fuser) -> None:
    """Products of one x, where the first of them stands: what they read has been made by then."""
    nodes: list[Node] = []
    done: set[Node] = set()
    for node in f.graph.nodes:
        if node in done:
            continue
        group = _group(f, node, done)
        done.update(group)
        nodes.append(node if len(group) < 2 else _joined(group))
    f.graph.nodes = nodes


def _group(f: Fuser, node: Node, done: set[Node]) -> list[Node]:
    x = node.inputs[0] if node.inputs else None
    if x is None or not f.is_product(node.outputs[0]):
        return []
    alike = [n for n in f.readers[x] if f.is_product(n.outputs[0]) and _are_alike(n, node)]
    return [reader for reader in alike if reader not in done][:MOST]


def _joined(group: list[Node]) -> Node:
    operands = [group[0].inputs[0], *(node.inputs[1] for node in group)]
    return _made_of(group[0], "Products", operands, [node.outputs[0] for node in group], {}, group[0].scope)
