"""Half precision: what lies in memory stays in 16 bits, everything is computed in float32.

| of float16 or bfloat16 | becomes |
| --- | --- |
| weight of a product, table of embeddings | as it is: kernels convert it while they read it |
| other weight | float32 in the file where it has one axis (norms, biases), else converted before it is used |
| state | as it is: rows are rounded when they are written, and converted when they are read |
| input, output of the graph | as it is, since other devices send and expect it so; converted at the border |
| constant, everything that is computed | float32 |
| sum of two values, as residuals are | float32, rounded to 16 bits: a model that is cut there sends it so |

Nothing is added up in 16 bits, and other values between operators are not rounded to them: results differ from those of
a processor that does by less than its own error, and not by where a model is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping, Sequence

import numpy as np

from partc.ir.effects import is_buffer
from partc.ir.graph import Attribute, Constant, Graph, Node, Value, Weight
from partc.ir.operators import ATTENTION, CAUSAL_CONV, QUANTIZED, QUANTIZED_ATTENTION, UPDATE_STATE
from partc.ir.types import BY_SHORT, HALF
from partc.ir.weights import Step
from targets.rewrite import Rewriter


def widen(graph: Graph) -> None:
    """Have a static graph computed in float32, in place, as the table says; O(nodes + values of constants)."""
    if any(value.dtype in HALF for value in graph.values()):
        _Widener(graph).run()


class _Widener:
    """One graph on its way."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._r = Rewriter(graph)
        self._same: dict[Value, Value] = {}
        """Results of casts that have nothing left to do → what they would cast."""

    def run(self) -> None:
        narrow = {value: value.dtype for value in self._graph.outputs if value.dtype in HALF}
        for node in self._graph.nodes:
            self._widen(node)
        outputs = [self._same.get(value, value) for value in self._graph.outputs]
        self._graph.outputs = [
            wide if value not in narrow or is_buffer(value) else self._cast(wide, narrow[value])
            for value, wide in zip(self._graph.outputs, outputs, strict=True)
        ]
        self._graph.nodes = self._r.nodes

    def _widen(self, node: Node) -> None:
        node.inputs = [None if value is None else self._same.get(value, value) for value in node.inputs]
        if node.op == "Gather" and _is_half(table := node.inputs[0]) and isinstance(table, Weight):
            self._gather(node, table)
            return
        stay = _STAY.get(node.op, ())
        node.inputs = [
            value if value is None or (place in stay and _lies_in_memory(value)) else self._wide(value)
            for place, value in enumerate(node.inputs)
        ]
        node.attributes = {name: _in_32_bits(value) for name, value in node.attributes.items()}
        if node.op == "Add" and _is_half(node.outputs[0]):
            self._add(node)
            return
        for value in node.outputs:
            if _is_half(value) and not is_buffer(value):
                value.dtype = "f32"
        source = node.inputs[0] if node.op == "Cast" else None
        if source is not None and source.dtype == node.outputs[0].dtype:
            self._same[node.outputs[0]] = source
        else:
            self._r.nodes.append(node)

    def _add(self, node: Node) -> None:
        """A sum is rounded, in case that this is where others cut."""
        (found,) = node.outputs
        whole = self._r.value(f"{found.name}.whole", "f32", found.shape)
        self._r.emit(node.op, node.inputs, [whole], node.attributes, node.scope)
        if found.dtype == "bf16":
            self._round(whole, found, node.scope)
        else:
            half = self._cast(whole, found.dtype)
            self._r.emit("Cast", [half], [found], {"to": BY_SHORT["f32"].onnx}, node.scope)
        found.dtype = "f32"

    def _round(self, whole: Value, found: Value, scope: str) -> None:
        """To the 8 digits of bfloat16 by Veltkamp's splitting, c - (c - x) with c = (2¹⁶ + 1) x.

        TVM leaves out casts to bfloat16 and back. Numbers from 2¹⁰⁰ on, masks for instance, stay as they are: c would
        be infinite, and the difference no number.
        """

        def made(op: str, operands: Sequence[Value], name: str, dtype: str = "f32") -> Value:
            return self._r.op(op, operands, dtype, whole.shape, f"{found.name}.{name}")

        factor = self._r.constant(np.array(65537, np.float32), "splitter")
        large = made("Mul", [whole, factor], "large")
        rounded = made("Sub", [large, made("Sub", [large, whole], "rest")], "rounded")
        limit = self._r.constant(np.array(2.0**100, np.float32), "limit")
        is_small = made("Less", [made("Abs", [whole], "magnitude"), limit], "is_small", "bool")
        self._r.emit("Where", [is_small, rounded, whole], [found], {}, scope)

    def _gather(self, node: Node, table: Weight) -> None:
        """Rows are converted, not tables."""
        (found,) = node.outputs
        rows = self._r.op(
            "Gather", node.inputs, table.dtype, found.shape, f"{found.name}.half", **node.attributes
        )
        found.dtype = "f32"
        self._r.emit("Cast", [rows], [found], {"to": BY_SHORT["f32"].onnx}, node.scope)

    def _wide(self, value: Value) -> Value:
        if not _is_half(value):
            return value
        if isinstance(value, Constant) and value.array is not None:
            return self._r.constant(value.array.astype(np.float32), value.name)
        if isinstance(value, Weight) and len(value.shape or ()) < 2:
            return self._r.once(value, lambda: _weight_in_32_bits(value))
        return self._r.once(value, lambda: self._cast(value, "f32"))

    def _cast(self, value: Value, dtype: str | None) -> Value:
        to = BY_SHORT[dtype or ""].onnx
        return self._r.op("Cast", [value], dtype, value.shape, f"{value.name}.{dtype}", to=to)


_STAY: Mapping[str, Container[int]] = {
    "MatMul": (1,),
    "Gemm": (1,),
    ATTENTION.name: (1, 2),
    QUANTIZED_ATTENTION.name: (3, 4),
    CAUSAL_CONV.name: (0,),
    UPDATE_STATE.name: (0,),
    **dict.fromkeys(QUANTIZED, range(1, sys.maxsize)),
}
"""Operator → the operands that its code takes in half precision where they are weights or states."""


def _lies_in_memory(value: Value) -> bool:
    return isinstance(value, Weight) or is_buffer(value)


def _is_half(value: Value | None) -> bool:
    return value is not None and value.dtype in HALF


def _in_32_bits(value: Attribute) -> Attribute:
    is_half = isinstance(value, np.ndarray) and value.dtype in [BY_SHORT[short].numpy for short in HALF]
    return value.astype(np.float32) if is_half else value  # type: ignore[union-attr]


def _weight_in_32_bits(weight: Weight) -> Weight:
    """The same numbers in the file; its name says so, so that it is the same one in every entry."""
    assert weight.source is not None
    return Weight(f"{weight.name}.f32", "f32", weight.shape, source=Step("cast", ("f32",), weight.source))
