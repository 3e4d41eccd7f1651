"""`partc.CausalConv`: a convolution over the last rows of every channel, which a state keeps from step to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from partc.ir.graph import Node
from partc.ir.operators.costs import all_bytes, no_scratch
from partc.ir.operators.operator import Operator, Signature, StateWrite, Tensor
from partc.ir.weights import Array
from partc.ir.workload import Step


def _flops(node: Node, step: Step) -> int:
    """A product and a sum for every weight and row."""
    x, weight = node.operand(1), node.operand(2)
    assert weight.shape is not None
    return 2 * x.elements(step.sizes) * int(weight.shape[-1])


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    state, x, weight, length, bias = operands
    assert state is not None and x is not None and weight is not None and length is not None
    seen = np.concatenate([state, x], axis=1)
    rows, kept = x.shape[1], state.shape[1]
    out = sum(seen[:, k : k + rows] * weight[:, k] for k in range(weight.shape[1]))
    new = np.stack([sequence[n : n + kept] for sequence, n in zip(seen, length, strict=True)])
    return [(out + (0 if bias is None else bias)).astype(x.dtype), new]


CAUSAL_CONV = Operator(
    name="partc.CausalConv",
    summary="Convolves every channel with its own weights, over rows of this step and the last ones before it.",
    signatures=(
        Signature(
            operands=(
                Tensor("state", "T", "batch, kernel-1, channels", "the last rows before this step"),
                Tensor("x", "T", "batch, rows, channels", "the rows of this step"),
                Tensor("weight", "T", "channels, kernel", "the last column belongs to the row itself"),
                Tensor(
                    "length", "i64", "batch", "valid rows of this step; the others do not enter the state"
                ),
                Tensor("bias", "T", "channels", "added to every row", True),
            ),
            results=(
                Tensor("out", "T", "batch, rows, channels", "the sums"),
                Tensor("last", "T", "batch, kernel-1, channels", "the new contents of the state"),
            ),
        ),
    ),
    attributes=(),
    formula="""\
seen[b]      = the rows of state[b], then those of x[b]
out[b, s, c] = bias[c] + sum over k of weight[c, k] * seen[b, s + k, c]
last[b, j]   = seen[b, length[b] + j]""",
    writes=(StateWrite(operand=0, result=1, kind="whole"),),
    flops=_flops,
    moved_bytes=all_bytes,
    scratch_bytes=no_scratch,
    reference=_reference,
)
