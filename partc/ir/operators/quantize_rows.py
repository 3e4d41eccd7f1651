"""`partc.QuantizeRows`: numbers in 8 bits, with a scale for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from partc.ir.graph import Node
from partc.ir.operators.costs import all_bytes, no_scratch
from partc.ir.operators.operator import Operator, Signature, Tensor
from partc.ir.weights import Array
from partc.ir.workload import Step

LEAST = 1e-30
"""A row whose largest magnitude is below this becomes zeros: the inverse of its scale would not be finite."""


def _flops(node: Node, step: Step) -> int:
    """A comparison, a product and a rounding for every number."""
    return 3 * node.operand(0).elements(step.sizes)


def _reference(operands: Sequence[Array | None], attributes: Mapping[str, int | float]) -> list[Array]:
    (x,) = operands
    assert x is not None
    numbers = x.astype(np.float32)
    largest = np.abs(numbers).max(-1, keepdims=True)
    inverse = np.divide(127, largest, out=np.zeros_like(largest), where=largest >= LEAST)
    return [np.rint(numbers * inverse).astype(np.int8), (largest / 127).astype(x.dtype)]


QUANTIZE_ROWS = Operator(
    name="partc.QuantizeRows",
    summary="Rounds numbers to 8 bits, with a scale for every row: the rows of a cache of 8 bits.",
    signatures=(
        Signature(
            operands=(Tensor("x", "T", "..., d", "rows of numbers"),),
            results=(
                Tensor("data", "i8", "..., d", "whole numbers from -127 to 127"),
                Tensor("scales", "T", "..., 1", "the factor that gives the numbers back"),
            ),
        ),
    ),
    attributes=(),
    formula="""\
scales[..., 0] = (largest |x[..., c]| of the row) / 127
data[..., c]   = round(x[..., c] / scales[..., 0]), halves to even; 0 in a row of zeros""",
    writes=(),
    flops=_flops,
    moved_bytes=all_bytes,
    scratch_bytes=no_scratch,
    reference=_reference,
)
