"""Element types, sizes and small contents of one node's outputs, in every sample.

Concrete sizes go through ONNX's own shape inference and small tensors through ONNX's reference, so hardly an operator
of the standard needs a rule here; those of the `partc` domain have theirs in `partc.ir.operators`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import shape_inference

from partc.format.dims import Dim
from partc.ir.effects import is_random
from partc.ir.evaluate import evaluate_node, node_proto, split_op
from partc.ir.graph import Node
from partc.ir.operators import OPERATORS
from partc.ir.operators.operator import MismatchError, Sizes, TypedSizes
from partc.ir.samples import Samples
from partc.ir.types import BY_ONNX, BY_SHORT
from partc.ir.weights import Array
from partc.ir.whole import is_whole, opened

MAX_CONTENT_ELEMENTS = 256
"""Tensors of more elements are never looked into."""

DEPENDS_ON_DATA = "it depends on data"
"""The reason where no fixed size of an input would help."""

_LIKE_FIRST = frozenset(("GroupNormalization",))
"""Operators of the standard whose result is like the first operand, but which ONNX infers nothing for."""

TypedShapes = tuple[str, tuple[Sizes, ...]]
"""Element type of a tensor, and its shape in every sample."""


@dataclass(frozen=True, eq=False)
class Fact:
    """The known facts about a value in every sample. Facts are interned: equal facts are the same object."""

    dtype: str
    shapes: tuple[Sizes, ...]
    """The shape in each sample; they have one rank."""
    contents: tuple[Array, ...] | None = None
    """The elements in each sample, where they follow from sizes and constants."""

    @property
    def has_one_shape(self) -> bool:
        """Whether no size of it depends on a symbol."""
        return all(shape == self.shapes[0] for shape in self.shapes)

    @property
    def is_fixed(self) -> bool:
        """Whether nothing that is known of it depends on a symbol."""
        contents = self.contents
        return self.has_one_shape and (contents is None or all(a is contents[0] for a in contents))

    @property
    def constant(self) -> Array | None:
        """The contents if they are the same whatever the sizes."""
        if self.contents is None or not self.has_one_shape:
            return None
        first = self.contents[0]
        return first if all(a is first or first.tobytes() == a.tobytes() for a in self.contents) else None


class UnknownSizeError(Exception):
    """The sizes of a node's outputs do not follow from those of its inputs; the text says why."""


def node_facts(node: Node, operands: Sequence[Fact | None], samples: Samples, opset: int) -> list[Fact]:
    """Facts about a node's outputs; rounded quotients among their sizes are noted in `samples`.

    Raises:
        UnknownSizeError: it depends on data, or no rule says it.
    """
    runs = _runs(node, operands, len(samples.bindings), opset)
    outputs = [(runs[0][k][0], tuple(run[k][1] for run in runs)) for k in range(len(node.outputs))]
    for _, shapes in outputs:
        if len({len(shape) for shape in shapes}) > 1:
            raise UnknownSizeError("the number of dimensions depends on a size")
    _name_quotients(node, operands, outputs, samples)
    contents = _contents(node, operands, outputs, opset)
    return [Fact(*output, content) for output, content in zip(outputs, contents, strict=True)]


def _runs(node: Node, operands: Sequence[Fact | None], count: int, opset: int) -> list[list[TypedSizes]]:
    """Types and shapes of the outputs, per sample."""
    if node.op in OPERATORS:
        return [_own(node, operands, k) for k in range(count)]
    infer = _whole if is_whole(node.op) else _standard
    if split_op(node.op)[0] and not is_whole(node.op):
        raise UnknownSizeError(f"no size rule for the operator {node.op}")
    if all(fact is None or fact.is_fixed for fact in operands):
        return [infer(node, operands, 0, opset)] * count
    return [infer(node, operands, k, opset) for k in range(count)]


def _own(node: Node, operands: Sequence[Fact | None], sample: int) -> list[TypedSizes]:
    """Element types and shapes by the signature of an operator of ours, for one sample."""
    try:
        return OPERATORS[node.op].signature(node.attributes).sizes(typed_sizes(operands, sample))
    except MismatchError as error:
        raise UnknownSizeError(str(error)) from error


def typed_sizes(operands: Sequence[Fact | None], sample: int) -> list[TypedSizes | None]:
    """Element types and shapes of operands in one sample; None for one that is left out or not known."""
    return [None if fact is None else (fact.dtype, fact.shapes[sample]) for fact in operands]


