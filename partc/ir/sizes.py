"""Size inference: element type and symbolic shape of every value, and contents of small tensors of sizes.

Every node is run on samples (`partc.ir.samples`): concrete sizes go through ONNX's own shape inference, and
small tensors whose contents follow from sizes and constants alone (targets of Reshape, bounds of Slice) are
computed with ONNX's reference. Expressions in the symbols are fitted to the sizes that come out. So no
operator of the standard needs a rule here; those of the `partc` domain have theirs in `OWN_RULES`.

Cost: nodes with the same operator, attributes and operand sizes are inferred once, so repeated layers are
free; O(nodes) dictionary look-ups beside about 30 µs a distinct node and sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import shape_inference

from partc.dims import Dim, Shape, symbols
from partc.ir.evaluate import RANDOM_OPERATORS, evaluate_node, node_proto, split_op
from partc.ir.graph import Attribute, Constant, Graph, ModelInfo, Node, State, Value
from partc.ir.samples import Samples
from partc.ir.types import BY_NUMPY, BY_ONNX, BY_SHORT
from partc.ir.weights import Array

MAX_CONTENT_ELEMENTS = 256
"""Tensors of more elements are never looked into."""
_SCALES = ((1, 0), (1, 6), (1, 30), (1, 210), (2, 0), (8, 0), (64, 0))
"""(factor, addend) of samples: small sizes; should a node refuse them, larger ones; then multiples."""

Sizes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Fact:
    """What is known of a value in every sample. Facts are interned: equal facts are the same object."""

    dtype: str
    shapes: tuple[Sizes, ...]
    """The shape in each sample; they have one rank."""
    contents: tuple[Array, ...] | None = None
    """The elements in each sample, where they follow from sizes and constants."""

    @property
    def constant(self) -> Array | None:
        """The contents if they are the same whatever the sizes."""
        if self.contents is None or any(shape != self.shapes[0] for shape in self.shapes):
            return None
        first = self.contents[0]
        return first if all(a is first or first.tobytes() == a.tobytes() for a in self.contents) else None


class _UnknownError(Exception):
    """The sizes of a node's outputs do not follow from those of its inputs; the text says why."""


@dataclass(eq=False)
class Inferred:
    """The answer for one graph."""

    samples: Samples
    facts: dict[Value, Fact] = field(default_factory=dict)
    failures: dict[Node, str] = field(default_factory=dict)
    """Nodes without an answer of their own → why."""

    def shape(self, value: Value) -> Shape | None:
        """The symbolic shape, None where it is unknown."""
        fact = self.facts.get(value)
        return None if fact is None else _symbolic(fact.shapes, self.samples)

    def contents(self, value: Value) -> list[Dim] | None:
        """The elements of a small tensor of integers as sizes, flat; None where they are not known."""
        fact = self.facts.get(value)
        if fact is None or fact.contents is None or fact.dtype not in ("i64", "i32"):
            return None
        if any(shape != fact.shapes[0] for shape in fact.shapes):
            return None
        columns = zip(*(array.reshape(-1).tolist() for array in fact.contents), strict=True)
        dims = [self.samples.dim(column) for column in columns]
        return None if None in dims else [dim for dim in dims if dim is not None]

    def constant(self, value: Value) -> Array | None:
        """The contents of a small tensor that does not depend on any size."""
        fact = self.facts.get(value)
        return None if fact is None else fact.constant


class SizeInference:
    """Infers graphs with the same symbols; remembers nodes, so that a second sweep is cheap."""

    def __init__(self, graph: Graph, info: ModelInfo) -> None:
        """Prepare samples for the symbols of the graph's inputs and states, which are at most `info.dims`."""
        given = [*graph.inputs, *graph.states()]
        names = dict.fromkeys(s for v in given for dim in v.shape or () for s in sorted(symbols(dim)))
        self._engines = [
            _Engine(Samples(tuple(names), info.dims, scale, offset), graph.opset, info.max_sequence)
            for scale, offset in _SCALES
        ]

    def infer(self, graph: Graph) -> Inferred:
        """Sizes of all values that can be known; leaves the graph as it is."""
        found: list[Inferred] = []
        for engine in self._engines:
            found.append(engine.infer(graph))
            if not found[-1].failures or not engine.samples.symbols:
                break
        return min(found, key=lambda answer: len(answer.failures))


