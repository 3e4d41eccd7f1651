"""An ONNX model becomes IR; onnx-graphsurgeon reads it, weights stay where they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.logger import G_LOGGER

from partc.errors import ModelError
from partc.format.dims import Dim, Shape
from partc.frontend.onnx_names import SymbolNames
from partc.ir.graph import Attribute, Constant, Graph, Input, Node, State, Value, Weight
from partc.ir.operators import OPERATORS
from partc.ir.operators.operator import StateWrite
from partc.ir.types import BY_NUMPY, BY_ONNX
from partc.ir.weights import Array, WeightExpr

INLINE_BYTES = 1024
"""Initializers up to this size become constants of the IR unless they are parameters."""
_SYMBOL = re.compile(r"[A-Za-z_]\w*")

G_LOGGER.severity = (
    G_LOGGER.CRITICAL
)  # its warnings of bfloat16 go to standard output, into what `--json` prints

SourceOf = Callable[[str], WeightExpr | None]
"""Name of an initializer → where its values lie, None to take them from the model itself."""


def import_onnx(
    model: onnx.ModelProto,
    source_of: SourceOf,
    symbols: Mapping[str, str] | None = None,
    scopes: Mapping[str, str] | None = None,
) -> Graph:
    """The graph of `model`; O(nodes).

    Args:
        model: any ONNX model whose control flow is enclosed (`partc.ir.whole`); nodes of ours that change a state name
            it in the attribute `state`.
        source_of: finds the reference of an initializer.
        symbols: names for the model's symbolic sizes (`s57` → `batch`).
        scopes: where nodes come from in the source model, by the name of their first output.

    Raises:
        ModelError: control flow, sparse or string tensors, or an unknown element type.
    """
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
    importer = _Importer(gs.import_onnx(model), source_of, symbols or {}, scopes or {})
    return importer.run(model.graph.name or "graph", opset)


class _Importer:
    def __init__(
        self, surgeon: gs.Graph, source_of: SourceOf, symbols: Mapping[str, str], scopes: Mapping[str, str]
    ) -> None:
        self.surgeon = surgeon
        self.source_of = source_of
        self.symbols = symbols
        self.scopes = scopes
        self.values: dict[str, Value] = {}
        self.states: dict[str, State] = {}
        self.named = SymbolNames()

    def run(self, name: str, opset: int) -> Graph:
        inputs = [self._input(tensor) for tensor in self.surgeon.inputs if isinstance(tensor, gs.Variable)]
        nodes = [self._node(node) for node in self.surgeon.nodes if node.op != "Constant"]
        outputs = [self._value(tensor) for tensor in self.surgeon.outputs]
        return Graph(name, inputs, outputs, nodes, opset)

    def _input(self, tensor: gs.Variable) -> Input:
        value = Input(tensor.name, _dtype(tensor), self._shape(tensor.shape, tensor.name))
        self.values[tensor.name] = value
        return value

    def _value(self, tensor: gs.Tensor) -> Value:
        if tensor.name not in self.values:
            self.values[tensor.name] = self._new_value(tensor)
        return self.values[tensor.name]

    def _new_value(self, tensor: gs.Tensor) -> Value:
        if isinstance(tensor, gs.Constant):
            return self._leaf(tensor)
        producer = tensor.inputs[0] if tensor.inputs else None
        if producer is not None and producer.op == "Constant":
            return _constant(tensor.name, _constant_array(producer))
        return Value(tensor.name, _dtype(tensor), self._shape(tensor.shape))

    def _leaf(self, tensor: gs.Constant) -> Value:
        source = self.source_of(tensor.name)
        lazy = tensor._values
        if source is not None and isinstance(lazy, LazyValues):
            return Weight(tensor.name, _lazy_dtype(lazy, tensor.name), tuple(lazy.shape), source=source)
        return _constant(tensor.name, np.asarray(tensor.values))

    def _node(self, node: gs.Node) -> Node:
        inputs = [None if tensor.is_empty() else self._value(tensor) for tensor in node.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        outputs = [self._output(tensor, node, index) for index, tensor in enumerate(node.outputs)]
        attributes = {key: _attribute(value, node, key) for key, value in node.attrs.items()}
        op = f"{node.domain}.{node.op}" if node.domain not in (None, "", "ai.onnx") else node.op
        for write in OPERATORS[op].writes if op in OPERATORS else ():
            inputs.insert(write.operand, self._state(str(attributes.pop("state")), outputs, write))
        return Node(op, inputs, outputs, attributes, scope=self.scopes.get(outputs[0].name, ""))

    def _output(self, tensor: gs.Tensor, node: gs.Node, index: int) -> Value:
        if tensor.is_empty():
            return Value(f"{node.outputs[0].name}.unused{index}")
        return self._value(tensor)

    def _state(self, name: str, outputs: list[Value], write: StateWrite) -> State:
        if name not in self.states:
            new = outputs[write.result]
            self.states[name] = State(name, new.dtype, new.shape, kind=write.kind)
        return self.states[name]

    def _shape(self, shape: Any, input_name: str = "") -> Shape | None:
        """Sizes with the caller's names; unnamed sizes of an input get one, others leave the shape unknown."""
        if shape is None:
            return None
        sizes: list[Dim] = []
        for axis, size in enumerate(shape):
            named = self._dim(size, f"{input_name}_{axis}" if input_name else "")
            if named is None:
                return None
            sizes.append(named)
        return tuple(sizes)

    def _dim(self, size: Any, fallback: str) -> Dim | None:
        if isinstance(size, int | np.integer) and size >= 0:
            return int(size)
        if isinstance(size, str) and size:
            renamed = _SYMBOL.sub(lambda found: self.symbols.get(found.group(), found.group()), size)
            return self._symbol(renamed) if fallback else None
        return self._symbol(fallback) if fallback else None

    def _symbol(self, text: str) -> str:
        """A symbol for a size that is called `text`; other texts get other symbols."""
        return self.named.symbol(text)


