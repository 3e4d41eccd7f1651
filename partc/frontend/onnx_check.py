"""Checks of an ONNX file before anything of it is used: every complaint names the tensor, the node or the value.

The file may be damaged, written by hand or meant to do harm. What is checked here is what the import, the target and
onnxruntime rely on:

| part | rule |
| --- | --- |
| tensors | an element type that partc has, sizes of at least 0, data of exactly that size |
| nodes | legal by the schema of their operator, with UTF-8 texts, no graph inside |
| values | made once, before they are read; inputs, outputs and nodes have names |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import onnx
from onnx import AttributeProto, TensorProto

from partc.errors import ModelError
from partc.ir.types import BY_ONNX

_AGAIN = "export or download it again"
_MOST_BYTES = 2**62
_FIELDS = {
    "float_data": (TensorProto.FLOAT,),
    "double_data": (TensorProto.DOUBLE,),
    "int64_data": (TensorProto.INT64,),
    "uint64_data": (TensorProto.UINT32, TensorProto.UINT64),
    "int32_data": (
        *(TensorProto.INT32, TensorProto.INT16, TensorProto.INT8, TensorProto.UINT16, TensorProto.UINT8),
        *(TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.BFLOAT16),
    ),
}
"""The fields that may hold a tensor's elements instead of raw bytes → their element types."""


def check_model(model: onnx.ModelProto, path: Path) -> None:
    """Check the whole file but for external data, which is not opened; O(nodes and bytes of their attributes).

    Raises:
        ModelError: the first thing that is wrong.
    """
    for tensor in model.graph.initializer:
        check_tensor(tensor, f"{path}: tensor {tensor.name}")
    _check_values([*model.graph.input, *model.graph.output, *model.graph.value_info], path)
    _check_nodes(model, path)
    _check_order(model.graph, path)


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes of the elements of a tensor that `check_tensor` passed."""
    return int(math.prod(tensor.dims)) * BY_ONNX[tensor.data_type].bytes


def check_tensor(tensor: TensorProto, where: str) -> None:
    """Type, sizes and, unless it is external, data of one tensor.

    Raises:
        ModelError: see the table above.
    """
    row = BY_ONNX.get(tensor.data_type)
    if row is None:
        raise ModelError(
            f"the element type {_type_name(tensor.data_type)} is not one that partc reads", where=where
        )
    if min(tensor.dims, default=0) < 0 or tensor_bytes(tensor) > _MOST_BYTES:
        raise ModelError(f"{list(tensor.dims)} are no sizes of a tensor", where=where, hint=_AGAIN)
    if tensor.data_location != TensorProto.EXTERNAL:
        _check_data(tensor, row.bytes, where)


def _check_data(tensor: TensorProto, element_bytes: int, where: str) -> None:
    count = math.prod(tensor.dims)
    filled = [field for field in _FIELDS if len(getattr(tensor, field))]
    filled += ["raw_data"] if tensor.HasField("raw_data") else []
    if len(filled) > 1:
        raise ModelError(f"it has data twice: {' and '.join(filled)}", where=where, hint=_AGAIN)
    field = filled[0] if filled else "raw_data"
    found = len(getattr(tensor, field))
    if field != "raw_data" and tensor.data_type not in _FIELDS[field]:
        what = f"{_type_name(tensor.data_type)} cannot stand in {field}"
        raise ModelError(what, where=where, hint=_AGAIN)
    wanted = count * element_bytes if field == "raw_data" else count
    if found != wanted:
        unit = "bytes" if field == "raw_data" else "elements"
        raise ModelError(
            f"{found} {unit} of data, {wanted} expected for "
            f"{_type_name(tensor.data_type)} {list(tensor.dims)}",
            where=where,
            hint=_AGAIN,
        )


def _check_values(values: Iterable[onnx.ValueInfoProto], path: Path) -> None:
    for value in values:
        kind = value.type.WhichOneof("value")
        if kind not in (None, "tensor_type"):
            what = f"it is a {str(kind).removesuffix('_type')}; partc reads tensors"
            raise ModelError(what, where=f"{path}: value {value.name}")
        known = (0, *BY_ONNX)  # 0: the file does not say
        if value.type.tensor_type.elem_type not in known:
            found = _type_name(value.type.tensor_type.elem_type)
            raise ModelError(
                f"the element type {found} is not one that partc reads", where=f"{path}: value {value.name}"
            )


def _check_nodes(model: onnx.ModelProto, path: Path) -> None:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {_domain(entry): entry.version for entry in model.opset_import} or {"": 1}
    for number, node in enumerate(model.graph.node):
        where = f"{path}: node {node.name or number} ({node.op_type})"
        node.domain = _domain(node)
        _check_attributes(node, where)
        if node.domain == "partc" or not node.op_type:
            raise ModelError("there is no such operator in ONNX", where=where, hint=_AGAIN)
        if not node.output or not node.output[0]:
            raise ModelError("the node has no outputs", where=where, hint=_AGAIN)
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            raise ModelError(f"not a legal node: {_first_line(error)}", where=where, hint=_AGAIN) from None


def _domain(entry: onnx.OperatorSetIdProto | onnx.NodeProto) -> str:
    """ONNX's own domain has two names."""
    return "" if entry.domain == "ai.onnx" else str(entry.domain)


def _check_attributes(node: onnx.NodeProto, where: str) -> None:
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise ModelError(
                f"control flow ({node.op_type}) cannot be cut",
                where=where,
                hint="export the model with fixed control flow, or simplify it first",
            )
        for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
            check_tensor(tensor, f"{where}, attribute {attribute.name}")
        try:
            b"".join((attribute.s, *attribute.strings)).decode()
        except UnicodeDecodeError:
            raise ModelError(f"the attribute {attribute.name} is not UTF-8", where=where) from None


def _check_order(graph: onnx.GraphProto, path: Path) -> None:
    """Every value is made once, and before it is read."""
    made = {tensor.name for tensor in graph.initializer}
    for tensor in (entry.values for entry in graph.sparse_initializer):
        raise ModelError("sparse tensors are not supported", where=f"{path}: tensor {tensor.name}")
    for value in _unique([value.name for value in graph.input], made=(), path=path):
        made.add(value)
    for number, node in enumerate(graph.node):
        where = f"{path}: node {node.name or number} ({node.op_type})"
        for name in node.input:
            if name and name not in made:
                raise ModelError(
                    f"it reads {name!r}, which no node before it computes", where=where, hint=_AGAIN
                )
        made.update(_unique([name for name in node.output if name], made, where))
    if not graph.output:
        raise ModelError("the model has no outputs", where=str(path), hint=_AGAIN)
    for name in _unique([value.name for value in graph.output], made=(), path=path):
        if name not in made:
            raise ModelError(f"no node computes the output {name!r}", where=str(path), hint=_AGAIN)


def _unique(names: list[str], made: Collection[str], path: Path | str) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise ModelError("an input or output has no name", where=str(path), hint=_AGAIN)
        if name in made or name in seen:
            raise ModelError(f"the value {name!r} is computed twice", where=str(path), hint=_AGAIN)
        seen.add(name)
        yield name


def _type_name(number: int) -> str:
    names = {value: key.lower() for key, value in TensorProto.DataType.items()}
    return str(names.get(number, number))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
