"""Weights of 4 bits that others have quantised, as `partc.ir.weight_formats` stores int4: every integer as it was.

| layout | raw data | a row holds |
| --- | --- | --- |
| `Q4_0`, `Q4_1` | u8[N, n · 18], u8[N, n · 20], blocks of GGUF | weight i and i + 16 in a byte, d or d and m before |
| `Q4_K` | u8[N, n · 144] | 8 blocks of 32, scales and minima of 6 bits before them |
| `words` | i32[N, K / 8], as GPTQ (turned) and compressed-tensors have it | 8 weights, the lowest bits first |
| `fields` | integers[N, K], one an element, as AWQ unpacks them | |
| `plain` | f16, bf16 or f32[N, blocks] | the scales of `words` and `fields` |

`integers(4, block, layout)` is the data, u8[N, blocks, block / 2], `factors(4, block, layout)` the scales and
`offsets(4, block, layout)` what is added to each weight of a block, f32[N, blocks] both. Scales of int4 are those of
float16: one that float16 does not have becomes a NaN, which nobody takes. Those of Q4_K are products of a float16 and
6 bits, and are rounded to float16: by 1 in 2,048 at most, and 1 in 6,000 on average.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from partc.ir.encodings.blocks import scales_and_minima

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_HEADS = {"Q4_0": (18, 2), "Q4_1": (20, 4), "Q4_K": (144, 16)}
"""Layout → bytes of a block, and of what stands before its integers."""


def integers(raw: Array, bits: int, block: int, layout: str) -> Bytes:
    """Pairs of integers 0 … 15 with 8 for zero, the first in the low half of a byte."""
    rows = len(raw)
    if layout == "fields":
        values = raw.astype(np.uint8)
        pairs: Bytes = values[:, ::2] | values[:, 1::2] << np.uint8(4)
        return pairs.reshape(rows, -1, block // 2)
    if layout == "words":
        return np.ascontiguousarray(raw).view(np.uint8).reshape(rows, -1, block // 2)
    halves = _blocks(raw, layout)[..., _HEADS[layout][1] :]
    # Low halves of a run of bytes are one row of weights, high ones the next; wanted are neighbours in a byte.
    runs = halves.reshape(rows, -1, 16 if layout != "Q4_K" else 32)
    even, odd = runs[..., ::2], runs[..., 1::2]
    first, last = (even & 15) | (odd & 15) << np.uint8(4), even >> 4 | (odd & 240)
    joined: Bytes = np.concatenate([first, last], axis=-1)
    return joined.reshape(rows, -1, block // 2)


def factors(raw: Array, bits: int, block: int, layout: str) -> Floats:
    """The scales, as float32; NaN where float16 has no such number."""
    if layout in ("Q4_0", "Q4_1"):
        return _half(_blocks(raw, layout)[..., :2])[..., 0]
    scales = _exact_scales(raw) if layout == "Q4_K" else raw.astype(np.float32)
    with np.errstate(over="ignore"):
        rounded: Floats = scales.astype(np.float16).astype(np.float32)
    is_kept = np.isfinite(rounded) if layout == "Q4_K" else rounded == scales
    kept: Floats = np.where(is_kept, rounded, np.float32(np.nan))
    return kept


def offsets(raw: Array, bits: int, block: int, layout: str) -> Floats:
    """What is added to (value - 8) · scale."""
    scales = factors(raw, bits, block, layout)
    blocks = _blocks(raw, layout)
    if layout == "Q4_1":
        return _half(blocks[..., 2:4])[..., 0] + 8 * scales
    least = scales_and_minima(blocks[..., 4:16].reshape(-1, 12))[1].reshape(*blocks.shape[:2], 8)
    found: Floats = 8 * scales - (_half(blocks[..., 2:4]) * least).reshape(len(raw), -1)
    return found


def _blocks(raw: Array, layout: str) -> Bytes:
    return np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), -1, _HEADS[layout][0])


def _half(part: Bytes) -> Floats:
    return np.ascontiguousarray(part).view("<f2").astype(np.float32)


def _exact_scales(raw: Array) -> Floats:
    """The scales of Q4_K for every 32 weights: float32 holds the products."""
    blocks = _blocks(raw, "Q4_K")
    scale = scales_and_minima(blocks[..., 4:16].reshape(-1, 12))[0].reshape(*blocks.shape[:2], 8)
    return (_half(blocks[..., :2]) * scale).reshape(len(raw), -1)
