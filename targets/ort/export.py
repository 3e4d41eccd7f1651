"""A lowered graph as an ONNX file through onnx-graphsurgeon, its weights in a safetensors file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.ir.tensor import LazyValues

from partc.errors import InternalError
from partc.ir.effects import updated_states
from partc.ir.graph import Attribute, Constant, Graph, Input, Node, Value, Weight
from partc.ir.types import BY_SHORT
from partc.ir.whole import open_all
from targets.weights import Placed

_IR_VERSIONS = ((23, 11), (21, 10), (19, 9), (1, 8))
"""(opset from, version of the file format that goes with it)."""


def write_onnx(graph: Graph, places: Mapping[Weight, Placed], path: Path) -> None:
    """Write `graph` as ONNX: equal graphs give equal bytes.

    Inputs are those of the graph, then its states; outputs likewise. The files of `places` are relative to the
    folder of `path`.

    Raises:
        InternalError: the graph is no legal ONNX.
    """
    model = to_onnx(graph, places)
    path.write_bytes(model.SerializeToString(deterministic=True))
    try:
        onnx.checker.check_model(str(path))
    except (onnx.checker.ValidationError, ValueError) as error:
        raise InternalError(f"the lowered graph is no legal ONNX: {error}", where=path.name) from error


def to_onnx(graph: Graph, places: Mapping[Weight, Placed]) -> onnx.ModelProto:
    """The ONNX model of a lowered graph; no names of producers, no documentation, no paths."""
    tensors = {value: _tensor(value, places) for value in graph.values()}
    states = updated_states(graph)
    missing = [state.name for state in graph.states() if state not in states]
    if missing:
        raise InternalError(f"no node updates the states {', '.join(missing)}", where=f"graph {graph.name}")
    inputs = [*graph.inputs, *states]
    outputs = [*outputs_of(graph), *states.values()]
    exported = gs.Graph(
        nodes=[_node(node, tensors, graph.opset) for node in graph.nodes],
        inputs=[_declare(tensors[value], value) for value in inputs],
        outputs=[_declare(tensors[value], value) for value in outputs],
        name=graph.name,
        opset=graph.opset,
    )
    version = next(version for opset, version in _IR_VERSIONS if graph.opset >= opset)
    model: onnx.ModelProto = gs.export_onnx(exported, ir_version=version)
    open_all(model)
    return model


def outputs_of(graph: Graph) -> list[Value]:
    """The outputs of the sub-module: the graph's outputs once each, without those that are its inputs."""
    return [value for value in dict.fromkeys(graph.outputs) if not isinstance(value, Input)]


def _tensor(value: Value, places: Mapping[Weight, Placed]) -> gs.Tensor:
    match value:
        case Weight():
            return gs.Constant(value.name, LazyValues(_external(value, places[value])))
        case Constant(array=array) if array is not None:
            return gs.Constant(value.name, array)
    return gs.Variable(value.name)


def _external(weight: Weight, place: Placed) -> onnx.TensorProto:
    entry = place.entry
    tensor = onnx.TensorProto(
        name=weight.name,
        data_type=BY_SHORT[entry.dtype].onnx,
        dims=entry.shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in (("location", place.file), ("offset", entry.offset), ("length", entry.bytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _declare(tensor: gs.Tensor, value: Value) -> gs.Tensor:
    if value.dtype is None or value.shape is None:
        raise InternalError(f"%{value.name} goes in or out but has no size", hint="run infer-sizes first")
    tensor.dtype, tensor.shape = BY_SHORT[value.dtype].numpy, list(value.shape)
    return tensor


def _node(node: Node, tensors: Mapping[Value, gs.Tensor], opset: int) -> gs.Node:
    domain, _, op = node.op.rpartition(".")
    return gs.Node(
        op=op,
        name=node.name,
        domain=domain or None,
        inputs=[gs.Variable.empty() if value is None else tensors[value] for value in node.inputs],
        outputs=[tensors[value] for value in node.outputs],
        attrs={name: _attribute(node, name, value, opset) for name, value in sorted(node.attributes.items())},
    )


def _attribute(node: Node, name: str, value: Attribute, opset: int) -> object:
    """The attribute as onnx-graphsurgeon takes it; a whole number becomes a float where one is wanted."""
    if isinstance(value, np.ndarray):
        return gs.Constant(f"{node.name}.{name}", value)
    if not onnx.defs.has(node.op, opset, ""):
        return value
    declared = onnx.defs.get_schema(node.op, opset, "").attributes.get(name)
    if declared is not None and declared.type == onnx.defs.OpSchema.AttrType.FLOAT and isinstance(value, int):
        return float(value)
    if (
        declared is not None
        and declared.type == onnx.defs.OpSchema.AttrType.FLOATS
        and isinstance(value, tuple)
    ):
        return [float(item) for item in value]
    return list(value) if isinstance(value, tuple) else value