def _dtype(tensor: gs.Tensor) -> str | None:
    if tensor.dtype is None:
        return None
    if isinstance(tensor.dtype, int):
        return BY_ONNX[tensor.dtype].short if tensor.dtype in BY_ONNX else None
    row = BY_NUMPY.get(np.dtype(tensor.dtype))
    if row is None:
        raise ModelError(f"element type {tensor.dtype} is not supported", where=f"tensor {tensor.name}")
    return row.short


def _lazy_dtype(lazy: Any, name: str) -> str:
    row = BY_ONNX.get(lazy.tensor.data_type)
    if row is None:
        raise ModelError(
            "element type is not supported", where=f"tensor {name}", hint="partc reads float and int tensors"
        )
    return row.short


def _constant(name: str, array: Array) -> Constant:
    if array.dtype not in BY_NUMPY:
        raise ModelError(f"element type {array.dtype} is not supported", where=f"tensor {name}")
    return Constant(name, BY_NUMPY[array.dtype].short, array.shape, array=array)


def _constant_array(node: gs.Node) -> Array:
    for key, value in node.attrs.items():
        if key == "value":
            return np.asarray(value.values if isinstance(value, gs.Constant) else value)
        if key in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
    raise ModelError("a constant of a kind that is not supported", where=f"node {node.name}")


def _attribute(value: Any, node: gs.Node, key: str) -> Attribute:
    match value:
        case int() | np.integer():
            return int(value)
        case float() | str():
            return value
        case gs.Constant():
            return np.asarray(value.values)
        case list() | tuple():
            return tuple(_attribute(item, node, key) for item in value)  # type: ignore[return-value]
        case gs.Graph():
            raise ModelError(
                f"control flow ({node.op}) cannot be cut",
                where=f"node {node.name}",
                hint="export the model with fixed control flow, or simplify it first",
            )
        case _:
            message = f"attribute {key} of a kind that is not supported"
            raise ModelError(message, where=f"node {node.name} ({node.op})")
