"""`partc.Attention`: attention over a cache or over the rows of the step, in every form that models use.

Its costs are also those of ONNX's `Attention`, whose query may hide its heads in the last axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from partc.format.dims import evaluate
from partc.ir.graph import Node, Value
from partc.ir.operators.operator import AttributeSpec, Operator, Signature, Tensor
from partc.ir.operators.update_state import is_cache
from partc.ir.weights import Array
from partc.ir.workload import Step

MASK = 4
"""Place of the mask among the operands."""


@dataclass(frozen=True)
class Visibility:
    """The rule that says which keys a query sees, by their absolute positions."""

    causal: bool = True
    """Key j is visible to query i only if j <= i; a window or a chunk asks for it too."""
    window: int = 0
    """Key j is visible to query i only if i - window < j; 0: no window."""
    chunk: int = 0
    """Key j is visible to query i only if i // chunk == j // chunk; 0: no chunks."""

    @property
    def hides(self) -> bool:
        """Whether any key can be hidden."""
        return self.causal or self.window > 0 or self.chunk > 0

    def visible(self, query: Any, key: Any) -> Any:
        """Whether each key is seen by each query: arrays or tensors of positions, which broadcast; it must hide."""
        result = key <= query
        if self.window:
            result = result & (key > query - self.window)
        if self.chunk:
            result = result & (key // self.chunk == query // self.chunk)
        return result


def mask_of(node: Node) -> Value | None:
    """The mask of a node of `partc.Attention`."""
    return node.inputs[MASK] if len(node.inputs) > MASK else None


@dataclass(frozen=True)
class Rule:
    """The attributes of an attention."""

    scale: float
    softcap: float
    """0: the scores are not capped."""
    visibility: Visibility


def rule_of(node: Node) -> Rule:
    """The attributes of a node of `partc.Attention`, with the defaults of those that are left out."""
    return _rule(ATTENTION.numbers(node.attributes))


def _rule(numbers: Mapping[str, int | float]) -> Rule:
    visibility = Visibility(bool(numbers["causal"]), int(numbers["window"]), int(numbers["chunk"]))
    return Rule(float(numbers["scale"]), float(numbers["softcap"]), visibility)


def flops(node: Node, step: Step) -> int:
    """Both products over the visible keys, and a softmax of 8 operations a score."""
    rows = _visible_rows(node, step)
    ends = node.operand(0).elements(step.sizes) + node.outputs[0].elements(step.sizes)
    return 2 * rows * ends + 8 * rows * _queries(node, step)


def moved_bytes(node: Node, step: Step) -> int:
    """Queries, the visible rows of keys and values, the visible columns of a mask, and the result."""
    query, key, value = (node.operand(place) for place in range(3))
    assert key.shape is not None
    masks = [v for v in node.inputs[3:] if v is not None and v.shape and v.shape[-1] == key.shape[-2]]
    own = node.outputs[0].bytes(step.sizes) + query.bytes(step.sizes)
    return own + seen_bytes(node, step, [key, value, *masks])


def seen_bytes(node: Node, step: Step, values: Sequence[Value]) -> int:
    """The bytes of the visible rows, or columns of a mask, of `values`, each of which has one for every key."""
    query, key = node.operand(0), node.operand(1)
    assert query.shape is not None
    assert key.shape is not None
    sequence, held = (max(1, evaluate(shape[-2], step.sizes)) for shape in (query.shape, key.shape))
    # A window slides over the queries of the step, so that together they see a few rows more than one does.
    seen = min(_rows(node, step), _visible_rows(node, step) + sequence - 1)
    return sum(value.bytes(step.sizes) * seen // held for value in values)


def scratch_bytes(node: Node, step: Step) -> int:
    """A float32 score for every query and key, or three copies of the step's queries, keys and values; the larger."""
    # Kernels that go through the keys block by block hold no scores, but operands packed, turned and rotated.
    made = sum(_new_rows(node.operand(place)).bytes(step.sizes) for place in range(3))
    return max(_queries(node, step) * _rows(node, step) * 4, 3 * made)


def _new_rows(value: Value) -> Value:
    """The part of keys or values that the step itself makes."""
    return value.producer.operand(1) if is_cache(value) and value.producer else value


def _visible_rows(node: Node, step: Step) -> int:
    """Keys that one query looks at: those in the cache, or in its window or chunk."""
    limits = [node.attributes.get(name) for name in ("window", "chunk")]
    return min([_rows(node, step), *(limit for limit in limits if isinstance(limit, int) and limit > 0)])


def _rows(node: Node, step: Step) -> int:
    key = node.operand(1)
    assert key.shape is not None
    rows = evaluate(key.shape[-2], step.sizes)
    return min(rows, step.context) if is_cache(key) else rows


def _queries(node: Node, step: Step) -> int:
    """Query vectors of all heads and sequences."""
    query = node.operand(0)
    assert query.shape is not None
    heads = node.attributes.get("q_num_heads", 1) if len(query.shape) == 3 else 1
    vectors = query.elements(step.sizes) // max(1, evaluate(query.shape[-1], step.sizes))
    return vectors * (heads if isinstance(heads, int) else 1)


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    """Computed in double precision."""
    query, key, value, position, mask, sinks = operands
    assert query is not None
    assert key is not None
    assert value is not None
    rule, group = _rule(attributes), query.shape[1] // key.shape[1]
    q, k, v = (array.astype(np.float64) for array in (query, key, value))
    scores = np.matmul(q * rule.scale, np.repeat(k, group, 1).swapaxes(2, 3))
    if rule.softcap:
        scores = rule.softcap * np.tanh(scores / rule.softcap)
    hidden = np.logical_not(_seen(rule.visibility, position, *scores.shape[2:]))
    if mask is not None and mask.dtype == np.bool_:
        hidden = hidden | np.logical_not(mask)
    elif mask is not None:
        scores = scores + mask.astype(np.float64)
    scores = np.where(hidden, -np.inf, scores)
    weights = _softmax(scores, sinks)
    return [np.matmul(weights, np.repeat(v, group, 1)).astype(query.dtype)]


def _seen(visibility: Visibility, position: Array | None, rows: int, keys: int) -> Any:
    """Bool [batch or 1, 1, rows, keys]; without positions the step begins at 0."""
    start = np.zeros(1, np.int64) if position is None else position.astype(np.int64)
    i = start[:, None, None, None] + np.arange(rows)[:, None]
    j = np.arange(keys)
    return visibility.visible(i, j) if visibility.hides else np.broadcast_to(True, (1, 1, rows, keys))


def _softmax(scores: Any, sinks: Array | None) -> Any:
    """Over the last axis, with the score of a sink beside those of the keys; a row that sees nothing is zero."""
    column = np.full((1, 1, 1, 1), -np.inf) if sinks is None else sinks.astype(np.float64)[:, None, None]
    largest = np.maximum(scores.max(-1, keepdims=True), column)
    largest = np.where(np.isfinite(largest), largest, 0)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True) + np.exp(column - largest)
    return weights / np.where(total == 0, 1, total)


ATTENTION = Operator(
    name="partc.Attention",
    summary="Attention of the queries of this step over the keys and values of a cache, or of the step itself.",
    signatures=(
        Signature(
            operands=(
                Tensor("query", "T", "batch, heads, rows, d", "the queries of this step"),
                Tensor("key", "T", "batch, kv_heads, keys, d", "heads / kv_heads heads of queries share one"),
                Tensor("value", "T", "batch, kv_heads, keys, e", "a value for every key"),
                Tensor("position", "i64", "batch", "place of the first query; 0 where it is left out", True),
                Tensor("mask", "M", "1|batch, 1|heads, 1|rows, 1|keys", "true: seen; floats are added", True),
                Tensor("sinks", "T", "heads", "a score beside those of the keys, with no value", True),
            ),
            results=(Tensor("out", "T", "batch, heads, rows, e", "a weighted mean of values a query"),),
        ),
    ),
    attributes=(
        AttributeSpec("scale", float, None, "factor of the products of queries and keys"),
        AttributeSpec("causal", int, 0, "1: key j is seen by query i only if j <= i"),
        AttributeSpec("window", int, 0, "more than 0: only if i - window < j <= i"),
        AttributeSpec("chunk", int, 0, "more than 0: only if i // chunk == j // chunk and j <= i"),
        AttributeSpec("softcap", float, 0.0, "more than 0: scores become softcap * tanh(score / softcap)"),
    ),
    formula="""\
score[b, h, s, j] = softcap(scale * sum over c of query[b, h, s, c] * key[b, h // group, j, c]) + mask[b, h, s, j]
weight[b, h, s]   = softmax over j of score[b, h, s, j], the sink of h among the scores, hidden keys left out
out[b, h, s]      = sum over j of weight[b, h, s, j] * value[b, h // group, j]
group = heads / kv_heads; query s is at place i = position[b] + s, key j at place j
causal, window, chunk and a boolean mask hide keys""",
    writes=(),
    flops=flops,
    moved_bytes=moved_bytes,
    scratch_bytes=scratch_bytes,
    reference=_reference,
)