def _contents(
    node: Node, operands: Sequence[Fact | None], outputs: Sequence[TypedShapes], opset: int
) -> list[tuple[Array, ...] | None]:
    """The elements of each output in every sample, None where they are too many or do not follow."""
    nothing: list[tuple[Array, ...] | None] = [None] * len(outputs)
    first = operands[0] if operands else None
    if node.op in ("Shape", "Size") and first is not None:
        return [tuple(_size_contents(node, shape) for shape in first.shapes)]
    if is_random(node) or any(fact is not None and fact.contents is None for fact in operands):
        return nothing
    every = [shape for _, shapes in outputs for shape in shapes]
    if any(np.prod(shape, dtype=object) > MAX_CONTENT_ELEMENTS for shape in every):
        return nothing
    if node.op == "Equal" and _undecided(operands):
        return nothing
    runs = _evaluated(node, operands, len(outputs[0][1]), opset)
    return nothing if runs is None else [tuple(run[k] for run in runs) for k in range(len(outputs))]


def _evaluated(
    node: Node, operands: Sequence[Fact | None], count: int, opset: int
) -> list[list[Array]] | None:
    """The outputs as the reference computes them, per sample; None where it cannot."""
    fixed = all(fact is None or fact.is_fixed for fact in operands)
    runs = [
        evaluate_node(node, [_content(fact, k) for fact in operands], opset)
        for k in range(1 if fixed else count)
    ]
    known = [run for run in runs if run is not None]
    if len(known) < len(runs):
        return None
    return known * count if fixed else known


def _name_quotients(
    node: Node, operands: Sequence[Fact | None], outputs: Sequence[TypedShapes], samples: Samples
) -> None:
    """Tell the samples about sizes that are rounded quotients, before anything is fitted to them."""
    first = operands[0] if operands else None
    if first is None:
        return
    if node.op == "Div" and first.dtype in ("i64", "i32"):
        _name_division(operands, samples)
    for _, shapes in outputs:
        if len(shapes[0]) != len(first.shapes[0]) or not samples.symbols:
            continue
        for axis, column in enumerate(zip(*shapes, strict=True)):
            before = samples.dim(tuple(shape[axis] for shape in first.shapes))
            if before is not None and samples.dim(column) is None:
                for text in _quotients(node, operands, axis, before):
                    samples.name(column, text)


