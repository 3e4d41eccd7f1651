"""Weights that others have quantised, as `partc.ir.weight_formats` stores them: every integer as it was.

| layout | raw data | a row holds |
| --- | --- | --- |
| a name of `BLOCK_FORMATS` | u8[N, n · bytes], blocks of GGUF | integers, scales and minima |
| `words` | i32[N, K / 8], as GPTQ (turned) and compressed-tensors have it | 8 weights of 4 bits, the lowest first |
| `e2m1` | u8[N, K / 2], as gpt-oss has it | 2 floats of 4 bits, the low half first, taken twice as integers |
| `fields` | integers[N, K], one an element | of 4 bits 0 … 15, of 8 bits with their sign |
| `plain` | f16, bf16 or f32[N, blocks] | the scales of `words` and `fields` |
| `e8m0` | u8[N, blocks] | those of `e2m1`, powers of two, of which half is taken |

`integers(bits, block, layout)` is the data, `factors(bits, block, layout)` the scales, and `offsets(bits, block,
layout)` what is added to each weight of a block, f32[N, blocks] both. Of 4 bits data is that of int4, of which 8 stands
for zero; of 8 bits that of int8_blocks.

Scales are rounded to float16: those of float32, and of K-quants and IQ4_XS, which are products of a float16 and 4 to 8
bits, by 1 in 2,048 at most, and 1 in 6,000 on average. Below 2^-14 float16 has steps of 2^-24, so that no weight of 8
bits moves by more than 4e-6: rows that hardly are there, as padding of a vocabulary, have such scales. One that is too
large becomes infinite, which nobody takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from partc.ir.encodings.blocks import BLOCK_FORMATS, read_blocks
from partc.ir.encodings.numbers import E2M1_DOUBLED, exponents
from partc.ir.weight_formats import INT4

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_HALVES = {"Q4_0": (18, 2, 16), "Q4_1": (20, 4, 16), "Q4_K": (144, 16, 32)}
"""Blocks of 4 bits → bytes of one, bytes before its integers, bytes whose low halves are neighbours: the fast way."""


def integers(raw: Array, bits: int, block: int, layout: str) -> Array:
    """The integers of each block, in the form that their number of bits has."""
    rows = len(raw)
    if bits != INT4.bits:
        return _values(raw, layout).astype(np.int8).reshape(rows, -1, block)
    if layout == "words":
        return np.ascontiguousarray(raw).view(np.uint8).reshape(rows, -1, block // 2)
    if layout in _HALVES:
        return _halves(raw, layout).reshape(rows, -1, block // 2)
    values = (
        raw.astype(np.uint8) if layout == "fields" else (_values(raw, layout) + INT4.zero).astype(np.uint8)
    )
    pairs: Bytes = values[:, ::2] | values[:, 1::2] << np.uint8(4)
    return pairs.reshape(rows, -1, block // 2)


def factors(raw: Array, bits: int, block: int, layout: str) -> Floats:
    """The scales, as float32; infinite where they are too large for float16."""
    if layout in BLOCK_FORMATS:
        scales: Floats = read_blocks(raw, BLOCK_FORMATS[layout], BLOCK_FORMATS[layout].scales, np.float32)
    else:
        scales = exponents(raw, 128) if layout == "e8m0" else raw.astype(np.float32)
    with np.errstate(over="ignore"):
        rounded: Floats = scales.astype(np.float16).astype(np.float32)
    return rounded


def offsets(raw: Array, bits: int, block: int, layout: str) -> Floats:
    """What is added to the weights that integers and scales of blocks with minima stand for."""
    form = BLOCK_FORMATS[layout]
    assert form.minima is not None
    least: Floats = read_blocks(raw, form, form.minima, np.float32)
    return -least if bits != INT4.bits else INT4.zero * factors(raw, bits, block, layout) - least


def _values(raw: Array, layout: str) -> Array:
    """Integers with their sign [N, K]."""
    if layout == "fields":
        return raw
    if layout == "e2m1":
        return E2M1_DOUBLED[np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(raw), -1)]
    return read_blocks(raw, BLOCK_FORMATS[layout], BLOCK_FORMATS[layout].values, np.int16)


def _halves(raw: Array, layout: str) -> Bytes:
    """Pairs of neighbours: in blocks low halves of a run of bytes are one row of weights, high ones the next."""
    size, first, run = _HALVES[layout]
    blocks = np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), -1, size)
    runs = blocks[..., first:].reshape(len(raw), -1, run)
    even, odd = runs[..., ::2], runs[..., 1::2]
    low, high = (even & 15) | (odd & 15) << np.uint8(4), even >> 4 | (odd & 240)
    joined: Bytes = np.concatenate([low, high], axis=-1)
    return joined
