"""`partc.QuantizedAttention`: attention over keys and values of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from partc.ir.graph import Node
from partc.ir.operators.attention import ATTENTION, flops, moved_bytes, scratch_bytes, seen_bytes
from partc.ir.operators.operator import Operator, Signature, Tensor
from partc.ir.weights import Array
from partc.ir.workload import Step

KEYS = "batch, kv_heads, keys, d"
VALUES = "batch, kv_heads, keys, e"
SCALES = "batch, kv_heads, keys, 1"


def _moved_bytes(node: Node, step: Step) -> int:
    """Queries, the visible rows of keys, values and scales, the visible columns of a mask, and the result."""
    return moved_bytes(node, step) + seen_bytes(node, step, [node.operand(3), node.operand(4)])


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    """The attention over the numbers that keys and values stand for."""
    query, key, value, key_scales, value_scales, *others = operands
    assert query is not None
    assert key is not None
    assert value is not None
    assert key_scales is not None
    assert value_scales is not None
    pairs = ((key, key_scales), (value, value_scales))
    numbers = [data.astype(np.float64) * scales.astype(np.float64) for data, scales in pairs]
    return ATTENTION.reference([query, *numbers, *others], attributes)


QUANTIZED_ATTENTION = Operator(
    name="partc.QuantizedAttention",
    summary="Attention of the queries of this step over a cache of 8 bits.",
    signatures=(
        Signature(
            operands=(
                ATTENTION.signatures[0].operands[0],
                Tensor("key", "i8", KEYS, "heads / kv_heads heads of queries share one"),
                Tensor("value", "i8", VALUES, "a value for every key"),
                Tensor("key_scales", "T", SCALES, "the factor of every key"),
                Tensor("value_scales", "T", SCALES, "the factor of every value"),
                *ATTENTION.signatures[0].operands[3:],
            ),
            results=ATTENTION.signatures[0].results,
        ),
    ),
    attributes=ATTENTION.attributes,
    formula="""\
partc.Attention(query, key * key_scales, value * value_scales, position, mask, sinks)""",
    writes=(),
    flops=flops,
    moved_bytes=_moved_bytes,
    scratch_bytes=scratch_bytes,
    reference=_reference,
)
