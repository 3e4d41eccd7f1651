"""The operators of the `partc` domain: one module each, and this table of them.

Everything else asks the table: size inference, costs, the verifier, constant folding, passes over effects, the targets'
tests and docs/operators.md (`python -m partc.ir.operators`). A new operator is a module with its `Operator`, a line
here, and code for it in every target, or a refusal there; `tests/targets/test_operators.py` fails until that is so.
"""

from __future__ import annotations

from collections.abc import Mapping

from partc.ir.operators.attention import ATTENTION
from partc.ir.operators.causal_conv import CAUSAL_CONV
from partc.ir.operators.linear_attention import LINEAR_ATTENTION
from partc.ir.operators.operator import Operator
from partc.ir.operators.quantize_rows import QUANTIZE_ROWS
from partc.ir.operators.quantized_attention import QUANTIZED_ATTENTION
from partc.ir.operators.quantized_experts import QUANTIZED_EXPERTS
from partc.ir.operators.quantized_gather import QUANTIZED_GATHER
from partc.ir.operators.quantized_matmul import QUANTIZED_MATMUL
from partc.ir.operators.update_state import UPDATE_STATE

DOMAIN = "partc"

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        *(ATTENTION, UPDATE_STATE, QUANTIZE_ROWS, QUANTIZED_ATTENTION),
        *(CAUSAL_CONV, LINEAR_ATTENTION),
        *(QUANTIZED_MATMUL, QUANTIZED_GATHER, QUANTIZED_EXPERTS),
    )
}
"""By the name that nodes have, domain included."""
QUANTIZED = tuple(operator.name for operator in (QUANTIZED_MATMUL, QUANTIZED_GATHER, QUANTIZED_EXPERTS))
"""Those that read quantised weights, whose format their `bits` and `block` name."""

__all__ = [
    "ATTENTION",
    "CAUSAL_CONV",
    "DOMAIN",
    "LINEAR_ATTENTION",
    "OPERATORS",
    "QUANTIZED",
    "QUANTIZED_ATTENTION",
    "QUANTIZED_EXPERTS",
    "QUANTIZED_GATHER",
    "QUANTIZED_MATMUL",
    "QUANTIZE_ROWS",
    "UPDATE_STATE",
    "Operator",
]
