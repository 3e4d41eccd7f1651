"""Checks of an ONNX file before anything of it is used: every complaint names the tensor, the node or the value.

The file may be damaged, written by hand or meant to do harm. What is checked here is what the import, the target and
onnxruntime rely on:

| part | rule |
| --- | --- |
| tensors | an element type that partc has, sizes of at least 0, data of exactly that size |
| nodes | legal by the schema of their operator, with UTF-8 texts; graphs inside of `If`, `Loop` and `Scan` likewise |
| values | made once, before they are read; inputs, outputs and nodes have names |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import onnx
from onnx import AttributeProto, TensorProto

from partc.errors import ModelError
from partc.ir.operators import DOMAIN
from partc.ir.types import BY_ONNX
from partc.ir.whole import CONTROL_FLOW, graphs_of
from partc.ir.whole import DOMAIN as WHOLE

_AGAIN = "export or download it again"
_MOST_BYTES = 2**62
_OWN_DOMAINS = (DOMAIN, WHOLE)
"""Domains of operators that partc itself writes."""
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
    _check_graph(model.graph, _Checker(model), path)
    _check_order(model.graph, path)
    if not model.graph.output:
        raise ModelError("the model has no outputs", where=str(path), hint=_AGAIN)


def _check_graph(graph: onnx.GraphProto, checker: _Checker, path: Path) -> None:
    for tensor in graph.initializer:
        check_tensor(tensor, f"{path}: tensor {tensor.name}")
    _check_values([*graph.input, *graph.output, *graph.value_info], path)
    _check_nodes(graph, checker, path)


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


class _Checker:
    """onnx's own check of a node."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._context = onnx.checker.C.CheckerContext()
        self._context.ir_version = model.ir_version
        self._context.opset_imports = {_domain(entry): entry.version for entry in model.opset_import} or {
            "": 1
        }

    def check(self, node: onnx.NodeProto) -> None:
        """Raises onnx's ValidationError.

        Graphs inside are checked by themselves: onnx would miss what they read from outside.
        """
        plain = node
        if graphs_of(node):
            plain = onnx.NodeProto()
            plain.CopyFrom(node)
            for _, body in graphs_of(plain):
                del body.node[:], body.initializer[:], body.output[:], body.value_info[:]
        onnx.checker.check_node(plain, self._context)


def _check_nodes(graph: onnx.GraphProto, checker: _Checker, path: Path) -> None:
    for number, node in enumerate(graph.node):
        where = f"{path}: node {node.name or number} ({node.op_type})"
        node.domain = _domain(node)
        _check_attributes(node, where)
        if node.domain in _OWN_DOMAINS or not node.op_type:
            raise ModelError("there is no such operator in ONNX", where=where, hint=_AGAIN)
        if not node.output or not node.output[0]:
            raise ModelError("the node has no outputs", where=where, hint=_AGAIN)
        for _, body in graphs_of(node):
            _check_graph(body, checker, path)
        try:
            checker.check(node)
        except onnx.checker.ValidationError as error:
            raise ModelError(f"not a legal node: {_first_line(error)}", where=where, hint=_AGAIN) from None


def _domain(entry: onnx.OperatorSetIdProto | onnx.NodeProto) -> str:
    """ONNX's own domain has two names."""
    return "" if entry.domain == "ai.onnx" else str(entry.domain)


def _check_attributes(node: onnx.NodeProto, where: str) -> None:
    has_graphs = any(
        attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for attribute in node.attribute
    )
    if has_graphs and (node.domain or node.op_type not in CONTROL_FLOW):
        raise ModelError(f"{node.op_type} cannot have a graph inside", where=where, hint=_AGAIN)
    for attribute in node.attribute:
        for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
            check_tensor(tensor, f"{where}, attribute {attribute.name}")
        try:
            b"".join((attribute.s, *attribute.strings)).decode()
        except UnicodeDecodeError:
            raise ModelError(f"the attribute {attribute.name} is not UTF-8", where=where) from None


def _check_order(graph: onnx.GraphProto, path: Path, outer: Collection[str] = ()) -> None:
    """Every value is made once, and before it is read; `outer`: those that a graph inside of a node may read, too."""
    made = {*outer, *(tensor.name for tensor in graph.initializer)}
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
        for _, body in graphs_of(node):
            _check_order(body, path, made)
        made.update(_unique([name for name in node.output if name], made, where))
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
