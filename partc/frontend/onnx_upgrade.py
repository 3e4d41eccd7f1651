"""Older ONNX graphs in the version of the operators that passes and targets write.

onnx's own converter does the work. It gets the graph without the data of large tensors, which it would copy.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, version_converter

from partc.errors import ModelError
from partc.frontend.onnx_check import tensor_bytes
from partc.frontend.onnx_import import INLINE_BYTES
from partc.ir.whole import graphs_of, read_outside

OPSET = 18
"""The oldest version that is kept: lowerings write operators of this one (`ReduceMax` with axes as an operand)."""
_OLDEST = 7
"""The oldest version that onnxruntime promises to run, and the converter starts from."""
_MOST_BYTES = INLINE_BYTES
"""Bytes of tensors that the converter may have to look into: axes, scales, bounds."""


def bring_up(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """`model` with operators of at least `OPSET`, the names of its values kept.

    Raises:
        ModelError: the converter knows no such operator in the newer form; names it.
    """
    found = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), OPSET)
    if found >= OPSET:
        return model
    if found < _OLDEST:
        raise _refused(f"its operators are of opset {found}, and partc reads {_OLDEST} and newer", path)
    return _converted(model, found, path)


def _converted(model: onnx.ModelProto, found: int, path: Path) -> onnx.ModelProto:
    """`model` in the newer form; the converter leaves graphs inside of nodes, so they follow one by one."""
    work, large = onnx.ModelProto(), {}
    work.CopyFrom(model)
    for tensor in work.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL or tensor_bytes(tensor) > _MOST_BYTES:
            large[tensor.name] = tensor
    _take_out(work.graph, large)
    try:
        made = version_converter.convert_version(work, OPSET)
    except Exception as error:  # the converter raises RuntimeError, and what its parts come across
        why = " ".join(str(error).split()) or type(error).__name__
        raise _refused(f"its opset {found} cannot be brought up to {OPSET}: {why[-300:]}", path) from error
    _put_back(made.graph, large)
    _keep_domains(made, model)
    for node in made.graph.node:
        for _, body in graphs_of(node):
            _convert_body(body, model, found, path)
    return made


def _convert_body(body: onnx.GraphProto, model: onnx.ModelProto, found: int, path: Path) -> None:
    """The same for a graph inside of a node; what it reads from outside becomes an input meanwhile."""
    outside = read_outside(body)
    alone = onnx.ModelProto()
    alone.CopyFrom(model)
    alone.graph.CopyFrom(body)
    alone.graph.input.extend(onnx.ValueInfoProto(name=name) for name in outside)
    made = _converted(alone, found, path).graph
    kept = [value for value in made.input if value.name not in outside]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    body.CopyFrom(made)
    del body.input[:]
    body.input.extend(copies)


def _take_out(graph: onnx.GraphProto, large: dict[str, TensorProto]) -> None:
    listed = {value.name for value in graph.input}
    kept = [tensor for tensor in graph.initializer if tensor.name not in large]
    for name, tensor in large.items():
        copied = TensorProto()
        copied.CopyFrom(tensor)
        large[name] = copied
        if name not in listed:
            graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    small = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(small)


def _put_back(graph: onnx.GraphProto, large: dict[str, TensorProto]) -> None:
    kept = [value for value in graph.input if value.name not in large]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del graph.input[:]
    graph.input.extend(copies)
    graph.initializer.extend(large.values())


def _keep_domains(made: onnx.ModelProto, model: onnx.ModelProto) -> None:
    """The versions of other domains, which the converter may leave out."""
    known = {entry.domain for entry in made.opset_import}
    for entry in model.opset_import:
        if entry.domain not in (*known, "ai.onnx"):
            made.opset_import.append(entry)


def _refused(what: str, path: Path) -> ModelError:
    return ModelError(what, where=str(path), hint=f"export the model again with opset {OPSET} or newer")
