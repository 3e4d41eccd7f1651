"""AWQ (Lin et al. 2023) as AutoAWQ saves it for its `gemm` kernel.

| part | shape | holds |
| --- | --- | --- |
| qweight | i32[K, N / 8] | outputs 0 4 1 5 2 6 3 7 of every 8, each of 4 bits |
| qzeros | i32[groups, N / 8] | zero points in the same order |
| scales | f16[groups, N] | |
"""

from __future__ import annotations

from partc.frontend.quantized.parts import Parts, scaled, turned
from partc.frontend.symbolic import SymbolicTensor
from partc.ir.weights import Step, WeightExpr

PARTS = ("qweight", "qzeros", "scales")
VERSIONS = ("gemm",)
"""Values of `version` that are read."""
_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def weight(parts: Parts) -> SymbolicTensor:
    """The matrix [N, K] of a module.

    Raises:
        ModelError: parts are missing or do not fit together.
    """
    inputs, words = parts.words("qweight")
    groups, columns = parts.matrix("scales")
    block = inputs // max(groups, 1)
    if columns != words * 8 or block * groups != inputs or parts.words("qzeros") != (groups, words):
        raise parts.error("has parts that do not fit together", hint="download the checkpoint again")
    parts.scales("scales")
    shape = (columns, inputs)
    return scaled(
        shape, block, _fields(parts, "qweight"), turned(parts.expr("scales")), _fields(parts, "qzeros")
    )


def _fields(parts: Parts, name: str) -> WeightExpr:
    """Integers [N, …] of a part."""
    return turned(Step("cast", ("i16",), Step("order", _ORDER, Step("bits", (4,), parts.expr(name)))))
