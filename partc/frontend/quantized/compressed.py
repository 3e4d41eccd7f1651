"""compressed-tensors, as llm-compressor saves checkpoints for vLLM.

| format | parts |
| --- | --- |
| `pack-quantized` | weight_packed i32[N, K · b / 32], weight_scale, weight_zero_point, weight_shape, weight_g_idx |
| `int-quantized` | weight i8[N, K], weight_scale, weight_zero_point |
| `float-quantized` | weight f8[N, K], weight_scale |
| `naive-quantized` | one of the two above |

Integers are stored + 2^(b - 1); zero points are packed along N. Scales are [N, groups], [N, 1] for rows, [1] for a
matrix. Scales of activations are of no use here: activations stay floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from partc.frontend.quantized.float8 import spread_scale
from partc.frontend.quantized.parts import Parts, Settings, in_order, picked, scaled, shifted, turned
from partc.frontend.symbolic import SymbolicTensor
from partc.ir.weights import Array, Step, WeightExpr

PACKED = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
PLAIN = ("weight", "weight_scale", "weight_zero_point")
FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "dense")
"""Values of `format` that are read."""


def formats(settings: Settings) -> set[str]:
    """Every format that a config names."""
    groups = settings.get("config_groups") or {}
    named = {str(settings.get("format"))} | {
        str(group["format"]) for group in groups.values() if isinstance(group, dict) and group.get("format")
    }
    return named - {"None", "mixed-precision"}


def packed_weight(parts: Parts) -> SymbolicTensor:
    """The matrix [N, K] of integers that are packed.

    Raises:
        ModelError: parts are missing or do not fit together.
    """
    rows, words = parts.words("weight_packed")
    shape = [int(size) for size in parts.values("weight_shape").reshape(-1)]
    if len(shape) != 2 or shape[0] != rows or shape[1] <= 0:
        raise parts.error(f"has {rows} rows, and by its weight_shape the shape {shape}")
    columns = shape[1]
    bits = _bits(parts, columns, words)
    data: WeightExpr = Step("bits", (bits,), parts.expr("weight_packed"))
    if words * 32 // bits != columns:
        data = Step("slice", (1, 0, columns), data)
    parts.scales("weight_scale")
    scale, groups = parts.expr("weight_scale"), parts.matrix("weight_scale")[1]
    zeros: WeightExpr | None = None
    if "weight_zero_point" in parts:
        stream = Step("bits", (bits,), turned(parts.expr("weight_zero_point")))
        zeros = turned(Step("cast", ("i16",), Step("slice", (1, 0, rows), stream)))
    data = shifted(data, 0 if zeros is not None else -(2 ** (bits - 1)))
    block = -(-columns // groups)
    index = parts.values("weight_g_idx") if "weight_g_idx" in parts else None
    if index is None or int(index.min(initial=-1)) < 0 or _in_order(index, block, columns):
        return scaled((rows, columns), block, data, scale, zeros)
    if index.size != columns or int(index.max()) >= groups:
        raise parts.error(
            f"has a weight_g_idx that does not name one of {groups} groups for each of its inputs"
        )
    named = parts.expr("weight_g_idx")
    every = picked(scale, named), None if zeros is None else picked(zeros, named)
    return scaled((rows, columns), 1, data, *every)


def _in_order(index: Array, block: int, columns: int) -> bool:
    return index.size == columns and in_order(index, block)


def plain_weight(parts: Parts) -> SymbolicTensor:
    """The matrix [N, K] of integers or floats of 8 bits.

    Raises:
        ModelError: parts are missing or do not fit together.
    """
    rows, columns = parts.matrix("weight")
    parts.scales("weight_scale")
    block, scale = spread_scale(parts, "weight_scale", rows, columns)
    zeros: WeightExpr | None = None
    if "weight_zero_point" in parts:
        zeros = Step("cast", ("i16",), spread_scale(parts, "weight_zero_point", rows, columns)[1])
    data = parts.expr("weight")
    if parts.tensor("weight").dtype == "i8":
        data = Step("cast", ("i8",), data)  # so that they are known to be integers
    return scaled((rows, columns), block, data, scale, zeros)


def _bits(parts: Parts, columns: int, words: int) -> int:
    """The bits of a weight: those of the config that fill the words."""
    for bits in _configured_bits(parts.settings):
        if -(-columns * bits // 32) == words:
            return bits
    raise parts.error(
        f"has {words} words for {columns} weights, which none of the bits of quantization_config fills"
    )


def _configured_bits(settings: Settings) -> Iterator[int]:
    groups: dict[str, Any] = settings.get("config_groups") or {}
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and isinstance(weights.get("num_bits"), int):
            yield weights["num_bits"]
