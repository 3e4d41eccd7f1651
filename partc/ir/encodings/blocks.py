"""Blocks of GGUF files as float32, bit for bit as llama.cpp and its Python package `gguf` have them.

| name | weights: bytes | a weight is |
| --- | --- | --- |
| Q4_0, Q5_0, Q8_0 | 32: 18, 22, 34 | d · (q - 8), d · (q - 16), d · q |
| Q4_1, Q5_1 | 32: 20, 24 | d · q + m |
| Q2_K | 256: 84 | (d · s) · q - dmin · m, s and m of 4 bits for 16 weights |
| Q3_K | 256: 110 | (d · (s - 32)) · (q - 4), s of 6 bits for 16 weights |
| Q4_K, Q5_K | 256: 144, 176 | (d · s) · q - dmin · m, s and m of 6 bits for 32 weights |
| Q6_K | 256: 210 | (d · s) · (q - 32), s of 8 bits with a sign for 16 weights |
| IQ4_NL | 32: 18 | d · table[q] |
| IQ4_XS | 256: 136 | (d · (s - 32)) · table[q], s of 6 bits for 32 weights |
| MXFP4 | 32: 17 | 2^(e - 128) · table[q], the table twice the numbers of E2M1 |
| NVFP4 | 64: 36 | s · table[q], s half of an E4M3 without a sign for 16 weights |
| TQ1_0, TQ2_0 | 256: 54, 66 | d · (t - 1) |

d, dmin and m are float16. In float32 the products of scales are exact, so that only the last product of Q4_K and its
like, and the difference, can round. Layouts: ggml-common.h and `gguf/quants.py` of llama.cpp, read for facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from partc.format.gguf import BLOCKS, Blocks
from partc.ir.encodings.numbers import E2M1_DOUBLED, exponents

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Small = npt.NDArray[np.int16]

_AT_ONCE = 1 << 16
"""Weights that are worked on at a time: they fit into a core's own cache."""
_IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int16)
"""The codebook of IQ4_NL and IQ4_XS."""


@dataclass(frozen=True)
class BlockFormat(Blocks):
    """A format of blocks: a weight is value · scale - minimum. Each function takes blocks [n, bytes]."""

    values: Callable[[Bytes], Small]
    """[n, weights]: -128 … 127."""
    scales: Callable[[Bytes], Floats]
    """[n, groups], each of equally many weights."""
    minima: Callable[[Bytes], Floats] | None = None
    """[n, groups], where there are any."""


def decode(stored: npt.NDArray[np.generic], name: str) -> Floats:
    """The weights of rows of blocks: u8[…, n · bytes] → f32[…, n · weights]; 5 to 10 ns a weight.

    Raises:
        ValueError: a row is no whole number of blocks.
    """
    form = BLOCK_FORMATS[name]

    def weights(blocks: Bytes) -> Floats:
        products = _scaled(form.values(blocks), form.scales(blocks))
        return products if form.minima is None else _less(products, form.minima(blocks))

    return read_blocks(stored, form, weights, np.float32)


