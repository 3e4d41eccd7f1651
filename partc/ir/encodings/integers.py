"""Weights of 4 bits that others have quantised, as `partc.ir.weight_formats` stores int4: every integer as it was.

| layout | raw data | a row holds |
| --- | --- | --- |
| `Q4_0` | u8[N, n · 18], blocks of a GGUF file | weight i and i + 16 in a byte, the scale before them |
| `words` | i32[N, K / 8], as GPTQ (turned) and compressed-tensors have it | 8 weights, the lowest bits first |
| `fields` | integers[N, K], one an element, as AWQ unpacks them | |
| `plain` | f16, bf16 or f32[N, blocks] | the scales of `words` |

`integers(4, block, layout)` is the data, u8[N, blocks, block / 2], and `factors(4, block, layout)` the scales,
f32[N, blocks]. Scales of int4 are those of float16: one that float16 does not have becomes a NaN, which nobody takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_BLOCK, _BYTES = 32, 18
"""Weights and bytes of a block of Q4_0."""


def integers(raw: Array, bits: int, block: int, layout: str) -> Bytes:
    """Pairs of integers 0 … 15 with 8 for zero, the first in the low half of a byte."""
    rows = len(raw)
    if layout == "fields":
        values = raw.astype(np.uint8)
        pairs: Bytes = values[:, ::2] | values[:, 1::2] << np.uint8(4)
        return pairs.reshape(rows, -1, block // 2)
    if layout == "words":
        return np.ascontiguousarray(raw).view(np.uint8).reshape(rows, -1, block // 2)
    halves = np.ascontiguousarray(raw).view(np.uint8).reshape(rows, -1, _BYTES)[..., 2:]
    # Byte i has weights i and i + 16; wanted are 2 i and 2 i + 1, whose bytes lie side by side.
    even, odd = halves[..., ::2], halves[..., 1::2]
    first, last = (even & 15) | (odd & 15) << np.uint8(4), even >> 4 | (odd & 240)
    joined: Bytes = np.concatenate([first, last], axis=-1)
    return joined.reshape(rows, -1, block // 2)


def factors(raw: Array, bits: int, block: int, layout: str) -> Floats:
    """The scales, as float32; NaN where float16 has no such number."""
    if layout == "Q4_0":
        halves = np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), -1, _BYTES)[..., :2]
        found: Floats = np.ascontiguousarray(halves).view("<f2")[..., 0].astype(np.float32)
        return found
    scales = raw.astype(np.float32)
    with np.errstate(over="ignore"):
        rounded = scales.astype(np.float16).astype(np.float32)
    kept: Floats = np.where(rounded == scales, scales, np.float32(np.nan))
    return kept
