"""`partc.LinearAttention`: attention whose past is one matrix a head, which every token changes and then reads.

One recurrence in several clothes, by what decays and whether the old value of a key is taken out first:

| model | keys, values | decay | beta |
| --- | --- | --- | --- |
| Mamba 1 | a key of all heads; one number a head | of every key channel | no |
| Mamba 2 (SSD) | a key for a group of heads | of the head | no |
| lightning attention | a key a head | a constant of the head | no |
| gated delta rule | a key a head, of length 1 | of the head | yes |
| Kimi delta attention | a key a head, of length 1 | of every key channel | yes |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partc.ir.graph import Node
from partc.ir.operators.costs import all_bytes, no_scratch
from partc.ir.operators.operator import AttributeSpec, Operator, Signature, StateWrite, Tensor
from partc.ir.weights import Array
from partc.ir.workload import Step

BETA = 6
"""The place of the operand `beta`."""


def has_beta(node: Node) -> bool:
    """Whether it follows the delta rule: what the state holds for a key is taken out before the new value comes in."""
    return len(node.inputs) > BETA and node.inputs[BETA] is not None


def _flops(node: Node, step: Step) -> int:
    """A decay, an outer product and a product with the query for every number of the state; two more with beta."""
    state, value = node.operand(0), node.operand(3)
    assert state.shape is not None
    per_row = value.elements(step.sizes) * int(state.shape[-2])
    return (8 if has_beta(node) else 5) * per_row


def _there(operand: Array | None) -> Any:
    assert operand is not None
    return operand


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    given, query, key, value, decay, length = (_there(operand) for operand in operands[:BETA])
    beta = operands[BETA]
    state, shared = given.copy(), value.shape[2] // key.shape[2]
    out = np.zeros_like(value)
    for s in range(value.shape[1]):
        q, k = (np.repeat(each[:, s], shared, axis=1) for each in (query, key))
        now = state * np.exp(decay[:, s])[..., None]
        new = value[:, s]
        if beta is not None:
            new = (new - np.einsum("bhkv,bhk->bhv", now, k)) * beta[:, s, :, None]
        now = now + k[..., None] * new[:, :, None]
        valid = (s < length)[:, None, None, None]
        state = np.where(valid, now, state)
        out[:, s] = np.einsum("bhkv,bhk->bhv", state, q) * attributes["scale"]
    return [out, state]


LINEAR_ATTENTION = Operator(
    name="partc.LinearAttention",
    summary="Attention over all tokens so far, which a state of fixed size remembers as sums of products.",
    signatures=(
        Signature(
            operands=(
                Tensor("state", "f32", "batch, heads, k, v", "a matrix for every head"),
                Tensor(
                    "query", "f32", "batch, rows, groups, k", "heads / groups heads share a query and a key"
                ),
                Tensor("key", "f32", "batch, rows, groups, k", "where the new values come in"),
                Tensor("value", "f32", "batch, rows, heads, v", "a value for every head"),
                Tensor("decay", "f32", "batch, rows, heads, 1|k", "logarithm of what stays of the state"),
                Tensor("length", "i64", "batch", "valid rows of this step; the others leave the state alone"),
                Tensor("beta", "f32", "batch, rows, heads", "how much of the old value is replaced", True),
            ),
            results=(
                Tensor("out", "f32", "batch, rows, heads, v", "what the queries read"),
                Tensor("last", "f32", "batch, heads, k, v", "the new contents of the state"),
            ),
        ),
    ),
    attributes=(AttributeSpec("scale", float, None, "factor of the result"),),
    formula="""\
for every row s in order, from S = state[b, h], g = h // (heads / groups):
    S = exp(decay[b, s, h]) * S, row by row where every key channel has a decay of its own
    u = value[b, s, h]; with beta: u = beta[b, s, h] * (value[b, s, h] - S^T key[b, s, g])
    S = S + key[b, s, g] u^T
    out[b, s, h] = scale * S^T query[b, s, g]
rows from length[b] on leave S alone; last[b, h] is the S behind the last row""",
    writes=(StateWrite(operand=0, result=1, kind="whole"),),
    flops=_flops,
    moved_bytes=all_bytes,
    scratch_bytes=no_scratch,
    reference=_reference,
)
