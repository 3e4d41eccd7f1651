"""`partc.QuantizedGather`: rows of a quantised table, such as the embeddings of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from partc.format.dims import evaluate
from partc.ir.graph import Node
from partc.ir.operators.costs import no_scratch
from partc.ir.operators.operator import Operator, Signature, Tensor
from partc.ir.operators.quantized import ATTRIBUTES, FORMS, matrix_of
from partc.ir.weights import Array
from partc.ir.workload import Step


def _flops(node: Node, step: Step) -> int:
    """One operation for every number of the result."""
    return node.outputs[0].elements(step.sizes)


def _moved_bytes(node: Node, step: Step) -> int:
    """The rows that are picked, with their scales, the indices, and the result."""
    data, scales, indices = (node.operand(place) for place in range(3))
    assert data.shape is not None
    picked, held = indices.elements(step.sizes), max(1, evaluate(data.shape[0], step.sizes))
    rows = (data.bytes(step.sizes) + scales.bytes(step.sizes)) * picked // held
    return node.outputs[0].bytes(step.sizes) + rows + indices.bytes(step.sizes)


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    data, scales, indices = operands
    assert data is not None
    assert scales is not None
    assert indices is not None
    rows = indices.astype(np.int64)
    found = matrix_of(data[rows], scales[rows], attributes).astype(scales.dtype)
    return [found.reshape(*indices.shape, -1)]


QUANTIZED_GATHER = Operator(
    name="partc.QuantizedGather",
    summary="Rows of a table that is stored in 4 or 8 bits.",
    signatures=tuple(
        Signature(
            operands=(*form.operands, Tensor("indices", "I", "...", "rows to pick")),
            results=(
                Tensor(
                    "rows",
                    "T",
                    f"..., {form.columns}",
                    "the rows, in floats",
                ),
            ),
            where=form.where,
        )
        for form in FORMS
    ),
    attributes=ATTRIBUTES,
    formula="""\
rows[..., k] = w[indices[...], k]   with w as in partc.QuantizedMatMul; k runs over whole blocks""",
    writes=(),
    flops=_flops,
    moved_bytes=_moved_bytes,
    scratch_bytes=no_scratch,
    reference=_reference,
)