def _name_division(operands: Sequence[Fact | None], samples: Samples) -> None:
    left, right = operands[0], operands[1]
    by = None if right is None else right.constant
    if left is None or left.contents is None or by is None or by.size != 1:
        return
    divisor = int(by.reshape(-1)[0])
    for column in zip(*(array.reshape(-1).tolist() for array in left.contents), strict=False):
        dim = samples.dim(column)
        if isinstance(dim, str) and divisor > 0:
            samples.name(tuple(v // divisor for v in column), _quotient(dim, 0, divisor))


def _content(fact: Fact | None, sample: int) -> Array | None:
    return None if fact is None or fact.contents is None else fact.contents[sample]


def _undecided(operands: Sequence[Fact | None]) -> bool:
    """Whether two compared sizes may be equal where no sample is: their difference changes sign."""
    left, right = operands[0], operands[1]
    if left is None or right is None or left.contents is None or right.contents is None:
        return True
    if left.is_fixed and right.is_fixed:
        return False
    pairs = zip(left.contents, right.contents, strict=True)
    signs = np.stack([np.sign(a.astype(np.float64) - b.astype(np.float64)) for a, b in pairs])
    return bool(np.any(signs.min(axis=0) != signs.max(axis=0)))


def _size_contents(node: Node, shape: Sizes) -> Array:
    if node.op == "Size":
        return np.array(int(np.prod(shape)), np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return np.array(shape[int(start) : None if end is None else int(end)], np.int64)  # type: ignore[arg-type]


def _standard(node: Node, operands: Sequence[Fact | None], sample: int, opset: int) -> list[TypedSizes]:
    """Element types and shapes that ONNX's own inference finds for one sample."""
    first = operands[0] if operands else None
    if node.op in _LIKE_FIRST and first is not None:
        return [(first.dtype, first.shapes[sample])]
    outputs = [f"o{index}" for index in range(len(node.outputs))]
    names, types, data = _protos(operands, sample)
    try:
        schema = onnx.defs.get_schema(node.op, opset, "")
        versions = [onnx.helper.make_opsetid("", opset)]
        proto = _spelled_out(node_proto(node, names, outputs), schema)
        found = shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=versions)
    except onnx.defs.SchemaError as error:
        raise UnknownSizeError(f"ONNX opset {opset} has no operator {node.op}") from error
    except (
        *(onnx.checker.ValidationError, shape_inference.InferenceError),
        *(RuntimeError, ValueError, TypeError, OverflowError),
    ) as error:
        raise UnknownSizeError(" ".join(str(error).split())) from error
    return [_type_of(found.get(name)) for name in outputs]


def _spelled_out(proto: onnx.NodeProto, schema: onnx.defs.OpSchema) -> onnx.NodeProto:
    """The node with every default of its operator: ONNX's inference takes others for some (STFT's `onesided` for 0)."""
    given = {attribute.name for attribute in proto.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.type:
            default = proto.attribute.add()
            default.CopyFrom(attribute.default_value)
            default.name = name
    return proto


def _protos(
    operands: Sequence[Fact | None], sample: int
) -> tuple[list[str], dict[str, onnx.TypeProto], dict[str, onnx.TensorProto]]:
    """Names for the operands, `""` for one that is left out; by name their types and the contents that are known."""
    names = ["" if fact is None else f"i{index}" for index, fact in enumerate(operands)]
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name, fact in zip(names, operands, strict=True):
        if fact is None:
            continue
        types[name] = onnx.helper.make_tensor_type_proto(BY_SHORT[fact.dtype].onnx, fact.shapes[sample])
        if fact.contents is not None:
            data[name] = onnx.numpy_helper.from_array(np.asarray(fact.contents[sample], order="C"), name)
    return names, types, data


def _whole(node: Node, operands: Sequence[Fact | None], sample: int, opset: int) -> list[TypedSizes]:
    """The same for a node with graphs inside; the results of two branches must have the same sizes."""
    outputs = [f"o{index}" for index in range(len(node.outputs))]
    names, types, data = _protos(operands, sample)
    proto = opened(node_proto(node, names, outputs))
    inputs = [onnx.ValueInfoProto(name=name, type=kind) for name, kind in types.items() if name not in data]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = onnx.helper.make_graph([proto], "whole", inputs, results, list(data.values()))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise UnknownSizeError(" ".join(str(error).split())) from error
    found = {value.name: value.type for value in inferred.graph.output}
    try:
        return [_type_of(found.get(name)) for name in outputs]
    except UnknownSizeError as error:
        raise UnknownSizeError(f"{error}: the graphs inside do not give one size") from None


def _type_of(found: onnx.TypeProto | None) -> TypedSizes:
    tensor = None if found is None else found.tensor_type
    if tensor is None or tensor.elem_type not in BY_ONNX or not tensor.HasField("shape"):
        raise UnknownSizeError("it depends on data, or on a size that is not known")
    if not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        raise UnknownSizeError(DEPENDS_ON_DATA)
    if any(dim.dim_value < 0 for dim in tensor.shape.dim):
        raise UnknownSizeError("it would be negative")
    return BY_ONNX[tensor.elem_type].short, tuple(dim.dim_value for dim in tensor.shape.dim)


def _quotients(node: Node, operands: Sequence[Fact | None], axis: int, before: Dim) -> list[str]:
    """Expressions that the size of `axis` may be after a strided operator, most exact first."""
    attributes = node.attributes
    if node.op == "Slice":
        steps = operands[4].constant if len(operands) > 4 and operands[4] is not None else None
        lengths = [] if steps is None else [abs(int(step)) for step in steps.reshape(-1)]
        return [_quotient(before, length - 1, length) for length in lengths]
    spatial = axis - 2
    strides = attributes.get("strides")
    stride = int(strides[spatial]) if isinstance(strides, tuple) and spatial >= 0 else 1
    if spatial < 0 or stride == 1:
        return []
    weight = operands[1].shapes[0] if len(operands) > 1 and operands[1] is not None else ()
    kernel, pads = attributes.get("kernel_shape", weight[2:]), attributes.get("pads", ())
    if not isinstance(kernel, tuple) or not isinstance(pads, tuple) or len(kernel) <= spatial:
        return [_quotient(before, stride - 1, stride)]
    dilations = attributes.get("dilations", ())
    dilation = int(dilations[spatial]) if isinstance(dilations, tuple) and dilations else 1
    padding = int(pads[spatial]) + int(pads[spatial + len(pads) // 2]) if pads else 0
    offset = padding - dilation * (int(kernel[spatial]) - 1) - 1 + stride
    return [_quotient(before, o, stride) for o in (offset, offset + stride - 1, stride - 1)]


def _quotient(dim: Dim, offset: int, divisor: int) -> str:
    if offset == 0:
        return f"{dim}//{divisor}" if str(dim).isidentifier() else f"({dim})//{divisor}"
    return f"({dim} {'+' if offset > 0 else '-'} {abs(offset)})//{divisor}"
