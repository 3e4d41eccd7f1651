"""bitsandbytes: codebooks of 4 bits (NF4, FP4), and int8 with a scale for each row.

| part | holds |
| --- | --- |
| weight u8[N · K / 2, 1] | codes of the flattened matrix, the first in the high half of a byte |
| weight.absmax | f32, a scale for every `blocksize` weights; u8 where scales are quantised again |
| weight.nested_absmax, weight.nested_quant_map | their own scales, and the 256 numbers that the bytes stand for |
| weight.quant_map | the 16 numbers of the codebook |
| weight.quant_state.bitsandbytes__nf4 | JSON: shape, blocksize, quant_type, nested_blocksize, nested_offset |
| weight i8[N, K], SCB f32[N] | int8: weight · SCB / 127 |
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from partc.frontend.quantized.parts import Parts, scaled
from partc.frontend.symbolic import SymbolicTensor
from partc.ir.encodings.numbers import codes
from partc.ir.weights import Join, Leaf, Step, WeightExpr

_STATE = "weight.quant_state.bitsandbytes__"
PARTS = (
    "weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
    f"{_STATE}nf4", f"{_STATE}fp4", "SCB", "weight_format",
)  # fmt: skip


def weight(parts: Parts) -> SymbolicTensor:
    """The matrix [N, K] of a module.

    Raises:
        ModelError: parts do not fit together, or blocks do not end where rows do.
    """
    if "SCB" in parts:
        rows, columns = parts.matrix("weight")
        parts.scales("SCB")
        scale = Step("mul", (1 / 127,), Step("reshape", (rows, 1), parts.expr("SCB")))
        return scaled((rows, columns), 0, Step("cast", ("i8",), parts.expr("weight")), scale)
    kind = "nf4" if f"{_STATE}nf4" in parts else "fp4"
    state = _state(parts, f"{_STATE}{kind}")
    rows, columns = state["shape"]
    block = int(state["blocksize"])
    if columns % block:
        raise parts.error(
            f"has blocks of {block} weights that go on in the next row, since a row has {columns}",
            hint="give the checkpoint that it was made from",
        )
    every = codes(np.arange(16, dtype=np.uint8) << 4, kind)[::2]
    if not np.array_equal(parts.scales("weight.quant_map").reshape(-1), every):
        raise parts.error(f"has another codebook than {kind}")
    stored: WeightExpr = Leaf(parts.tensor("weight").file, parts.key("weight"))
    data = Step("codes", (kind,), Step("reshape", (rows, columns // 2), stored))
    scale = Step("reshape", (rows, columns // block), _absmax(parts, state))
    return scaled((rows, columns), block, data, scale)


def _absmax(parts: Parts, state: dict[str, Any]) -> WeightExpr:
    """The scales of blocks."""
    index = parts.expr("weight.absmax")
    if "weight.nested_absmax" not in parts:
        parts.scales("weight.absmax")
        return index
    parts.scales("weight.nested_absmax")
    table, scale = parts.expr("weight.nested_quant_map"), parts.expr("weight.nested_absmax")
    nested = Join("nested", int(state["nested_blocksize"]), (index, table, scale))
    return Step("add", (float(state["nested_offset"]),), nested)


def _state(parts: Parts, name: str) -> dict[str, Any]:
    try:
        state = json.loads(parts.values(name).tobytes())
        shape = [int(size) for size in state["shape"]]
        if len(shape) == 2 and min(shape) > 0 and int(state["blocksize"]) > 0:
            return {**state, "shape": shape}
    except (ValueError, KeyError, TypeError):
        pass
    raise parts.error(f"has a {name} that does not say the shape of its weight")
