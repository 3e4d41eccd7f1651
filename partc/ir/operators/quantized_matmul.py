"""`partc.QuantizedMatMul`: a product with a matrix of quantised weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from partc.ir.graph import Node
from partc.ir.operators.costs import no_scratch
from partc.ir.operators.operator import Operator, Signature, Tensor
from partc.ir.operators.quantized import ATTRIBUTES, FORMS, matrix_of, product_flops
from partc.ir.weights import Array
from partc.ir.workload import Step


def product(
    x: Array,
    data: Array,
    scales: Array,
    attributes: Mapping[str, int | float],
    offsets: Array | None = None,
) -> Array:
    """X · Wᵀ in the type of x; what fills up the last block of a row is cut off."""
    whole = matrix_of(data, scales, attributes)
    if offsets is not None:
        whole += np.repeat(offsets.astype(np.float32), int(attributes["block"]), axis=1)
    matrix = whole[:, : x.shape[-1]].astype(x.dtype)
    return np.asarray(np.matmul(x, matrix.T), x.dtype)


def _moved_bytes(node: Node, step: Step) -> int:
    """Operands and result."""
    return sum(value.bytes(step.sizes) for value in dict.fromkeys([*node.operands, *node.outputs]))


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    x, data, scales, *others = operands
    assert x is not None
    assert data is not None
    assert scales is not None
    return [product(x, data, scales, attributes, others[0] if others else None)]


QUANTIZED_MATMUL = Operator(
    name="partc.QuantizedMatMul",
    summary="A product with a matrix of weights that is stored in 4 or 8 bits.",
    signatures=tuple(
        Signature(
            operands=(
                Tensor("x", "T", "..., K", "activations"),
                *form.operands,
                *form.offsets,
            ),
            results=(Tensor("y", "T", "..., N", "the product"),),
            where=form.where,
        )
        for form in FORMS
    ),
    attributes=ATTRIBUTES,
    formula="""\
y[..., n] = sum over k < K of x[..., k] * w[n, k]
w[n, k]   = (value[n, k] - 8) * scales[n, k // block]   with 4 bits; even k in the low half of a byte;
w[n, k]   = data[n, k] * scales[n]                      with 8 bits
w[n, k]   = data[n, k // block, k % block] * scales[n, k // block]
                                                        with 8 bits in blocks
            + offsets[n, k // block]                    where there are any""",
    writes=(),
    flops=product_flops,
    moved_bytes=_moved_bytes,
    scratch_bytes=no_scratch,
    reference=_reference,
)
