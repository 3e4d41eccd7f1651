"""MXFP4 of the Open Compute Project, as gpt-oss saves its experts.

`X_blocks` u8[E, N, K / 32, 16] holds floats of 4 bits, the first in the low half, `X_scales` u8[E, N, K / 32] powers
of two; together they are the parameter X [E, K, N], turned.
"""

from __future__ import annotations

from partc.frontend.quantized.parts import Parts, turned
from partc.frontend.symbolic import SymbolicTensor
from partc.ir.weights import Join, Leaf, Step, WeightExpr

PARTS = ("blocks", "scales")
_BLOCK = 32


def weight(parts: Parts) -> SymbolicTensor:
    """The experts [E, K, N] of a parameter.

    Raises:
        ModelError: the parts do not fit together, or a scale is no number.
    """
    blocks, scales = parts.shape("blocks"), parts.shape("scales")
    if len(scales) != 3 or not scales[0] or blocks != (*scales, _BLOCK // 2):
        raise parts.error("has blocks and scales that do not fit together")
    if int(parts.values("scales").max(initial=0)) == 255:
        raise parts.error(
            "has a scale that is no number", hint="the checkpoint is damaged: download it again"
        )
    experts, rows, many = scales
    stored = Leaf(parts.tensor("blocks").file, parts.key("blocks"))
    powers = Leaf(parts.tensor("scales").file, parts.key("scales"))

    def expert(index: int) -> WeightExpr:
        own = (0, index, index + 1)
        data = Step("reshape", (rows, many * _BLOCK // 2), Step("slice", own, stored))
        scale = Step("reshape", (rows, many), Step("slice", own, powers))
        matrix = Join("scaled", _BLOCK, (Step("codes", ("e2m1",), data), Step("float8", ("e8m0",), scale)))
        return turned(matrix)

    whole = Join("stack", 0, tuple(expert(index) for index in range(experts)))
    return SymbolicTensor(whole, (experts, many * _BLOCK, rows), "f32")
