"""Packed integers, floats of 8 bits, exponents and codes of a table, as numbers.

| transform | of | gives |
| --- | --- | --- |
| `bits(w)` | words [..., n] of a stream of bits | u8[..., fields of w bits], the lowest first |
| `order(i, …)` | [..., n] | every run of so many elements in that order: element i first |
| `float8(e4m3)` | u8[...] | f32[...]: OCP's E4M3, `float8_e4m3fn` of torch |
| `float8(e5m2)` | u8[...] | f32[...]: `float8_e5m2` of torch |
| `float8(e8m0)` | u8[...] | f32[...]: powers of two, 2^(e - 127) |
| `codes(e2m1)` | u8[...] of two codes, the first in the low half | f32[..., 2 n]: floats of 4 bits |
| `codes(nf4)`, `codes(fp4)` | the same with the first in the high half | f32: the codebooks of bitsandbytes |

Checked against torch, transformers and bitsandbytes: tests/ir/test_encodings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int16)
"""Twice the numbers of E2M1, floats of 4 bits: whole numbers, without a negative zero, as ggml has them."""
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
# fmt: off
_NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
], np.float32)
"""Quantiles of the normal distribution (Dettmers et al., QLoRA, appendix E)."""
_FP4 = np.array([
    0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25,
    0, -0.005208333333, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25,
], np.float32)
# fmt: on


def bits(words: Array, width: int) -> Bytes:
    """The fields of a stream of bits along the last axis; what is left at its end, and is no whole field, is dropped.

    Widths that do not divide 32 may cross words, as the 3 bits of GPTQ do.
    """
    stream: Bytes = np.ascontiguousarray(words).view(np.uint8)
    if width == 8:
        return stream
    if width in (2, 4):
        shifts = np.arange(0, 8, width, dtype=np.uint8)
        parts = (stream[..., None] >> shifts) & np.uint8((1 << width) - 1)
        return parts.reshape(*stream.shape[:-1], -1)
    single = np.unpackbits(stream, axis=-1, bitorder="little")
    many = single.shape[-1] // width
    runs = single[..., : many * width].reshape(*single.shape[:-1], many, width)
    fields: Bytes = (runs << np.arange(width, dtype=np.uint8)).sum(-1, dtype=np.uint8)
    return fields


def order(array: Array, *places: int) -> Array:
    """Runs of `len(places)` elements of the last axis, each in the order of `places`."""
    runs = array.reshape(*array.shape[:-1], -1, len(places))
    return runs[..., list(places)].reshape(array.shape)


def exponents(powers: Array, one: int = 127) -> Floats:
    """2^(e - one), subnormal numbers too."""
    found: Floats = np.ldexp(np.float32(1), powers.astype(np.int32) - one)
    return found


def _float8(power_bits: int, bias: int) -> Floats:
    """All 256 numbers of a format of 8 bits, infinities and NaNs as IEEE 754 has them."""
    codes = np.arange(256)
    fraction_bits = 7 - power_bits
    power, fraction = codes >> fraction_bits & ((1 << power_bits) - 1), codes & ((1 << fraction_bits) - 1)
    whole = fraction + np.where(power > 0, 1 << fraction_bits, 0)
    size = np.ldexp(whole.astype(np.float64), np.maximum(power, 1) - bias - fraction_bits)
    numbers: Floats = np.where(codes & 128, -size, size).astype(np.float32)
    return numbers


def _e4m3() -> Floats:
    numbers = _float8(4, 7)
    numbers[[0x7F, 0xFF]] = np.nan
    return numbers


def _e5m2() -> Floats:
    numbers = _float8(5, 15)
    numbers[0x7C], numbers[0xFC] = np.inf, -np.inf
    numbers[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return numbers


def _e8m0() -> Floats:
    return np.append(exponents(np.arange(255)), np.float32(np.nan))


_FLOAT8: Mapping[str, Floats] = {"e4m3": _e4m3(), "e5m2": _e5m2(), "e8m0": _e8m0()}
_CODES: Mapping[str, tuple[Floats, bool]] = {
    "e2m1": (_E2M1, True),
    "nf4": (_NF4, False),
    "fp4": (_FP4, False),
}
"""Codebook → its numbers, and whether the first of two codes is in the low half of a byte."""


def float8(stored: Array, form: str) -> Floats:
    """Numbers of 8 bits as float32, which holds each of them exactly."""
    numbers: Floats = _FLOAT8[form][stored.view(np.uint8)]
    return numbers


def codes(stored: Array, book: str) -> Floats:
    """The numbers of a codebook that halves of bytes name, along the last axis."""
    numbers, low_first = _CODES[book]
    halves = stored & np.uint8(15), stored >> np.uint8(4)
    pairs = np.stack(halves if low_first else halves[::-1], axis=-1)
    found: Floats = numbers[pairs.reshape(*stored.shape[:-1], -1)]
    return found
