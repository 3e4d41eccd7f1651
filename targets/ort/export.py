"""A lowered graph as an ONNX file through onnx-graphsurgeon, its weights in a safetensors file beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.ir.tensor import LazyValues

from partc.bundle.safetensors_file import Entry, write_safetensors
from partc.bundle.tensors import open_tensors, read_weight
from partc.errors import InternalError
from partc.ir.graph import Attribute, Constant, Graph, Input, ModelInfo, Node, Value, Weight
from partc.ir.types import BY_SHORT
from partc.ir.weights import WeightExpr
from partc.pipeline.contract import Progress
from targets.rewrite import state_outputs

_IR_VERSIONS = ((23, 11), (21, 10), (19, 9), (1, 8))
"""(opset from, version of the file format that goes with it)."""


@dataclass(frozen=True)
class Placed:
    """Where the elements of a weight lie."""

    file: str
    """A safetensors file, relative to the device's folder."""
    entry: Entry


_Key = tuple[WeightExpr | None, str | None]
"""What makes two weights the same bytes."""


def write_weights(
    graphs: Sequence[Graph], info: ModelInfo, folder: Path, progress: Progress
) -> dict[Weight, Placed]:
    """Stream the weights of one device's graphs into `weights/<graph>.safetensors`; returns where each lies.

    Weights with the same source are stored once, in the file of the first graph that has them. A graph
    without weights of its own gets no file.

    Raises:
        ModelError: the checkpoint lacks a tensor, or it has another shape.
    """
    stored: dict[_Key, Placed] = {}
    for graph in graphs:
        fresh: dict[_Key, Weight] = {}
        for weight in graph.weights():
            if _key(weight) not in stored:
                fresh.setdefault(_key(weight), weight)
        if fresh:
            file = f"weights/{graph.name}.safetensors"
            entries = _write_file(list(fresh.values()), info, folder / file, progress)
            stored |= {key: Placed(file, entries[weight.name]) for key, weight in fresh.items()}
    return {weight: stored[_key(weight)] for graph in graphs for weight in graph.weights()}


def _key(weight: Weight) -> _Key:
    return weight.source, weight.dtype


def _write_file(
    weights: Sequence[Weight], info: ModelInfo, path: Path, progress: Progress
) -> dict[str, Entry]:
    path.parent.mkdir(parents=True, exist_ok=True)
    by_name, read = {weight.name: weight for weight in weights}, open_tensors(info)
    placed = write_safetensors(
        path, [_entry(weight) for weight in weights],
        lambda name: read_weight(by_name[name], read, info),
        lambda done, total: progress(f"write {path.name}", done, total),
    )  # fmt: skip
    return {entry.name: entry for entry in placed}


def _entry(weight: Weight) -> Entry:
    if (
        weight.dtype is None
        or weight.shape is None
        or not all(isinstance(size, int) for size in weight.shape)
    ):
        raise InternalError(f"weight %{weight.name} has no fixed size")
    return Entry(weight.name, weight.dtype, tuple(int(size) for size in weight.shape))


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
    states = state_outputs(graph)
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
    return model


def outputs_of(graph: Graph) -> list[Value]:
    """What the sub-module makes: the graph's outputs once each, without those that are inputs of it."""
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
