"""½ x (1 + erf(x/√2)) and its approximation by tanh become one `Gelu`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from partc.ir.graph import Graph, Node, Value
from partc.ir.match import Readers, become, made_by, number
from passes.fusions.match import is_number, with_number

_TOLERANCE = 1e-4
"""Implementations write √(2/π) and 1/√2 with 4 to 10 digits."""
_CUBIC = 0.044715
_MAX_DEPTH = 5
"""Products nest no deeper in a GELU; a bound keeps towers of squares from being written out."""


@dataclass
class _Product:
    """A tree of products and quotients as one number and the factors that are none."""

    number: float = 1.0
    factors: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def count(self, value: Value) -> int:
        return sum(factor is value for factor in self.factors)


def fuse_gelu(graph: Graph) -> int:
    """Produce ONNX `Gelu` (opset 20).

    approximate = "none" for erf, "tanh" for ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))). The products are
    taken apart, so their order and grouping do not matter. Returns the number of fused patterns; O(nodes).
    """
    readers = Readers(graph)
    return sum(_fuse(node, readers) for node in graph.nodes if node.op in ("Mul", "Div"))


def _fuse(node: Node, readers: Readers) -> bool:
    product = _product_at(node)
    if abs(product.number - 0.5) > _TOLERANCE or len(product.factors) != 2:
        return False
    for x, gate in (product.factors, product.factors[::-1]):
        found = _gate(gate, x)
        if found is None or x.shape != node.outputs[0].shape:
            continue
        inner = [n for n in (*product.nodes, *found[1]) if n is not node]
        if readers.only_inside(inner, node):
            become(node, "Gelu", [x], approximate=found[0])
            return True
    return False


def _gate(gate: Value, x: Value) -> tuple[str, list[Node]] | None:
    """(approximate, nodes) of 1 + erf(…) or 1 + tanh(…)."""
    shift = made_by(gate, "Add")
    found = with_number(shift)
    if shift is None or found is None or found[1] != 1.0:
        return None
    curve = made_by(found[0], "Erf", "Tanh")
    if curve is None or curve.inputs[0] is None:
        return None
    inner = _erf_argument(curve.inputs[0], x) if curve.op == "Erf" else _tanh_argument(curve.inputs[0], x)
    return None if inner is None else ("none" if curve.op == "Erf" else "tanh", [shift, curve, *inner])


def _erf_argument(value: Value, x: Value) -> list[Node] | None:
    product = _product(value)
    matches = product.factors == [x] and abs(product.number - math.sqrt(0.5)) < _TOLERANCE
    return product.nodes if matches else None


def _tanh_argument(value: Value, x: Value) -> list[Node] | None:
    """√(2/π) (x + 0.044715 x³), or √(2/π) x (1 + 0.044715 x²)."""
    product = _product(value)
    if abs(product.number - math.sqrt(2 / math.pi)) > _TOLERANCE:
        return None
    lowest = 1 - product.count(x)
    rest = [factor for factor in product.factors if factor is not x]
    total = made_by(rest[0], "Add") if len(rest) == 1 and lowest in (0, 1) else None
    if total is None:
        return None
    for low, high in (total.inputs, total.inputs[::-1]):
        cubic = None if high is None else _power(high, x)
        is_low = low is x if lowest == 1 else is_number(low, 1.0)
        if is_low and cubic is not None and cubic[0] == lowest + 2:
            return [*product.nodes, total, *cubic[1]]
    return None


def _power(value: Value, x: Value) -> tuple[int, list[Node]] | None:
    """(n, nodes) of 0.044715 xⁿ."""
    product = _product(value)
    if abs(product.number - _CUBIC) > _TOLERANCE * _CUBIC:
        return None
    exponent, nodes = 0, list(product.nodes)
    for factor in product.factors:
        power = made_by(factor, "Pow")
        if factor is x:
            exponent += 1
        elif power is not None and power.inputs[0] is x and (n := number(power.inputs[1])) in (2.0, 3.0):
            exponent += int(n or 0)
            nodes.append(power)
        else:
            return None
    return exponent, nodes


def _product(value: Value, depth: int = 0) -> _Product:
    node = made_by(value, "Mul", "Div")
    return _product_at(node, depth) if node is not None and depth < _MAX_DEPTH else _leaf(value)


def _product_at(node: Node, depth: int = 0) -> _Product:
    left, right = node.inputs
    assert left is not None
    assert right is not None
    if node.op == "Div" and not number(right):
        return _leaf(node.outputs[0])
    a, b = _product(left, depth + 1), _product(right, depth + 1)
    scale = a.number / b.number if node.op == "Div" else a.number * b.number
    return _Product(scale, [*a.factors, *b.factors], [*a.nodes, *b.nodes, node])


def _leaf(value: Value) -> _Product:
    found = number(value)
    return _Product(factors=[value]) if found is None else _Product(number=found)