def read_blocks(
    stored: npt.NDArray[np.generic],
    form: Blocks,
    read: Callable[[Bytes], npt.NDArray[Any]],
    dtype: npt.DTypeLike,
) -> npt.NDArray[Any]:
    """What rows of blocks u8[…, n · bytes] hold by `read`, so many blocks at a time as a core's cache takes.

    Raises:
        ValueError: a row is no whole number of blocks.
    """
    *outer, width = stored.shape
    if width % form.bytes:
        raise ValueError(f"rows of {width} bytes are no whole blocks of {form.name}, which have {form.bytes}")
    blocks = np.ascontiguousarray(stored).view(np.uint8).reshape(-1, form.bytes)
    step = max(1, _AT_ONCE // form.weights)
    parts = [read(blocks[start : start + step]) for start in range(0, len(blocks), step)]
    found = np.concatenate(parts, dtype=dtype) if parts else np.empty((0, 1), dtype)
    return found.reshape(*outer, -1) if found.size else found.reshape(*outer, 0)


def _half(part: Bytes) -> Floats:
    """Bytes [n, 2 k] as k numbers of float16 each."""
    return np.ascontiguousarray(part).view("<f2").astype(np.float32)


def _fields(part: Bytes, width: int, run: int) -> Small:
    """Fields of `width` bits, of every `run` bytes first the lowest of each byte, then the next ones."""
    runs = part.reshape(len(part), -1, 1, run)
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    return ((runs >> shifts) & np.uint8((1 << width) - 1)).reshape(len(part), -1).astype(np.int16)


def _bit_of_each(part: Bytes) -> Small:
    """Bit i belongs to weight i."""
    return np.unpackbits(np.ascontiguousarray(part), axis=1, bitorder="little").astype(np.int16)


def _scaled(values: Small, scale: Floats) -> Floats:
    """Values [n, k] times a scale for each of equal groups of them, [n, groups]."""
    grouped = values.reshape(*scale.shape, -1).astype(np.float32)
    grouped *= scale[..., None]
    return grouped.reshape(values.shape)


def _less(products: Floats, minimum: Floats) -> Floats:
    """Products [n, k] less a minimum for each of equal groups of them."""
    grouped = products.reshape(*minimum.shape, -1)
    grouped -= minimum[..., None]
    return products


def _half_at(first: int) -> Callable[[Bytes], Floats]:
    """A number of float16 that stands there in a block."""
    return lambda b: _half(b[:, first : first + 2])


def _negative(scales: Callable[[Bytes], Floats]) -> Callable[[Bytes], Floats]:
    return lambda b: -scales(b)


def _times(first: Callable[[Bytes], Floats], second: Callable[[Bytes], Floats]) -> Callable[[Bytes], Floats]:
    return lambda b: first(b) * second(b)


def _halves(first: int, less: int = 0) -> Callable[[Bytes], Small]:
    """Fields of 4 bits behind so many bytes, less a zero point."""
    return lambda b: _fields(b[:, first:], 4, 16) - less


def _from_book(book: Small, first: int, run: int) -> Callable[[Bytes], Small]:
    """Numbers of a codebook by fields of 4 bits behind so many bytes."""
    return lambda b: book[_fields(b[:, first:], 4, run)]


def _five(low: int, high: int, less: int) -> Callable[[Bytes], Small]:
    """Fields of 4 bits behind `low` bytes, with the fifth ones behind `high`, less a zero point."""
    return lambda b: (_fields(b[:, low:], 4, 16) | _bit_of_each(b[:, high : high + 4]) << 4) - less


def _signed_bytes(first: int, last: int) -> Callable[[Bytes], Small]:
    return lambda b: np.ascontiguousarray(b[:, first:last]).view(np.int8).astype(np.int16)


def _scales_2(b: Bytes) -> Floats:
    return (b[:, :16] & 15).astype(np.float32)


def _minima_2(b: Bytes) -> Floats:
    return (b[:, :16] >> 4).astype(np.float32)


def _values_3(b: Bytes) -> Small:
    return _fields(b[:, 32:96], 2, 32) - 4 * (1 - _fields(b[:, :32], 1, 32))


def _scales_3(b: Bytes) -> Floats:
    six = _fields(b[:, 96:104], 4, 8) | _fields(b[:, 104:108], 2, 4) << 4
    return (six - 32).astype(np.float32)


def _scales_6(b: Bytes) -> Floats:
    """8 scales of 6 bits in the first 12 of 16 bytes: of the last four the upper two bits lie above the first four."""
    first, rest = b[:, 4:8], b[:, 12:16]
    return np.concatenate([first & 63, (rest & 15) | (first >> 6) << 4], axis=1).astype(np.float32)


def _minima_6(b: Bytes) -> Floats:
    """The 8 minima that lie between them."""
    second, rest = b[:, 8:12], b[:, 12:16]
    return np.concatenate([second & 63, (rest >> 4) | (second >> 6) << 4], axis=1).astype(np.float32)


def _values_5(b: Bytes) -> Small:
    return _fields(b[:, 48:], 4, 32) | _fields(b[:, 16:48], 1, 32) << 4


def _values_6(b: Bytes) -> Small:
    return (_fields(b[:, :128], 4, 64) | _fields(b[:, 128:192], 2, 32) << 4) - 32


def _scales_iq4_xs(b: Bytes) -> Floats:
    six = _fields(b[:, 4:8], 4, 1) | _fields(b[:, 2:4], 2, 1) << 4
    return (six - 32).astype(np.float32)


def _scales_nvfp4(b: Bytes) -> Floats:
    power, fraction = (b[:, :4] >> 3 & 15).astype(np.int32), (b[:, :4] & 7).astype(np.float32)
    normal, small = np.ldexp(8 + fraction, power - 11), np.ldexp(fraction, -10)
    scale = np.where(power > 0, normal, small).astype(np.float32)
    return np.where(b[:, :4] == 127, np.float32(0), scale)  # ggml reads the code for "no number" as 0


def _values_tq1_0(b: Bytes) -> Small:
    def digits(part: Bytes, many: int, run: int) -> Small:
        """Digits of base 3, the first of each byte first; a byte is a fraction of 256."""
        powers = np.array([1, 3, 9, 27, 81][:many], np.uint8)[:, None]
        moved = part.reshape(len(part), -1, 1, run) * powers
        return (moved.astype(np.uint16) * 3 >> 8).reshape(len(part), -1).astype(np.int16)

    return (
        np.concatenate([digits(b[:, :32], 5, 32), digits(b[:, 32:48], 5, 16), digits(b[:, 48:52], 4, 4)], 1)
        - 1
    )


class _Reader(NamedTuple):
    """The functions of a `BlockFormat`."""

    values: Callable[[Bytes], Small]
    scales: Callable[[Bytes], Floats]
    minima: Callable[[Bytes], Floats] | None = None


_READERS: Mapping[str, _Reader] = {
    "Q4_0": _Reader(_halves(2, 8), _half_at(0)),
    "Q4_1": _Reader(_halves(4), _half_at(0), _negative(_half_at(2))),
    "Q5_0": _Reader(_five(6, 2, 16), _half_at(0)),
    "Q5_1": _Reader(_five(8, 4, 0), _half_at(0), _negative(_half_at(2))),
    "Q8_0": _Reader(_signed_bytes(2, 34), _half_at(0)),
    "Q2_K": _Reader(
        lambda b: _fields(b[:, 16:80], 2, 32),
        _times(_half_at(80), _scales_2),
        _times(_half_at(82), _minima_2),
    ),
    "Q3_K": _Reader(_values_3, _times(_half_at(108), _scales_3)),
    "Q4_K": _Reader(
        lambda b: _fields(b[:, 16:], 4, 32), _times(_half_at(0), _scales_6), _times(_half_at(2), _minima_6)
    ),
    "Q5_K": _Reader(_values_5, _times(_half_at(0), _scales_6), _times(_half_at(2), _minima_6)),
    "Q6_K": _Reader(
        _values_6, _times(_half_at(208), lambda b: _signed_bytes(192, 208)(b).astype(np.float32))
    ),
    "IQ4_NL": _Reader(_from_book(_IQ4, 2, 16), _half_at(0)),
    "IQ4_XS": _Reader(_from_book(_IQ4, 8, 16), _times(_half_at(0), _scales_iq4_xs)),
    "TQ1_0": _Reader(_values_tq1_0, _half_at(52)),
    "TQ2_0": _Reader(lambda b: _fields(b[:, :64], 2, 32) - 1, _half_at(64)),
    "MXFP4": _Reader(_from_book(E2M1_DOUBLED, 1, 16), lambda b: exponents(b[:, :1], 128)),
    "NVFP4": _Reader(_from_book(E2M1_DOUBLED, 4, 8), _scales_nvfp4),
}
BLOCK_FORMATS: Mapping[str, BlockFormat] = {
    form.name: BlockFormat(form.name, form.number, form.weights, form.bytes, *_READERS[form.name])
    for form in BLOCKS
}
"""Every format of blocks that is read, by name."""