def assign_sizes(graph: Graph, inferred: Inferred) -> bool:
    """Write what was inferred; what the exporter gave stays where nothing was. True if any value changed."""
    changed = False
    for value in graph.values():
        fact, shape = inferred.facts.get(value), inferred.shape(value)
        new = (fact.dtype if fact else value.dtype, shape if shape is not None else value.shape)
        changed |= new != (value.dtype, value.shape)
        value.dtype, value.shape = new
    return changed


def _symbolic(shapes: Sequence[Sizes], samples: Samples) -> Shape | None:
    dims = [samples.dim(column) for column in zip(*shapes, strict=True)]
    return None if None in dims else tuple(dim for dim in dims if dim is not None)


class _Engine:
    """One set of samples with its cache."""

    def __init__(self, samples: Samples, opset: int, max_sequence: int) -> None:
        self.samples = samples
        self.max_sequence = max_sequence
        self.opset = opset
        self._facts: dict[object, Fact] = {}
        self._nodes: dict[object, list[Fact] | str] = {}
        self._one = len(samples.bindings)

    def infer(self, graph: Graph) -> Inferred:
        answer = Inferred(self.samples)
        for value in [*graph.inputs, *graph.leaves()]:
            self._given(value, answer)
        for node in graph.nodes:
            self._node(node, answer)
        return answer

    def _given(self, value: Value, answer: Inferred) -> bool:
        if isinstance(value, Constant) and value.array is not None:
            answer.facts[value] = self._of_array(value.array)
            return True
        if value.dtype is None or value.shape is None:
            return False
        vectors = [self.samples.vector(dim) for dim in value.shape]
        if None in vectors:
            return False
        rows = zip(*(v for v in vectors if v is not None), strict=True) if vectors else [()] * self._one
        answer.facts[value] = self.intern(value.dtype, tuple(rows))
        return True

    def _of_array(self, array: Array) -> Fact:
        contents = (array,) * self._one if array.size <= MAX_CONTENT_ELEMENTS else None
        return self.intern(BY_NUMPY[array.dtype].short, (array.shape,) * self._one, contents)

    def intern(
        self, dtype: str, shapes: tuple[Sizes, ...], contents: tuple[Array, ...] | None = None
    ) -> Fact:
        raw = None if contents is None else tuple(array.tobytes() for array in contents)
        return self._facts.setdefault((dtype, shapes, raw), Fact(dtype, shapes, contents))

    def _state(self, state: Value | None, new: Fact | None, answer: Inferred) -> None:
        """A cache without sizes has those of what is written to it, and room for `max_sequence` rows."""
        if (
            isinstance(state, State)
            and state not in answer.facts
            and new is not None
            and len(new.shapes[0]) == 4
        ):
            shapes = tuple((*shape[:2], self.max_sequence, shape[3]) for shape in new.shapes)
            answer.facts[state] = self.intern(new.dtype, shapes)

    def _node(self, node: Node, answer: Inferred) -> None:
        if node.op == "partc.UpdateState" and node.inputs[1] is not None:
            self._state(node.inputs[0], answer.facts.get(node.inputs[1]), answer)
        operands = [None if v is None else answer.facts.get(v) for v in node.inputs]
        if any(fact is None and v is not None for fact, v in zip(operands, node.inputs, strict=True)):
            found: list[Fact] | str = "the size of an operand is not known"
        else:
            found = self._remembered(node, operands)
        if not isinstance(found, str):
            answer.facts.update(zip(node.outputs, found, strict=True))
            return
        known = [self._given(output, answer) for output in node.outputs]
        if not all(known):
            answer.failures[node] = found

    def _remembered(self, node: Node, operands: list[Fact | None]) -> list[Fact] | str:
        key = (node.op, attributes_key(node.attributes), len(node.outputs), *map(id, operands))
        if key not in self._nodes:
            try:
                self._nodes[key] = self._outputs(node, operands)
            except _UnknownError as error:
                self._nodes[key] = str(error)
        return self._nodes[key]

    def _outputs(self, node: Node, operands: list[Fact | None]) -> list[Fact]:
        runs = self._runs(node, operands)
        outputs = [(runs[0][k][0], tuple(run[k][1] for run in runs)) for k in range(len(node.outputs))]
        for _, shapes in outputs:
            if len({len(shape) for shape in shapes}) > 1:
                raise _UnknownError("the number of dimensions depends on a size")
        self._name_quotients(node, operands, outputs)
        contents = self._contents(node, operands, outputs)
        return [self.intern(*output, content) for output, content in zip(outputs, contents, strict=True)]

    def _runs(self, node: Node, operands: list[Fact | None]) -> list[list[tuple[str, Sizes]]]:
        if node.op in OWN_RULES:
            present = [fact for fact in operands if fact is not None]
            return [OWN_RULES[node.op]([(f.dtype, f.shapes[k]) for f in present]) for k in range(self._one)]
        if split_op(node.op)[0]:
            raise _UnknownError(f"no size rule for the operator {node.op}")
        if all(fact is None or _is_fixed(fact) for fact in operands):
            return [_standard(node, operands, 0, self.opset)] * self._one
        return [_standard(node, operands, k, self.opset) for k in range(self._one)]

    def _contents(
        self, node: Node, operands: list[Fact | None], outputs: list[tuple[str, tuple[Sizes, ...]]]
    ) -> list[tuple[Array, ...] | None]:
        nothing: list[tuple[Array, ...] | None] = [None] * len(outputs)
        first = operands[0] if operands else None
        if node.op in ("Shape", "Size") and first is not None:
            return [tuple(_size_contents(node, shape) for shape in first.shapes)]
        if (
            any(fact is not None and fact.contents is None for fact in operands)
            or node.op in RANDOM_OPERATORS
        ):
            return nothing
        if any(
            np.prod(shape, dtype=object) > MAX_CONTENT_ELEMENTS for _, shapes in outputs for shape in shapes
        ):
            return nothing
        if node.op == "Equal" and _undecided(operands):
            return nothing
        runs = self._evaluated(node, operands)
        return nothing if runs is None else [tuple(run[k] for run in runs) for k in range(len(outputs))]

    def _evaluated(self, node: Node, operands: list[Fact | None]) -> list[list[Array]] | None:
        if all(fact is None or _is_fixed(fact) for fact in operands):
            once = evaluate_node(node, [_content(fact, 0) for fact in operands], self.opset)
            return None if once is None else [once] * self._one
        runs = [
            evaluate_node(node, [_content(fact, k) for fact in operands], self.opset)
            for k in range(self._one)
        ]
        return None if any(run is None for run in runs) else [run for run in runs if run is not None]

    def _name_quotients(
        self, node: Node, operands: list[Fact | None], outputs: list[tuple[str, tuple[Sizes, ...]]]
    ) -> None:
        """Tell the samples about sizes that are rounded quotients, before anything is fitted to them."""
        first = operands[0] if operands else None
        if first is None:
            return
        if node.op == "Div" and first.dtype in ("i64", "i32"):
            self._name_division(operands)
        for _, shapes in outputs:
            if len(shapes[0]) != len(first.shapes[0]) or not self.samples.symbols:
                continue
            for axis, column in enumerate(zip(*shapes, strict=True)):
                before = self.samples.dim(tuple(shape[axis] for shape in first.shapes))
                if before is not None and self.samples.dim(column) is None:
                    for text in _quotients(node, operands, axis, before):
                        self.samples.name(column, text)

    def _name_division(self, operands: list[Fact | None]) -> None:
        left, right = operands[0], operands[1]
        if (
            left is None
            or right is None
            or left.contents is None
            or right.constant is None
            or right.constant.size != 1
        ):
            return
        divisor = int(right.constant.reshape(-1)[0])
        for column in zip(*(array.reshape(-1).tolist() for array in left.contents), strict=False):
            dim = self.samples.dim(column)
            if isinstance(dim, str) and divisor > 0:
                self.samples.name(tuple(v // divisor for v in column), _quotient(dim, 0, divisor))


def _is_fixed(fact: Fact) -> bool:
    same = all(shape == fact.shapes[0] for shape in fact.shapes)
    return same and (fact.contents is None or all(a is fact.contents[0] for a in fact.contents))


def _content(fact: Fact | None, sample: int) -> Array | None:
    return None if fact is None or fact.contents is None else fact.contents[sample]


def _undecided(operands: list[Fact | None]) -> bool:
    """Whether two compared sizes may be equal where no sample is: their difference changes sign."""
    left, right = operands[0], operands[1]
    if left is None or right is None or left.contents is None or right.contents is None:
        return True
    if _is_fixed(left) and _is_fixed(right):
        return False
    pairs = zip(left.contents, right.contents, strict=True)
    signs = np.stack([np.sign(a.astype(np.float64) - b.astype(np.float64)) for a, b in pairs])
    return bool(np.any(signs.min(axis=0) != signs.max(axis=0)))


def _size_contents(node: Node, shape: Sizes) -> Array:
    if node.op == "Size":
        return np.array(int(np.prod(shape)), np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return np.array(shape[int(start) : None if end is None else int(end)], np.int64)  # type: ignore[arg-type]


def attributes_key(attributes: Mapping[str, Attribute]) -> tuple[tuple[str, object], ...]:
    """Attributes as something to compare and hash; tensors by their bytes."""
    return tuple(
        (key, (str(value.dtype), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value)
        for key, value in sorted(attributes.items(), key=lambda item: item[0])
    )


def _standard(node: Node, operands: list[Fact | None], sample: int, opset: int) -> list[tuple[str, Sizes]]:
    """Element types and shapes that ONNX's own inference finds for one sample."""
    names = ["" if fact is None else f"i{index}" for index, fact in enumerate(operands)]
    outputs = [f"o{index}" for index in range(len(node.outputs))]
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name, fact in zip(names, operands, strict=True):
        if fact is None:
            continue
        types[name] = onnx.helper.make_tensor_type_proto(BY_SHORT[fact.dtype].onnx, fact.shapes[sample])
        if fact.contents is not None:
            data[name] = onnx.numpy_helper.from_array(np.asarray(fact.contents[sample], order="C"))
    try:
        schema = onnx.defs.get_schema(node.op, opset, "")
        versions = [onnx.helper.make_opsetid("", opset)]
        proto = node_proto(node, names, outputs)
        found = shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=versions)
    except onnx.defs.SchemaError as error:
        raise _UnknownError(f"ONNX opset {opset} has no operator {node.op}") from error
    except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise _UnknownError(" ".join(str(error).split())) from error
    return [_type_of(found.get(name), node) for name in outputs]


def _type_of(found: onnx.TypeProto | None, node: Node) -> tuple[str, Sizes]:
    tensor = None if found is None else found.tensor_type
    if tensor is None or tensor.elem_type not in BY_ONNX or not tensor.HasField("shape"):
        raise _UnknownError("it depends on data, or on a size that is not known")
    if not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        raise _UnknownError("it depends on data")
    if any(dim.dim_value < 0 for dim in tensor.shape.dim):
        raise _UnknownError("it would be negative")
    return BY_ONNX[tensor.elem_type].short, tuple(dim.dim_value for dim in tensor.shape.dim)


def _quotients(node: Node, operands: list[Fact | None], axis: int, before: Dim) -> list[str]:
    """Expressions that the size of `axis` may be after a strided operator, most exact first."""
    attributes = node.attributes
    if node.op == "Slice":
        steps = operands[4].constant if len(operands) > 4 and operands[4] is not None else None
        return (
            []
            if steps is None
            else [_quotient(before, abs(int(s)) - 1, abs(int(s))) for s in steps.reshape(-1)]
        )
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


def _attention(operands: list[tuple[str, Sizes]]) -> list[tuple[str, Sizes]]:
    (dtype, query), _, (_, value) = operands[:3]
    if len(query) != 4 or len(value) != 4:
        raise _UnknownError("partc.Attention wants [batch, heads, sequence, d] for query, key and value")
    return [(dtype, (*query[:3], value[3]))]


def _update_state(operands: list[tuple[str, Sizes]]) -> list[tuple[str, Sizes]]:
    return [operands[0]]


def _quantized_matmul(operands: list[tuple[str, Sizes]]) -> list[tuple[str, Sizes]]:
    (dtype, x), (_, data), _ = operands
    return [(dtype, (*x[:-1], data[0]))]


def _quantized_gather(operands: list[tuple[str, Sizes]]) -> list[tuple[str, Sizes]]:
    """Two values a byte where the data has blocks."""
    (_, data), (dtype, _), (_, indices) = operands
    columns = data[1] * data[2] * 2 if len(data) == 3 else data[1]
    return [(dtype, (*indices, columns))]


OWN_RULES: dict[str, Callable[[list[tuple[str, Sizes]]], list[tuple[str, Sizes]]]] = {
    "partc.Attention": _attention,
    "partc.UpdateState": _update_state,
    "partc.QuantizedMatMul": _quantized_matmul,
    "partc.QuantizedGather": _quantized_gather,
}
"""Sizes of our own operators: (type, shape) of the operands that are there → of the outputs."""
