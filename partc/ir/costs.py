"""What a node costs at given sizes: floating-point operations, and bytes that it moves through memory.

Exact for products and attention (2 · m · n · k); an elementwise or reducing operator counts a small
constant per element. A buffer of `partc.UpdateState` costs what is valid in it, not its whole length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from partc.format.dims import element_count, evaluate
from partc.ir.graph import ModelInfo, Node, State, Value


@dataclass(frozen=True)
class Step:
    """One kind of step of the workload: a prefill, or one decoded token."""

    name: str
    sizes: Mapping[str, int]
    """Value of every symbol."""
    context: int
    """Tokens that are valid in the caches when the step ends."""


@dataclass(frozen=True)
class NodeCost:
    """What one node costs in one step."""

    flops: int
    moved_bytes: int
    """Read and written: operands, results, the valid rows of states."""


UNMOVED = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size"})
"""Operators that look at the same bytes in another way, or at none."""
ATTENTION = frozenset({"partc.Attention", "Attention"})
UPDATE_STATE = "partc.UpdateState"
QUANTIZED_MATMUL = "partc.QuantizedMatMul"
QUANTIZED_GATHER = "partc.QuantizedGather"
QUANTIZED_EXPERTS = "partc.QuantizedExperts"
_PICKS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Split"})
_MOVES = UNMOVED | _PICKS | {
    UPDATE_STATE, "Transpose", "Concat", "Cast", "Expand", "Tile", "Pad", "Where", "Constant",
    "ConstantOfShape",
    "ScatterElements", "ScatterND", "TensorScatter", "Range", "Trilu", "EyeLike", "OneHot",
}  # fmt: skip
_PER_OUTPUT = {
    **dict.fromkeys(
        ("Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Erf", "Gelu", "Swish", "Mish", "Softplus"), 8
    ),
    **dict.fromkeys(("Div", "Sqrt", "Reciprocal", "Pow"), 4),
    **dict.fromkeys(
        ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "GroupNormalization"), 8
    ),
    **dict.fromkeys(("SimplifiedLayerNormalization", "SkipLayerNormalization", "BatchNormalization"), 8),
    "RotaryEmbedding": 3,
}
"""Operations per element of the result; 1 for any operator that is listed nowhere."""


def workload(info: ModelInfo) -> list[Step]:
    """The steps that the plan is made for: one batch of prompts, then a token of each halfway through the answer.

    Symbols other than `batch` and `sequence` stand for the largest value that the model gives them.
    """
    length = info.dims.get("sequence", info.max_sequence)
    prompt = max(1, min(info.prompt, length))
    batch = info.batch or 1
    prefill = Step("prefill", {**info.dims, "batch": batch, "sequence": prompt}, prompt)
    if not info.has_states:
        return [prefill]
    context = max(1, min(info.prompt + info.generate // 2, info.max_sequence))
    return [prefill, Step("decode", {**info.dims, "batch": batch, "sequence": 1}, context)]


def settings(info: ModelInfo) -> dict[str, str | int]:
    """What a user has set that times depend on, by its name in model.yaml."""
    return {
        "model": info.name,
        "dtype": info.dtype,
        "max_sequence": info.max_sequence,
        "prompt": info.prompt,
        "generate": info.generate,
        "batch": info.batch or 1,
    }


def of_batch(info: ModelInfo, batch: int) -> ModelInfo:
    """The model with its batch decided: the largest, and the one that the plan is best for."""
    return replace(info, max_batch=batch, batch=batch, batches=(), dims={**info.dims, "batch": batch})


def largest(info: ModelInfo, name: str) -> Step:
    """The step of that name in which every size is as large as the model allows; memory must hold then."""
    sizes = {"batch": info.max_batch, "sequence": info.max_sequence, **info.dims}
    return Step(name, {**sizes, "sequence": 1} if name == "decode" else sizes, info.max_sequence)


def node_cost(node: Node, step: Step) -> NodeCost:
    """The cost of one node; its values must be sized; O(operands)."""
    return NodeCost(_flops(node, step), _moved(node, step))


def valid_rows(node: Node, step: Step) -> int:
    """Keys that one query of an attention node looks at: those in the cache, or in its window or chunk."""
    rows = _rows(node, step)
    limits = [
        limit
        for key in ("window", "chunk")
        if isinstance(limit := node.attributes.get(key), int) and limit > 0
    ]
    return min([rows, *limits])


def score_bytes(node: Node, step: Step) -> int:
    """Scratch memory of an attention node: a float32 score for every query and key."""
    return _queries(node, step) * _rows(node, step) * 4


def _rows(node: Node, step: Step) -> int:
    key = _operand(node, 1)
    assert key.shape is not None
    rows = evaluate(key.shape[-2], step.sizes)
    return min(rows, step.context) if is_buffer(key) else rows


def _queries(node: Node, step: Step) -> int:
    """Query vectors of all heads and sequences; a 3-D query hides its heads in its last axis."""
    query = _operand(node, 0)
    assert query.shape is not None
    heads = node.attributes.get("q_num_heads", 1) if len(query.shape) == 3 else 1
    return element_count(query.shape[:-1], step.sizes) * (heads if isinstance(heads, int) else 1)


def is_buffer(value: Value) -> bool:
    """Whether a value is a whole pre-allocated state."""
    return isinstance(value, State) or (value.producer is not None and value.producer.op == UPDATE_STATE)


def _operand(node: Node, index: int) -> Value:
    value = node.inputs[index]
    assert value is not None
    return value


def elements(value: Value, step: Step) -> int:
    """Number of elements."""
    assert value.shape is not None
    return element_count(value.shape, step.sizes)


def _flops(node: Node, step: Step) -> int:
    op = node.op.rpartition(".")[2]
    if node.op in ATTENTION:
        return _attention_flops(node, step)
    if op in _PRODUCTS:
        return 2 * _PRODUCTS[op](node, step)
    if node.op in _MOVES:
        return 0
    if op.startswith(("Reduce", "Arg", "CumSum", "TopK")):
        return elements(_operand(node, 0), step)
    return _PER_OUTPUT.get(op, 1) * elements(node.outputs[0], step)


def _attention_flops(node: Node, step: Step) -> int:
    """Both products over the visible keys, and a softmax of 8 operations a score."""
    rows = valid_rows(node, step)
    products = 2 * rows * (elements(_operand(node, 0), step) + elements(node.outputs[0], step))
    return products + 8 * rows * _queries(node, step)


def _matmul(node: Node, step: Step) -> int:
    shape = _operand(node, 0).shape
    assert shape is not None
    inner = shape[-2] if node.attributes.get("transA") and len(shape) > 1 else shape[-1]
    return elements(node.outputs[0], step) * evaluate(inner, step.sizes)


def _conv(node: Node, step: Step) -> int:
    kernel = _operand(node, 1).shape
    assert kernel is not None
    side = _operand(node, 0) if node.op == "ConvTranspose" else node.outputs[0]
    return elements(side, step) * element_count(kernel[1:], step.sizes)


def _einsum(node: Node, step: Step) -> int:
    """The product of the sizes of all indices that occur."""
    sizes: dict[str, int] = {}
    terms = str(node.attributes.get("equation", "")).partition("->")[0].replace(" ", "").split(",")
    for term, value in zip(terms, node.operands, strict=False):
        letters = re.findall(r"\.\.\.|.", term)
        dims = [evaluate(dim, step.sizes) for dim in value.shape or ()]
        spread = len(dims) - len(letters) + 1
        for letter in letters:
            taken, dims = (dims[:spread], dims[spread:]) if letter == "..." else (dims[:1], dims[1:])
            sizes[letter] = max(sizes.get(letter, 1), math.prod(taken))
    return math.prod(sizes.values())


_PRODUCTS: Mapping[str, Callable[[Node, Step], int]] = {
    "MatMul": _matmul,
    "Gemm": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "MatMulIntegerToFloat": _matmul,
    "DynamicQuantizeMatMul": _matmul,
    "QLinearMatMul": _matmul,
    "MatMulNBits": _matmul,
    "QuantizedMatMul": _matmul,
    "QuantizedExperts": _matmul,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv,
    "Einsum": _einsum,
}
"""Operator without its domain → multiplications with an addition each."""


def _moved(node: Node, step: Step) -> int:
    if node.op in UNMOVED:
        return 0
    if node.op == UPDATE_STATE:
        return 2 * _operand(node, 1).bytes(step.sizes)
    written = sum(value.bytes(step.sizes) for value in node.outputs if value.dtype is not None)
    if node.op in _PICKS:
        rest = sum(value.bytes(step.sizes) for value in list(node.operands)[1:])
        return 2 * written + rest
    if node.op in ATTENTION:
        return written + _attention_reads(node, step)
    if node.op == QUANTIZED_GATHER:
        return written + _quantized_rows(node, step)
    if node.op == QUANTIZED_EXPERTS:
        return written + _expert_reads(node, step)
    return written + sum(value.bytes(step.sizes) for value in dict.fromkeys(node.operands))


def _quantized_rows(node: Node, step: Step) -> int:
    """The rows that are picked, with their scales, and the indices."""
    *table, indices = node.operands
    held = max(1, evaluate((table[0].shape or ())[0], step.sizes))
    rows = sum(value.bytes(step.sizes) for value in table) * elements(indices, step) // held
    return rows + indices.bytes(step.sizes)


def _expert_reads(node: Node, step: Step) -> int:
    """Rows with their choice, and the experts that are chosen: as many as there are rows, until all are."""
    x, chosen, *weights = node.operands
    count = len(weights) // 2
    read = min(count, elements(chosen, step))
    return (
        x.bytes(step.sizes)
        + chosen.bytes(step.sizes)
        + sum(w.bytes(step.sizes) for w in weights) * read // count
    )


def _attention_reads(node: Node, step: Step) -> int:
    """Queries, the visible rows of keys and values, the visible columns of a mask."""
    query, key, value, *rest = node.inputs
    assert query is not None
    assert key is not None
    assert value is not None
    assert key.shape is not None
    sequence = evaluate(_operand(node, 0).shape[-2], step.sizes)  # type: ignore[index]
    held = max(1, evaluate(key.shape[-2], step.sizes))
    # A window slides over the queries of the step, so that together they see a few rows more than one does.
    seen = min(_rows(node, step), valid_rows(node, step) + sequence - 1)
    partial = [key, value, *(v for v in rest if v is not None and v.shape and v.shape[-1] == key.shape[-2])]
    return query.bytes(step.sizes) + sum(v.bytes(step.sizes) * seen // held for v in partial)
