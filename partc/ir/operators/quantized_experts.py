"""`partc.QuantizedExperts`: every row multiplied with the matrix of the expert that it chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from partc.ir.graph import Node
from partc.ir.operators.costs import no_scratch
from partc.ir.operators.operator import Operator, Signature, Tensor
from partc.ir.operators.quantized import ATTRIBUTES, FORMS, product_flops
from partc.ir.operators.quantized_matmul import product
from partc.ir.weights import Array
from partc.ir.workload import Step


def _moved_bytes(node: Node, step: Step) -> int:
    """Rows, choices, result, and the experts that are chosen: as many as there are rows, until all are."""
    x, chosen, *weights = node.operands
    count = len(weights) // 2
    read = min(count, chosen.elements(step.sizes))
    ends = sum(value.bytes(step.sizes) for value in (x, chosen, node.outputs[0]))
    return ends + sum(weight.bytes(step.sizes) for weight in weights) * read // count


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    x, chosen, *weights = (array for array in operands if array is not None)
    result = np.empty((len(x), len(weights[0])), x.dtype)
    for row, expert in enumerate(chosen.astype(int)):
        data, scales = weights[2 * expert : 2 * expert + 2]
        result[row] = product(x[row], data, scales, attributes)
    return [result]


QUANTIZED_EXPERTS = Operator(
    name="partc.QuantizedExperts",
    summary="A product of every row with the matrix of the expert that it chose, stored in 4 or 8 bits.",
    signatures=tuple(
        Signature(
            operands=(
                Tensor("x", "T", "rows, K", "activations"),
                Tensor("chosen", "I", "rows", "the expert of each row"),
            ),
            repeated=form.operands,
            results=(Tensor("y", "T", "rows, N", "the products"),),
            where=form.where,
        )
        for form in FORMS
    ),
    attributes=ATTRIBUTES,
    formula="""\
y[r, n] = sum over k < K of x[r, k] * w[n, k]   with the w of expert chosen[r], as in partc.QuantizedMatMul""",
    writes=(),
    flops=product_flops,
    moved_bytes=_moved_bytes,
    scratch_bytes=no_scratch,
    reference=_reference,
)
