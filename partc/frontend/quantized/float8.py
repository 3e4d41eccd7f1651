"""Floats of 8 bits with scales, as DeepSeek V3, Qwen, FBGEMM and ModelOpt save them.

`weight` f8[N, K] and `weight_scale_inv` or `weight_scale`, which is multiplied with in spite of the first name: one for
blocks (`weight_block_size`, the last ones may be cut off), one for each row, or one for a whole matrix.
"""

from __future__ import annotations

import math

from partc.frontend.quantized.parts import Parts, scaled
from partc.frontend.symbolic import SymbolicTensor
from partc.ir.weights import Step, WeightExpr

PARTS = ("weight", "weight_scale_inv", "weight_scale")
_BLOCK = 128
"""The block of DeepSeek V3, where a config does not say another."""


def weight(parts: Parts) -> SymbolicTensor:
    """The matrix [N, K] of a module.

    Raises:
        ModelError: scales have a shape that belongs to no blocks.
    """
    rows, columns = parts.matrix("weight")
    name = "weight_scale_inv" if "weight_scale_inv" in parts else "weight_scale"
    parts.scales(name)
    block, scale = spread_scale(parts, name, rows, columns)
    return scaled((rows, columns), block, parts.expr("weight"), scale)


def spread_scale(parts: Parts, name: str, rows: int, columns: int) -> tuple[int, WeightExpr]:
    """Scales of any shape as [N, blocks], and the block; 0 where a row has one.

    Raises:
        ModelError: the shape belongs to no blocks of such a matrix.
    """
    shape, expr = parts.shape(name), parts.expr(name)
    if math.prod(shape) == 1:
        return 0, Step("repeat", (0, rows), Step("reshape", (1, 1), expr))
    if shape in ((rows,), (rows, 1)):
        return 0, Step("reshape", (rows, 1), expr)
    if len(shape) == 2 and shape[0] == rows:
        return -(-columns // shape[1]), expr
    down, across = _block_size(parts)
    if shape != (-(-rows // down), -(-columns // across)):
        raise parts.error(
            f"has scales of shape {list(shape)}, which are no blocks of {down} × {across} of {rows} × {columns}"
        )
    return across, Step("slice", (0, 0, rows), Step("repeat", (0, down), expr))


def _block_size(parts: Parts) -> tuple[int, int]:
    size = parts.settings.get("weight_block_size") or (_BLOCK, _BLOCK)
    return int(size[0]), int(size[1])
